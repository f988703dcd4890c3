"""The node behind a MAC: its network port in the clocks of a MAC's AXI4-Streams.

::

    clock of mac_rx                     that of the node
    FromMac ─► Widen ─► Crossing (lossy) ─► Node ─┐
    ToMac ◄─ Narrow ◄─ WholeFrameCrossing ◄─ PadFrames
    clock of mac_tx

Tested: `tests/sim/test_cocotb_port.py`.
"""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from afflux_hdl.lib.count_crossing import CountCrossing
from afflux_hdl.lib.crossing import Crossing
from afflux_hdl.lib.packet_stream import PacketBeat
from afflux_hdl.lib.whole_frame_crossing import WholeFrameCrossing
from afflux_hdl.lib.width import Narrow, Widen
from afflux_hdl.node.node import AXI_LITE, Node
from afflux_hdl.node.parameters import NodeParameters
from afflux_hdl.port.mac_streams import AxisFrom, AxisTo, FromMac, PadFrames, ToMac

__all__ = ["NodePort"]

EVENT_BITS = 4
"""Of the count of events that crosses: more than can happen while a change of it crosses."""


class NodePort(wiring.Component):
    """A node whose network port is a MAC's, in the clock domains `mac_rx` and `mac_tx`.

    Received frames pass beat by beat. Nothing waits before them: a frame that finds no room is
    dropped whole, or ends with an error where the room has ended, and is counted. Frames to be sent
    wait until all of them has crossed, so that the MAC never runs dry within one.

    `sync` may be reset alone. The domain `pins` has its clock and no reset, and `mac_rx` and
    `mac_tx` have none either: what the MAC's resets mean is for `mac_rx_reset` and `mac_tx_reset`.

    Latency, beyond the node's own: from `mac_rx` 2 to 4 cycles of the MAC's clock and 3 to 4 of the
    node's; to `mac_tx` as long as the frame has beats, 4 to 5 cycles of the MAC's clock and 1 more.
    Throughput: one beat in each cycle on each of the MAC's streams, as far as the node's clock
    allows.

    Args:
        parameters: Of the node.
        mac_bits: Width of the MAC's streams: that of the node's bus or less.
        rx_beats: Depth of the crossing from the MAC, in beats of the node.
        tx_beats: Depth of the crossing to the MAC, likewise: the longest frame, and one that is
            sent meanwhile.
        managed: The host is the management of a board, see `Node`.

    Members:
        mac_rx: Frames that the MAC has received, in the domain `mac_rx`.
        mac_tx: Frames for the MAC to send, in the domain `mac_tx`.
        mac_rx_reset, mac_tx_reset: The MAC is being reset; each in the domain of that name.
        host_rx, host_tx, axil, idle: As the node's.
        rx_dropped: Frames that found no room before the node, modulo 2**32; a register too.
        tx_cut: Frames that were too long to be kept whole, modulo 2**32; their end has `user`. A
            register too.
        tx_paused: In the domain `mac_tx`: the MAC has run dry within a frame. Must never be.
    """

    def __init__(
        self,
        parameters: NodeParameters,
        *,
        mac_bits: int,
        rx_beats: int = 64,
        tx_beats: int = 512,
        managed: bool = False,
    ) -> None:
        self._parameters = parameters
        self._managed = managed
        self._mac_bits = mac_bits
        self._rx_beats, self._tx_beats = rx_beats, tx_beats
        host = PacketBeat(parameters.engine.bus_bits)
        super().__init__(
            {
                "mac_rx": In(AxisFrom(mac_bits)),
                "mac_tx": Out(AxisTo(mac_bits)),
                "mac_rx_reset": In(1),
                "mac_tx_reset": In(1),
                "host_rx": Out(stream.Signature(host)),
                "host_tx": In(stream.Signature(host)),
                "axil": In(AXI_LITE),
                "idle": Out(1),
                "rx_dropped": Out(32),
                "tx_cut": Out(32),
                "tx_paused": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.node = node = Node(self._parameters, managed=self._managed, port_counters=True)
        for name in ("host_rx", "host_tx", "axil"):
            connect(m, flipped(getattr(self, name)), getattr(node, name))
        m.d.comb += [
            self.idle.eq(node.idle),
            node.port_rx_dropped.eq(self.rx_dropped),
            node.port_tx_cut.eq(self.tx_cut),
        ]
        self._receive(m, node)
        self._send(m, node)
        return m

    def _receive(self, m: Module, node: Node) -> None:
        bits, mac_bits = self._parameters.engine.bus_bits, self._mac_bits
        m.submodules.from_mac = from_mac = FromMac(bits=mac_bits, domain="mac_rx")
        m.submodules.rx = crossing = Crossing(
            bus_bits=bits, depth=self._rx_beats, writer="mac_rx", reader="pins", lossy=True
        )
        connect(m, flipped(self.mac_rx), from_mac.i)
        received = from_mac.o
        if bits != mac_bits:
            m.submodules.widen = widen = Widen(
                narrow_bits=mac_bits, wide_bits=bits, domain="mac_rx"
            )
            connect(m, received, widen.i)
            received = widen.o
        m.submodules.drops = drops = CountCrossing(
            bits=EVENT_BITS, i_domain="mac_rx", o_domain="pins"
        )
        m.d.comb += [
            from_mac.reset.eq(self.mac_rx_reset),
            crossing.i.payload.eq(received.payload),
            crossing.i.valid.eq(received.valid),
            received.ready.eq(1),
            node.rx.payload.eq(crossing.o.payload),
            node.rx.valid.eq(crossing.o.valid),
            # While `sync` is being reset too: the node follows what passes meanwhile.
            crossing.o.ready.eq(1),
            drops.advance.eq(crossing.overflowed),
        ]
        before = Signal(EVENT_BITS)
        m.d.pins += [
            before.eq(drops.count),
            self.rx_dropped.eq(self.rx_dropped + (drops.count - before)[:EVENT_BITS]),
        ]

    def _send(self, m: Module, node: Node) -> None:
        bits, mac_bits = self._parameters.engine.bus_bits, self._mac_bits
        m.submodules.pad = pad = PadFrames(bus_bits=bits)
        m.submodules.tx = crossing = WholeFrameCrossing(
            bus_bits=bits, depth=self._tx_beats, writer="pins", reader="mac_tx"
        )
        m.submodules.to_mac = to_mac = ToMac(bits=mac_bits, domain="mac_tx")
        connect(m, node.tx, pad.i)
        connect(m, pad.o, crossing.i)
        sent = crossing.o
        if bits != mac_bits:
            m.submodules.narrow = narrow = Narrow(
                narrow_bits=mac_bits, wide_bits=bits, domain="mac_tx"
            )
            connect(m, sent, narrow.i)
            sent = narrow.o
        connect(m, sent, to_mac.i)
        connect(m, to_mac.o, flipped(self.mac_tx))
        m.d.comb += [to_mac.reset.eq(self.mac_tx_reset), self.tx_paused.eq(to_mac.paused)]
        m.d.pins += self.tx_cut.eq(self.tx_cut + crossing.cut)
