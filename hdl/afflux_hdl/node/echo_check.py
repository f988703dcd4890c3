"""Echo check: verifies an ICMP echo request and computes its reply's checksums.

Proved: `tests/formal/node_streams.py` (with `echo.py`). Tested: `tests/hdl/test_node_parts.py`,
`tests/sim/test_cocotb_node.py`.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.contract import wire
from afflux_hdl.lib.frame_header import FrameHeader
from afflux_hdl.lib.octets import reversed_octets
from afflux_hdl.lib.ones_complement import fold, tree_sum, words_of
from afflux_hdl.lib.packet_stream import (
    DONT_FRAGMENT,
    ICMP_ECHO_REQUEST,
    PROTOCOL_ICMP,
    TIME_TO_LIVE,
    IcmpFrame,
    Local,
    PacketBeat,
    as_sent,
    octet_of,
)
from afflux_hdl.node.classify import ECHO_FRAME_MAX

__all__ = ["ECHO_CHECK_CYCLES", "EchoCheck", "EchoReplyHeader"]

ECHO_CHECK_CYCLES = 6
"""Cycles from a request's last beat to its verdict."""

ICMP_OFFSET = octet_of(IcmpFrame, "icmp")

EchoReplyHeader = data.StructLayout(
    {"mac": 48, "address": 32, "service": 8, "length": 16, "ip_checksum": 16, "icmp_checksum": 16}
)
"""The fields of a reply's headers that are taken from the request, or computed from it; as on the
wire.

Members:
    mac, address: The requester's.
    service: Type of service, as in the request (RFC 1122, section 3.2.2.6).
    length: IPv4 total length.
    ip_checksum, icmp_checksum: The reply's.
"""


class EchoCheck(wiring.Component):
    """Verifies echo requests.

    A request is good if its IPv4 header checksum and its ICMP checksum are right (RFC 1071), all
    bytes of its IPv4 total length are there, and the frame is not longer than `ECHO_FRAME_MAX`.
    Bytes behind the total length are padding and are not summed.

    The reply's ICMP checksum is the request's plus the word that changes from 0x0800 to 0
    (RFC 1141). Where it would be 0 it is 0xFFFF, which is right even if everything else is 0; there
    the formula of RFC 1624 is wrong. The reply's IPv4 header is a new one: the request's type of
    service, identification 0, don't-fragment (RFC 6864, section 4.1), time to live 64.

    Latency: `ECHO_CHECK_CYCLES` from a frame's last beat to `judged`. Throughput: one beat in
    each cycle, also of frames that are a single beat each. No back-pressure.

    Args:
        bus_bits: Width of the packet stream.
        short_steps: For a fast clock: the longest sums and comparisons take two of the stages, some
            of which have little to do. Nothing comes later, or is another.

    Members:
        i: Echo requests without options, their total length at least 28.
        local: The engine's addresses.
        judged: A request's verdict falls in this cycle.
        good: With `judged`: the request is good.
        reply: With `judged`: what its reply needs.
    """

    def __init__(self, *, bus_bits: int, short_steps: bool = False) -> None:
        self._bus_bits = bus_bits
        self._short_steps = short_steps
        # Bits of the sums of 10 words in stages 2 to 5: folded in 3 and 4, or in 4 and 5.
        self._sum_bits = (20, 20, 17, 16) if short_steps else (20, 17, 16, 16)
        super().__init__(
            {
                "i": In(stream.Signature(PacketBeat(bus_bits), always_ready=True)),
                "local": In(Local),
                "judged": Out(1),
                "good": Out(1),
                "reply": Out(EchoReplyHeader),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        ended5, icmp_good5 = self._icmp(m)
        ip_good5, reply5 = self._headers(m)
        m.d.sync += [
            self.judged.eq(ended5),
            self.good.eq(icmp_good5 & ip_good5),
            self.reply.eq(reply5),
        ]
        return m

    def _icmp(self, m: Module) -> tuple[Signal, Signal]:
        """Sum the ICMP message. Return `ended` and `good`, 5 cycles after the last beat."""
        size = self._bus_bits // 8
        beat = self.i.payload
        beats_max = -(-ECHO_FRAME_MAX // size)

        # Stage 1: where the message ends, relative to this beat.
        index = Signal(range(beats_max + 1))
        length, held_length = Signal(16), Signal(16)
        length_index, length_octet = divmod(octet_of(IcmpFrame, "ipv4.length"), size)
        length_here = reversed_octets(beat.data[8 * length_octet :][:16])
        m.d.comb += length.eq(Mux(index == length_index, length_here, held_length))
        offset = Signal(range((beats_max + 1) * size))
        left = (length + wire.ETHERNET_BYTES).as_signed() - offset
        valid1, first1, too_long1 = Signal(), Signal(), Signal()
        beat1, left1, index1 = Signal(beat.shape()), Signal.like(left), Signal.like(index)
        m.d.sync += [
            valid1.eq(self.i.valid),
            first1.eq(index == 0),
            too_long1.eq(
                (index == beats_max)
                | ((index == beats_max - 1) & beat.keep[(ECHO_FRAME_MAX - 1) % size + 1 :].any())
            ),
            beat1.eq(beat),
            left1.eq(left),
            index1.eq(index),
        ]
        with m.If(self.i.valid):
            m.d.sync += held_length.eq(length)
            with m.If(beat.last):
                m.d.sync += [index.eq(0), offset.eq(0)]
            with m.Elif(index != beats_max):
                m.d.sync += [index.eq(index + 1), offset.eq(offset + size)]

        # Stage 2: the words of the message in this beat, the others as 0.
        ended2, whole2, valid2, first2 = Signal(), Signal(), Signal(), Signal()
        inside = Signal(size)
        if self._short_steps:
            low = size.bit_length() - 1
            over, beyond = left1[-1], left1[low:-1].any()
            m.d.comb += inside.eq(Cat(~over & (beyond | (left1[:low] > n)) for n in range(size)))
        else:
            m.d.comb += inside.eq(Cat(left1 > n for n in range(size)))
        from_icmp = Signal(size)
        with m.Switch(index1):
            for n in range(-(-ICMP_OFFSET // size)):
                with m.Case(n):
                    skipped = min(size, ICMP_OFFSET - n * size)
                    m.d.comb += from_icmp.eq((1 << size) - (1 << skipped))
            with m.Default():
                m.d.comb += from_icmp.eq(-1)
        masked2 = Signal(self._bus_bits)
        m.d.sync += [
            masked2.eq(
                Cat(
                    Mux(inside[n] & from_icmp[n], beat1.data[8 * n : 8 * n + 8], 0)
                    for n in range(size)
                )
            ),
            valid2.eq(valid1),
            first2.eq(first1),
            ended2.eq(valid1 & beat1.last),
            whole2.eq((left1 <= size) & ((inside & ~beat1.keep) == 0) & ~too_long1),
        ]

        # Stages 3 and 4: their sum, in two steps. Stage 5: the sum of the whole message.
        words = words_of(masked2)
        partial3 = [Signal(18, name=f"partial3_{n}") for n in range(max(1, len(words) // 4))]
        for n, partial in enumerate(partial3):
            m.d.sync += partial.eq(tree_sum(words[4 * n : 4 * n + 4]))
        if self._short_steps:
            # The many bytes that may be missing in two steps.
            missing2, in_length2 = Signal(-(-size // 8)), Signal()
            missing1 = inside & ~beat1.keep
            m.d.sync += [
                missing2.eq(Cat(missing1[n : n + 8].any() for n in range(0, size, 8))),
                in_length2.eq((left1 <= size) & ~too_long1),
            ]
            whole2 = in_length2 & ~missing2.any()
        valid3, first3, ended3, whole3 = Signal(), Signal(), Signal(), Signal()
        sum4, total4, before4 = Signal(21), Signal(28), Signal(28)
        ended4, whole4, valid4, first4 = Signal(), Signal(), Signal(), Signal()
        m.d.sync += [
            *(valid3.eq(valid2), first3.eq(first2), ended3.eq(ended2), whole3.eq(whole2)),
            *(valid4.eq(valid3), first4.eq(first3), ended4.eq(ended3), whole4.eq(whole3)),
            sum4.eq(tree_sum(partial3)),
        ]
        m.d.comb += total4.eq(Mux(first4, 0, before4) + sum4)
        with m.If(valid4):
            m.d.sync += before4.eq(total4)
        ended5, whole5, folded5 = Signal(), Signal(), Signal(17)
        m.d.sync += [ended5.eq(ended4), whole5.eq(whole4), folded5.eq(fold(total4))]
        good5 = Signal()
        m.d.comb += good5.eq(whole5 & (fold(folded5)[:16] == 0xFFFF))
        return ended5, good5

    def _headers(self, m: Module) -> tuple[Signal, data.View]:
        """Sum the IPv4 headers. Return whether the request's is right, and the reply's fields.

        They are in step with the message: of the frame that ended 5 cycles ago.
        """
        m.submodules.header = header = FrameHeader(bus_bits=self._bus_bits, shape=IcmpFrame)
        wiring.connect(m, wiring.flipped(self.i), header.i)
        # Stage 1 ends with the frame header's register, which stays the same from the header's last
        # beat until the next frame's.
        ethernet, ipv4, icmp = (header.header[name] for name in ("ethernet", "ipv4", "icmp"))
        reply2, reply3, reply4, reply5 = (
            Signal(EchoReplyHeader, name=f"reply{n}") for n in range(2, 6)
        )
        request2, request3, request4, request5 = (
            Signal(width, name=f"request_sum{n}")
            for n, width in zip(range(2, 6), self._sum_bits, strict=True)
        )
        answer2, answer3 = Signal(20), Signal(self._sum_bits[1])
        icmp2, icmp3 = Signal(17), Signal(16)
        local = words_of(self.local.address)
        request = words_of(ipv4.as_value())
        version_and_service, source = request[0], words_of(ipv4.source)
        answer = [
            *(version_and_service, ipv4.length, *local, *source),
            Const(as_sent(DONT_FRAGMENT, 2), 16),
            Const(as_sent(TIME_TO_LIVE << 8 | PROTOCOL_ICMP, 2), 16),
        ]
        m.d.sync += [
            request2.eq(tree_sum(request)),
            answer2.eq(tree_sum(answer)),
            # HC' = HC + (m - m'), here with the first octet in the low bits.
            icmp2.eq(icmp.checksum + Const(as_sent(ICMP_ECHO_REQUEST << 8, 2), 16)),
            reply2.mac.eq(ethernet.source),
            reply2.address.eq(ipv4.source),
            reply2.service.eq(ipv4.service),
            reply2.length.eq(ipv4.length),
            # One fold.
            request3.eq(fold(request2)),
            answer3.eq(fold(answer2)),
            icmp3.eq(fold(icmp2)),
            reply3.eq(reply2),
            # The second, and the complement.
            request4.eq(fold(request3)),
            reply4.eq(reply3),
            reply4.ip_checksum.eq(~fold(answer3)),
            reply4.icmp_checksum.eq(icmp3),
            request5.eq(request4),
            reply5.eq(reply4),
        ]
        if self._short_steps:
            # In steps of four words; a rest without a stage of its own takes the last one.
            for terms, total3 in ((request, request3), (answer, answer3)):
                parts2 = [Signal(18, name=f"{total3.name}_of_{n}") for n in range(0, len(terms), 4)]
                m.d.sync += [
                    *(part.eq(tree_sum(terms[4 * n : 4 * n + 4])) for n, part in enumerate(parts2)),
                    total3.eq(tree_sum(parts2)),
                ]
            answer4 = Signal(17)
            m.d.sync += [
                request4.eq(fold(request3)),
                request5.eq(fold(request4)),
                answer4.eq(fold(answer3)),
                reply5.ip_checksum.eq(~fold(answer4)),
            ]
        ip_good5 = Signal()
        m.d.comb += ip_good5.eq(request5 == 0xFFFF)
        return ip_good5, reply5
