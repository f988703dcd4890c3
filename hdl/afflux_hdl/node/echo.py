"""Echo: answers ICMP echo requests to the local address (RFC 792).

::

    i ──┬─► PacketFifo ─► a register ────────► headers replaced ─► o
        └─► EchoCheck ─► verdicts (queue) ─────────┘

Proved: `tests/formal/node_streams.py`. Tested: `tests/hdl/test_node_parts.py`,
`tests/hdl/test_node_latency.py`, `tests/sim/test_cocotb_node.py`.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.lib.packet_fifo import PacketFifo
from afflux_hdl.lib.packet_stream import (
    DONT_FRAGMENT,
    ICMP_ECHO_REPLY,
    TIME_TO_LIVE,
    IcmpFrame,
    Local,
    PacketBeat,
    as_sent,
    octet_of,
)
from afflux_hdl.lib.queue import Queue
from afflux_hdl.lib.rate_limit import RateLimit
from afflux_hdl.node.classify import HEADER_BYTES
from afflux_hdl.node.echo_check import ECHO_CHECK_CYCLES, EchoCheck, EchoReplyHeader

__all__ = ["ECHO_BURST", "ECHO_PERIOD_BITS", "Echo"]

ECHO_BURST = 64
"""Requests that are answered at once, as far as they find room."""

ECHO_PERIOD_BITS = 16
"""Binary logarithm of the cycles for each further reply: 3,815 a second at 250 MHz."""

VERDICTS = 32
"""Requests that may wait, whatever their size."""

VERDICTS_MARGIN = ECHO_CHECK_CYCLES + 2
"""Requests that may be in flight to that queue when another one is let in."""


class Echo(wiring.Component):
    """Answers ICMP echo requests; a faulty request is found before, not after, its reply begins.

    A reply is the request with new headers, sent back to its sender. It is as long as the request,
    padding included.

    Latency: 8 cycles from a request's last beat to its reply's first. Throughput: one beat in each
    cycle in, one out. Overflow: a request that finds the buffer or the queue of verdicts full, or
    is good and goes beyond the rate of `ECHO_BURST` and `ECHO_PERIOD_BITS`, is dropped, and marked
    on `dropped`.

    Args:
        bus_bits: Width of the packet streams.
        buffer_bytes: Size of the buffer, a power of two.
        ports: Network ports behind the streams; a reply leaves by the one of its request.
        short_steps: As of `EchoCheck`.

    Members:
        i: Echo requests as `Classify` finds them, and nothing else.
        local: The engine's addresses.
        o: Replies.
        replied, bad, dropped: A request that has ended will be answered, is faulty, or found no
            room or goes beyond the rate; none is set for a request that is marked as bad.
        idle: No reply is in flight.
    """

    def __init__(
        self, *, bus_bits: int, buffer_bytes: int, ports: int = 1, short_steps: bool = False
    ) -> None:
        self._bus_bits = bus_bits
        self._short_steps = short_steps
        self._ports = ports
        self._buffer_bytes = buffer_bytes
        beat = PacketBeat(bus_bits, ports)
        super().__init__(
            {
                "i": In(stream.Signature(beat, always_ready=True)),
                "local": In(Local),
                "o": Out(stream.Signature(beat)),
                "replied": Out(1),
                "bad": Out(1),
                "dropped": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.check = check = EchoCheck(
            bus_bits=self._bus_bits, short_steps=self._short_steps
        )
        m.submodules.buffer = buffer = PacketFifo(
            bus_bits=self._bus_bits,
            depth_bytes=self._buffer_bytes,
            lossy=True,
            ports=self._ports,
        )
        held = stream.Signature(PacketBeat(self._bus_bits, self._ports)).create(path=("held",))
        verdict = data.StructLayout({"good": 1, "reply": EchoReplyHeader})
        m.submodules.verdicts = verdicts = Queue(verdict, depth=VERDICTS, always_ready=True)

        m.d.comb += [check.i.payload.eq(self.i.payload), check.i.valid.eq(self.i.valid)]
        in_frame, let_in, lets_in = Signal(), Signal(), Signal()
        m.d.comb += [
            lets_in.eq(Mux(in_frame, let_in, verdicts.level <= VERDICTS - VERDICTS_MARGIN)),
            buffer.i.payload.eq(self.i.payload),
            buffer.i.valid.eq(self.i.valid & lets_in),
            check.local.eq(self.local),
        ]
        with m.If(self.i.valid):
            m.d.sync += [in_frame.eq(~self.i.payload.last), let_in.eq(lets_in)]

        # Whether the buffer has kept a request waits for its verdict.
        kept, lost = Signal(ECHO_CHECK_CYCLES), Signal(ECHO_CHECK_CYCLES)
        turned_away = self.i.valid & ~lets_in & self.i.payload.last & ~self.i.payload.error
        m.d.sync += [
            kept.eq(Cat(buffer.committed, kept)),
            lost.eq(Cat(buffer.overflowed | turned_away, lost)),
        ]
        m.submodules.limit = limit = RateLimit(burst=ECHO_BURST, period_bits=ECHO_PERIOD_BITS)
        m.d.comb += [
            self.replied.eq(kept[-1] & check.good & limit.ready),
            self.bad.eq(kept[-1] & ~check.good),
            # One request ends at a time, and it is either kept or lost.
            self.dropped.eq(lost[-1] | (kept[-1] & check.good & ~limit.ready)),
            limit.take.eq(self.replied),
            verdicts.i.payload.good.eq(check.good & limit.ready),
            verdicts.i.payload.reply.eq(check.reply),
            verdicts.i.valid.eq(kept[-1]),
            self.idle.eq(buffer.idle & ~held.valid & (kept == 0) & (verdicts.level == 0)),
        ]

        # A block RAM's word comes late in its cycle, too late to decide on the verdict's end.
        m.d.comb += buffer.o.ready.eq(~held.valid | held.ready)
        with m.If(buffer.o.ready):
            m.d.sync += [held.valid.eq(buffer.o.valid), held.payload.eq(buffer.o.payload)]

        # A request that is not answered is taken from the buffer at the full rate, and not sent.
        head = verdicts.o.payload
        m.d.comb += [
            self.o.valid.eq(held.valid & verdicts.o.valid & head.good),
            held.ready.eq(verdicts.o.valid & (self.o.ready | ~head.good)),
            verdicts.o.ready.eq(held.valid & held.ready & held.payload.last),
        ]
        self._replace_headers(m, held.payload, head.reply, verdicts.o.ready, held)
        # For proofs.
        self.buffer = buffer
        return m

    def _replace_headers(
        self,
        m: Module,
        request: data.View,
        reply: data.View,
        ends: Signal,
        taken: stream.Interface,
    ) -> None:
        # All other fields stay as they are in the request.
        fields: dict[str, Value] = {
            "ethernet.destination": reply.mac,
            "ethernet.source": self.local.mac,
            "ipv4.identification": Const(0, 16),
            "ipv4.fragment": Const(as_sent(DONT_FRAGMENT, 2), 16),
            "ipv4.time_to_live": Const(TIME_TO_LIVE, 8),
            "ipv4.checksum": reply.ip_checksum,
            "ipv4.source": self.local.address,
            "ipv4.destination": reply.address,
            "icmp.type": Const(ICMP_ECHO_REPLY, 8),
            "icmp.code": Const(0, 8),
            "icmp.checksum": reply.icmp_checksum,
        }
        replaced = {
            octet_of(IcmpFrame, path) + n: value[8 * n : 8 * n + 8]
            for path, value in fields.items()
            for n in range(len(value) // 8)
        }

        size = self._bus_bits // 8
        header_beats = -(-HEADER_BYTES // size)
        index = Signal(range(header_beats + 1))
        with m.If(taken.valid & taken.ready):
            m.d.sync += index.eq(Mux(ends, 0, Mux(index == header_beats, index, index + 1)))
        m.d.comb += self.o.payload.eq(request)
        with m.Switch(index):
            for n in range(header_beats):
                with m.Case(n):
                    for at in range(size):
                        octet = replaced.get(n * size + at)
                        if octet is not None:
                            m.d.comb += self.o.payload.data[8 * at : 8 * at + 8].eq(octet)
