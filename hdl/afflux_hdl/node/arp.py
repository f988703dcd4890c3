"""ARP: answers requests for the local address (RFC 826).

Proved: `tests/formal/node_streams.py`. Tested: `tests/hdl/test_node_parts.py`,
`tests/hdl/test_node_latency.py`, `tests/sim/test_cocotb_node.py`.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.lib.frame_header import FrameHeader
from afflux_hdl.lib.packet_stream import (
    ARP_HARDWARE_ETHERNET,
    ARP_REPLY,
    ETHERTYPE_ARP,
    ETHERTYPE_IPV4,
    ArpFrame,
    Local,
    PacketBeat,
    as_sent,
)
from afflux_hdl.lib.queue import Queue
from afflux_hdl.lib.rate_limit import RateLimit

__all__ = ["ARP_BURST", "ARP_PERIOD_BITS", "ARP_WAITING", "Arp"]

ARP_BURST = 64
"""Requests that are answered at once, as far as they find room."""

ARP_PERIOD_BITS = 14
"""Binary logarithm of the cycles for each further answer: 15,259 a second at 250 MHz."""

ARP_WAITING = 16
"""Answers that may wait to be sent."""

FRAME_BYTES = 60
"""Bytes of an answer: the smallest frame, without its check sequence."""


class Requester(data.StructLayout):
    """The sender of a request, and with several network ports the one that it was asked by."""

    def __init__(self, ports: int) -> None:
        super().__init__({"mac": 48, "address": 32} | ({"net_ports": ports} if ports > 1 else {}))


class Arp(wiring.Component):
    """Answers ARP requests.

    Latency: 3 cycles from a request's last beat to its answer's first. Throughput: one request in
    each cycle, one beat of answers in each cycle. Overflow: a request that finds `ARP_WAITING`
    others waiting, or goes beyond the rate of `ARP_BURST` and `ARP_PERIOD_BITS`, is dropped, and
    marked on `dropped`; hosts ask again.

    Args:
        bus_bits: Width of the packet streams.
        ports: Network ports behind the streams; an answer leaves by the one that it was asked by.

    Members:
        i: Requests for the local address, and nothing else.
        local: The engine's addresses.
        o: Answers, 60 bytes each, padded with zeros.
        replied, dropped: A request that has ended will be answered, or is dropped; neither is set
            for a request that is marked as bad.
        idle: No answer is in flight.
    """

    def __init__(self, *, bus_bits: int, ports: int = 1) -> None:
        self._bus_bits = bus_bits
        self._ports = ports
        beat = PacketBeat(bus_bits, ports)
        super().__init__(
            {
                "i": In(stream.Signature(beat, always_ready=True)),
                "local": In(Local),
                "o": Out(stream.Signature(beat)),
                "replied": Out(1),
                "dropped": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.header = header = FrameHeader(bus_bits=self._bus_bits, shape=ArpFrame)
        m.submodules.waiting = waiting = Queue(Requester(self._ports), depth=ARP_WAITING)
        m.submodules.limit = limit = RateLimit(burst=ARP_BURST, period_bits=ARP_PERIOD_BITS)
        # The header stays as it is until the next frame's first beat has passed.
        ended = Signal()
        request = header.header.arp
        m.d.sync += ended.eq(self.i.valid & self.i.payload.last & ~self.i.payload.error)
        m.d.comb += [
            header.i.payload.eq(self.i.payload),
            header.i.valid.eq(self.i.valid),
            waiting.i.payload.mac.eq(request.sender_mac),
            waiting.i.payload.address.eq(request.sender_address),
            waiting.i.valid.eq(ended & limit.ready),
            self.replied.eq(ended & limit.ready & waiting.i.ready),
            self.dropped.eq(ended & ~(limit.ready & waiting.i.ready)),
            limit.take.eq(self.replied),
        ]

        if self._ports > 1:
            asked_by = Signal(self._ports)
            m.d.sync += asked_by.eq(self.i.payload.net_ports)
            m.d.comb += [
                waiting.i.payload.net_ports.eq(asked_by),
                self.o.payload.net_ports.eq(waiting.o.payload.net_ports),
            ]

        # The requester's addresses go to the front of the frame and to the target fields.
        requester = waiting.o.payload
        answer = Signal(ArpFrame)
        m.d.comb += [
            answer.ethernet.destination.eq(requester.mac),
            answer.ethernet.source.eq(self.local.mac),
            answer.ethernet.type.eq(as_sent(ETHERTYPE_ARP, 2)),
            answer.arp.hardware.eq(as_sent(ARP_HARDWARE_ETHERNET, 2)),
            answer.arp.protocol.eq(as_sent(ETHERTYPE_IPV4, 2)),
            answer.arp.hardware_octets.eq(6),
            answer.arp.protocol_octets.eq(4),
            answer.arp.operation.eq(as_sent(ARP_REPLY, 2)),
            answer.arp.sender_mac.eq(self.local.mac),
            answer.arp.sender_address.eq(self.local.address),
            answer.arp.target_mac.eq(requester.mac),
            answer.arp.target_address.eq(requester.address),
        ]
        size = self._bus_bits // 8
        beats = -(-FRAME_BYTES // size)
        beat = Signal(range(max(2, beats)))
        last = Signal()
        kept = FRAME_BYTES - (beats - 1) * size
        m.d.comb += [
            last.eq(beat == beats - 1),
            self.o.valid.eq(waiting.o.valid),
            self.o.payload.last.eq(last),
            self.o.payload.keep.eq(Mux(last, (1 << kept) - 1, (1 << size) - 1)),
            waiting.o.ready.eq(self.o.ready & last),
            self.idle.eq(~ended & (waiting.level == 0)),
        ]
        with m.Switch(beat):
            for n in range(beats):
                with m.Case(n):
                    m.d.comb += self.o.payload.data.eq(answer.as_value()[n * self._bus_bits :])
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += beat.eq(Mux(last, 0, beat + 1))
        # For proofs.
        self.beat, self.beats = beat, beats
        return m
