"""Frame split: the frames of a node to those of its network ports that they are for.

Tested: `tests/sim/test_box_ports.py`, `tests/sim/test_board_ports.py`.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.lib.packet_stream import PacketBeat

__all__ = ["FrameSplit"]


class FrameSplit(wiring.Component):
    """Hands each frame to one output, or to several.

    The first beat counts: the beat that ends a frame which a reset cuts off goes where the frame
    went. A frame for nobody is dropped.

    Latency: none. Throughput: one beat in each cycle while all those that it is for are ready.
    `ready` of the outputs must not wait for their `valid`.

    Args:
        bus_bits: Width of the streams.
        ports: Number of outputs.

    Members:
        i: Frames, with `net_ports`.
        o: Frames of each port.
    """

    def __init__(self, *, bus_bits: int, ports: int) -> None:
        self._ports = ports
        super().__init__(
            {
                "i": In(stream.Signature(PacketBeat(bus_bits, ports))),
                "o": Out(stream.Signature(PacketBeat(bus_bits))).array(ports),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        inside, held, to = Signal(), Signal(self._ports), Signal(self._ports)
        ready = Cat(o.ready for o in self.o)
        m.d.comb += [
            to.eq(Mux(inside, held, self.i.payload.net_ports)),
            # All take it at once. If one took it earlier, and a reset of the node took it away from
            # the others then, that one would have the beginning of a frame that is no more.
            self.i.ready.eq((to & ~ready) == 0),
        ]
        for n, o in enumerate(self.o):
            m.d.comb += [
                o.valid.eq(self.i.valid & self.i.ready & to[n]),
                o.payload.eq(self.i.payload),
            ]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [held.eq(to), inside.eq(~self.i.payload.last)]
        return m
