"""Intake: takes frames from the shell, and trusts nothing that it says about them.

Tested: `tests/sim/test_box.py`.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.lib.packet_stream import PacketBeat
from afflux_hdl.opennic.frame_size import SIZE_CYCLES, FrameSize
from afflux_hdl.opennic.streams import BUS_BITS, FIRST_PORT_BIT, BoxBeat

__all__ = ["Intake"]


class Intake(wiring.Component):
    """Takes frames from an adapter, or from a queue of the host.

    Bytes count, and not the size that comes with them: in a shell whose receive buffer has dropped
    a frame at its last beat, sizes belong to the frames before them from then on. A frame whose
    size is not that of its bytes passes, and is counted. One with null bytes before its end, which
    has holes, or with none but these in its last beat, gets `error`, and so has one for a port that
    is not there. (The buffers behind this part store no bit for a beat's first byte.)

    Its registers have no reset, as a reset must not lose a frame's last beat; so it is to be
    elaborated in a domain without one.

    Latency: 1 cycle. Throughput: one beat in each cycle while `o.ready` holds.

    Args:
        ports: One bit for each network port to which a frame may go; 0 for a stream whose frames
            have no destination yet.

    Members:
        i: Frames of the shell.
        o: The same; `error`, with `last`, marks those that are to be dropped.
        port: With `o`: one bit for each of these to which the frame goes; 0 if it says nothing.
        size_mismatch, malformed, no_destination: A frame of this kind has ended.
    """

    def __init__(self, *, ports: int = 0) -> None:
        self._ports = ports
        super().__init__(
            {
                "i": In(stream.Signature(BoxBeat)),
                "o": Out(stream.Signature(PacketBeat(BUS_BITS))),
                "port": Out(max(ports.bit_length(), 1)),
                "size_mismatch": Out(1),
                "malformed": Out(1),
                "no_destination": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        beat, valid, taken = Signal(BoxBeat), Signal(), Signal()
        m.d.comb += [self.i.ready.eq(~valid | self.o.ready), taken.eq(valid & self.o.ready)]
        with m.If(self.i.ready):
            m.d.sync += valid.eq(self.i.valid)
            with m.If(self.i.valid):
                m.d.sync += beat.eq(self.i.payload)

        holes, had_holes, malformed = Signal(), Signal(), Signal()
        m.d.comb += [
            holes.eq(
                Mux(
                    beat.last,
                    Cat(
                        ~beat.keep[0],
                        *(~beat.keep[n] & beat.keep[n + 1] for n in range(len(beat.keep) - 1)),
                    ).any(),
                    ~beat.keep.all(),
                )
            ),
            malformed.eq(holes | had_holes),
            self.malformed.eq(taken & beat.last & malformed),
        ]
        with m.If(taken):
            m.d.sync += had_holes.eq(~beat.last & malformed)

        nowhere = Signal()
        if self._ports:
            # Bits 0 to 5 are of functions: they say nothing about ports.
            asked = beat.dst[FIRST_PORT_BIT:]
            m.d.comb += [
                self.port.eq(asked & self._ports),
                nowhere.eq(asked.any() & ((asked & self._ports) == 0)),
                self.no_destination.eq(taken & beat.last & nowhere),
            ]
        m.d.comb += [
            self.o.valid.eq(valid),
            self.o.payload.data.eq(beat.data),
            self.o.payload.keep.eq(beat.keep),
            self.o.payload.last.eq(beat.last),
            self.o.payload.error.eq(beat.last & (malformed | nowhere)),
        ]

        m.submodules.counted = counted = FrameSize(bus_bits=BUS_BITS)
        said = [Signal(16, name=f"said_{n}") for n in range(SIZE_CYCLES)]
        m.d.sync += [later.eq(now) for now, later in zip((beat.size, *said), said, strict=False)]
        m.d.comb += [
            counted.payload.eq(self.o.payload),
            counted.taken.eq(taken),
            self.size_mismatch.eq(counted.done & (counted.size != said[-1])),
        ]
        return m
