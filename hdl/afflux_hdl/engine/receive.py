"""Receive stage: buffers whole frames and checks them.

::

    i ──┬─► receive buffer (look-ahead words, blocks) ──────────────► read port of the merge stage
        ├─► header register ─► compare ─┐
        └─► UDP checksum ───────────────┴─► verdict ─► o (FrameSummary), or a drop counter

What enters the buffer gets its residues here, from the register whose beats the UDP checksum sums.

Store-and-forward: a frame is announced on `o` only when its last beat is in and it has passed every
check of `docs/protocol.md` section 5.2 that needs no table. Nothing before that touches a slot.

Proved: `tests/formal/stage_streams.py`. Tested: `tests/sim/test_engine_limits.py`,
`tests/sim/test_engine_random.py`, `tests/sim/test_fuzz.py`.
"""

from collections.abc import Sequence

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from afflux_hdl.contract import wire
from afflux_hdl.engine.layouts import AffluxFrame, Cause, FrameSummary
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.lib.memory_ports import ReadPort
from afflux_hdl.lib.octets import reversed_octets
from afflux_hdl.lib.ones_complement import tree_sum, words_of
from afflux_hdl.lib.packet_stream import (
    DONT_FRAGMENT,
    ETHERTYPE_IPV4,
    PROTOCOL_UDP,
    Ipv4,
    Local,
    PacketBeat,
    as_sent,
    is_of_host,
    octet_of,
)
from afflux_hdl.lib.queue import Queue
from afflux_hdl.lib.ram import Ram
from afflux_hdl.lib.residue import residues_of

__all__ = ["Receive"]

SUMMARY_DEPTH = 64
"""Frames between receive and admit: two-beat frames that arrive while a largest one is merged."""

SUMMARY_MARGIN = 16
"""Frames that may be in flight to that queue when a new one is let in."""

WORKER_TYPES = (wire.Type.DATA, wire.Type.PROBE, wire.Type.JOIN, wire.Type.CONFLICT)
PARENT_TYPES = (wire.Type.RESULT, wire.Type.CONFLICT, wire.Type.JOINED)


def _is_one_of(value: Value, choices: Sequence[int]) -> Value:
    return Cat(value == choice for choice in choices).any()


def _folds_to_ones(total: Value) -> Value:
    """Return whether the one's complement sum of the 16-bit parts of `total` is 0xFFFF.

    `total` is less than 2**20, so its upper part h is at most 15. Then the sum is 0xFFFF only if
    the lower part l is 0xFFFF - h: with a carry, l + h + 1 mod 2**16 is at most 15. So nothing has
    to be added.
    """
    upper = total[16:]
    return total[len(upper) : 16].all() & (total[: len(upper)] == ~upper)


class Receive(wiring.Component):
    """Buffers and checks frames.

    Latency: 8 cycles from a frame's last beat to its summary. Throughput: one beat in each cycle,
    always; `i` has no back-pressure. Overflow: a frame that finds less space than the largest
    frame needs is dropped whole and counted as `receive_overflow`. This does not happen while admit
    and merge keep pace: a frame takes them no longer than it takes to arrive, as one that ends with
    its headers has no summary, and all others have two beats or more. What does not arrive as a
    frame, the orders of `Control`, needs free cycles on `i`.

    Members:
        i: Frames from the MAC, without frame check sequence.
        local: The engine's addresses.
        o: Summaries of frames that occupy the buffer, two cycles apart or more.
        read: The receive buffer; with `ram_output_register` data follow two cycles after their
            address.
        release: Offset up to which the buffer is no longer needed.
        arrived: A frame ended in this cycle's beat.
        arrived_bytes: Bytes of this cycle's beat.
        level: Beats in the buffer.
        judged: A frame fails a check in this cycle.
        cause: With `judged`: the counter that it increments.
        idle: No frame is in flight.
    """

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._summary = FrameSummary(parameters)
        offset = parameters.offset_bits
        super().__init__(
            {
                "i": In(
                    stream.Signature(
                        PacketBeat(parameters.bus_bits, parameters.ports), always_ready=True
                    )
                ),
                "local": In(Local),
                "o": Out(stream.Signature(self._summary)),
                "read": In(ReadPort(offset, parameters.checked_bits)),
                "release": In(offset),
                "arrived": Out(1),
                "arrived_bytes": Out(bits_for(parameters.bus_bytes)),
                "level": Out(offset),
                "judged": Out(1),
                "cause": Out(Cause),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = self._parameters
        header_beats = p.header_beats
        index_limit = p.frame_beats_max + 1

        m.submodules.buffer = buffer = Ram(
            width=p.checked_bits,
            address_bits=p.offset_bits,
            output_register=bool(p.ram_output_register),
        )
        wiring.connect(m, wiring.flipped(self.read), buffer.read)

        m.submodules.summaries = summaries = Queue(
            self._summary, depth=SUMMARY_DEPTH, always_ready=True
        )
        wiring.connect(m, summaries.o, wiring.flipped(self.o))

        # Stage 1: one register behind the pins, and the number of the beat within its frame.
        valid1 = Signal()
        beat1 = Signal(PacketBeat(p.bus_bits, p.ports))
        index = Signal(range(index_limit + 1))
        index1 = Signal.like(index)
        m.d.sync += [valid1.eq(self.i.valid), beat1.eq(self.i.payload), index1.eq(index)]
        with m.If(self.i.valid):
            m.d.sync += index.eq(
                Mux(self.i.payload.last, 0, Mux(index == index_limit, index, index + 1))
            )

        first1 = Signal()
        room = Signal()
        taken = Signal()
        taking = Signal()
        whole = Signal()
        whole_now = Signal()
        sealed_now = Signal()
        offset = Signal(p.offset_bits)
        start = Signal(p.offset_bits)
        occupied = Signal(p.offset_bits)
        m.d.comb += [
            first1.eq(index1 == 0),
            occupied.eq(offset - self.release),
            room.eq(
                (occupied < p.buffer_beats - p.payload_beats_max)
                & (summaries.level <= SUMMARY_DEPTH - SUMMARY_MARGIN)
            ),
            taking.eq(Mux(first1, room, taken)),
            whole_now.eq(beat1.keep.all() & (first1 | whole)),
            sealed_now.eq((beat1.keep == (1 << wire.SEAL_BYTES) - 1) & (first1 | whole)),
            buffer.write.address.eq(offset),
            buffer.write.data.eq(Cat(beat1.data, residues_of(m, beat1.data))),
            buffer.write.enable.eq(
                valid1 & taken & (index1 >= header_beats) & (index1 < p.frame_beats_max)
            ),
        ]
        # The checks of the whole header begin as its last beat is taken in.
        header, next_header = Signal(AffluxFrame), Signal(AffluxFrame)
        blocks = Signal(5)
        ip_sums = [Signal(17, name=f"ip_sum_{n}") for n in range(wire.IPV4_BYTES // 4)]
        m.d.comb += next_header.eq(Cat(header, beat1.data)[p.bus_bits :])
        with m.If(valid1):
            m.d.sync += [taken.eq(taking), whole.eq(whole_now)]
            with m.If(first1):
                m.d.sync += start.eq(offset)
            with m.If(buffer.write.enable):
                m.d.sync += offset.eq(offset + 1)
            with m.If(index1 < header_beats):
                m.d.sync += [
                    header.eq(next_header),
                    blocks.eq(tree_sum(list(next_header.afflux.present))),
                ]
                ip_words = words_of(next_header.ipv4.as_value())
                for n, ip_sum in enumerate(ip_sums):
                    m.d.sync += ip_sum.eq(ip_words[2 * n] + ip_words[2 * n + 1])

        # Stage 2: the frame is in; its header stays in the register until the next frame's first
        # beat.
        ended2 = Signal()
        error2 = Signal()
        taken2 = Signal()
        whole2, sealed2 = Signal(), Signal()
        end2 = Signal(p.offset_bits)
        start2 = Signal(p.offset_bits)
        beats2 = Signal(range(index_limit + 2))
        m.d.sync += [
            ended2.eq(valid1 & beat1.last),
            error2.eq(beat1.error),
            taken2.eq(taking),
            whole2.eq(whole_now),
            sealed2.eq(sealed_now),
            beats2.eq(index1 + 1),
            start2.eq(Mux(first1, offset, start)),
            end2.eq(offset + buffer.write.enable),
        ]
        m.d.comb += [self.arrived.eq(ended2), self.level.eq(occupied)]
        net_ports2 = Signal(p.ports)
        if p.ports > 1:
            m.d.sync += net_ports2.eq(beat1.net_ports)

        # Bytes, in steps of four numbers each.
        counts: list[Value] = list(beat1.keep & valid1.replicate(p.bus_bytes))
        while len(counts) > 1:
            sums = [tree_sum(counts[n : n + 4]) for n in range(0, len(counts), 4)]
            counts = [
                Signal.like(value, name=f"bytes_of_{p.bus_bytes // len(sums)}_{n}")
                for n, value in enumerate(sums)
            ]
            m.d.sync += [count.eq(value) for count, value in zip(counts, sums, strict=True)]
        m.d.comb += self.arrived_bytes.eq(counts[0])

        # Stage 3: the outcome of each comparison.
        flags3 = Signal(
            data.StructLayout(
                {
                    "ended": 1,
                    "mac_error": 1,
                    "overflow": 1,
                    "not_ours": 1,
                    "bad_ip": 1,
                    "other_port": 1,
                    "from_parent": 1,
                    "bad_version": 1,
                    "bad_length": 1,
                    "bad_type": 1,
                    "bad_worker_type": 1,
                    "bad_parent_type": 1,
                    "no_checksum": 1,
                    "join": 1,
                    "holds_room": 1,
                }
            )
        )
        summary3 = Signal(self._summary)
        ip_sum3 = Signal(20)
        length3 = Signal(16)
        # The parent port of job j is the engine's own, plus 1, plus j.
        parent_port, to_parent_port = Signal(16), Signal()
        parent_port3 = Signal(16)
        ethernet, ipv4, udp, afflux = header.ethernet, header.ipv4, header.udp, header.afflux
        own_port = reversed_octets(self.local.port)
        # No frame is for an engine that has not been given an address.
        no_address = Signal()
        m.d.sync += no_address.eq(self.local.address == 0)
        m.d.comb += [
            parent_port.eq(reversed_octets(udp.destination) + ~own_port),
            to_parent_port.eq(parent_port < p.jobs),
        ]
        # With a seal, both lengths are 4 more, and the frame has one beat more.
        sealed = Signal()
        least_ip = wire.UDP_PAYLOAD_MIN + wire.UDP_BYTES + wire.IPV4_BYTES
        least_udp = wire.UDP_PAYLOAD_MIN + wire.UDP_BYTES
        expected_beats = Signal(range(2 * header_beats + wire.LANES_MAX * p.block_beats + 2))
        m.d.comb += [
            sealed.eq(ipv4.length[8:] == least_ip + wire.SEAL_BYTES),
            expected_beats.eq(2 * header_beats + blocks * p.block_beats + sealed),
        ]
        m.d.sync += [
            flags3.ended.eq(ended2),
            flags3.mac_error.eq(error2),
            flags3.overflow.eq(~taken2),
            flags3.not_ours.eq(
                (beats2 < header_beats)
                | ((beats2 == header_beats) & ~whole2)
                | (ethernet.destination != self.local.mac)
                | (ethernet.type != as_sent(ETHERTYPE_IPV4, 2))
                | (ipv4.version != 4)
                | (ipv4.protocol != PROTOCOL_UDP)
                | (ipv4.destination != self.local.address)
                | no_address
            ),
            # Of flags and fragment offset, only don't-fragment may be set.
            flags3.bad_ip.eq(
                (ipv4.header_words != 5)
                | ~is_of_host(ethernet.source, ipv4.source)
                | ((ipv4.fragment & as_sent(0xFFFF - DONT_FRAGMENT, 2)) != 0)
            ),
            flags3.other_port.eq((udp.destination != self.local.port) & ~to_parent_port),
            flags3.from_parent.eq(udp.destination != self.local.port),
            flags3.bad_version.eq(afflux.version != wire.VERSION),
            # 256 for each block leaves the lower byte of both lengths as it is in an empty packet.
            flags3.bad_length.eq(
                (beats2 != expected_beats)
                | ~Mux(sealed, sealed2, whole2)
                | (ipv4.length[:8] != blocks)
                | ((ipv4.length[8:] != least_ip) & ~sealed)
                | (udp.length[:8] != blocks)
                | (udp.length[8:] != Mux(sealed, least_udp + wire.SEAL_BYTES, least_udp))
            ),
            flags3.bad_type.eq(afflux.opcode > wire.Opcode.UMIN),
            flags3.bad_worker_type.eq(~_is_one_of(afflux.type, WORKER_TYPES)),
            flags3.bad_parent_type.eq(~_is_one_of(afflux.type, PARENT_TYPES)),
            flags3.no_checksum.eq(udp.checksum == 0),
            flags3.join.eq(afflux.type == wire.Type.JOIN),
            flags3.holds_room.eq(beats2 > header_beats),
            ip_sum3.eq(tree_sum(ip_sums)),
            length3.eq(udp.length),
            summary3.header.eq(afflux),
            summary3.from_parent.eq(udp.destination != self.local.port),
            parent_port3.eq(parent_port),
            summary3.source.mac.eq(ethernet.source),
            summary3.source.address.eq(ipv4.source),
            summary3.source.port.eq(udp.source),
            summary3.start.eq(start2),
            summary3.end.eq(end2),
            summary3.blocks.eq(blocks),
        ]

        if p.ports > 1:
            m.d.sync += summary3.source.net_ports.eq(net_ports2)

        # UDP checksum: one's complement sum of 16-bit words, pseudo-header included. The sum may be
        # taken in either byte order (RFC 1071, section 2(B)). Addresses, UDP and data are words
        # 13 and on of the frame; protocol and length are added at the end.
        words = words_of(beat1.data)
        words_before = (wire.ETHERNET_BYTES + octet_of(Ipv4, "source")) // 2
        masked = []
        for n, word in enumerate(words):
            before = Signal(name=f"before_{n}")
            beats_before = (words_before - n + len(words) - 1) // len(words)
            m.d.comb += before.eq(index1 < beats_before)
            masked.append(Mux(before, 0, word))
        partial2 = [Signal(18, name=f"partial2_{n}") for n in range(max(1, len(words) // 4))]
        for n, partial in enumerate(partial2):
            m.d.sync += partial.eq(tree_sum(masked[4 * n : 4 * n + 4]))
        if p.bus_bytes > wire.SEAL_BYTES:
            # Of the last beat of a frame with a seal, nothing counts but the seal. Any other beat
            # that is not whole is of a frame whose length is wrong.
            with m.If(~beat1.keep[wire.SEAL_BYTES]):
                m.d.sync += [partial.eq(0) for partial in partial2]
                m.d.sync += partial2[0].eq(words[0] + words[1])
        valid2, first2, valid3, first3 = Signal(), Signal(), Signal(), Signal()
        sum3 = Signal(16 + bits_for(len(words)))
        sum4 = Signal(30)
        m.d.sync += [
            valid2.eq(valid1),
            first2.eq(first1),
            valid3.eq(valid2),
            first3.eq(first2),
            sum3.eq(tree_sum(partial2)),
        ]
        with m.If(valid3):
            m.d.sync += sum4.eq(Mux(first3, 0, sum4) + sum3)

        # Stages 4 and 5: fold the sums; the outcomes wait for them.
        flags4, flags5 = Signal.like(flags3), Signal.like(flags3)
        summary4, summary5 = Signal.like(summary3), Signal.like(summary3)
        length4 = Signal(16)
        folded5 = Signal(18)
        m.d.sync += [
            flags4.eq(flags3),
            flags4.bad_type.eq(
                flags3.bad_type
                | Mux(flags3.from_parent, flags3.bad_parent_type, flags3.bad_worker_type)
            ),
            flags4.bad_ip.eq(flags3.bad_ip | ~_folds_to_ones(ip_sum3)),
            summary4.eq(summary3),
            summary4.job.eq(
                Mux(summary3.from_parent, parent_port3, summary3.header.job)[: p.job_bits]
            ),
            summary4.job_built.eq(summary3.from_parent | (summary3.header.job < p.jobs)),
            length4.eq(length3),
            flags5.eq(flags4),
            summary5.eq(summary4),
            folded5.eq(sum4[:16] + sum4[16:] + length4 + as_sent(PROTOCOL_UDP, 2)),
        ]

        # Stage 6: the verdict, in the order of the protocol document.
        bad_checksum = Signal()
        pending = Signal()
        m.d.comb += bad_checksum.eq(~flags5.no_checksum & ~_folds_to_ones(folded5))
        good = Signal()
        refuse = Signal()
        push = Signal()
        summary6 = Signal(self._summary)
        judged, cause = Signal(), Signal(Cause)
        m.d.comb += judged.eq(flags5.ended)
        with m.If(flags5.overflow):
            m.d.comb += cause.eq(Cause.RECEIVE_OVERFLOW)
        with m.Elif(flags5.mac_error):
            m.d.comb += cause.eq(Cause.MAC_ERROR)
        with m.Elif(flags5.not_ours):
            m.d.comb += cause.eq(Cause.NOT_OURS)
        with m.Elif(flags5.bad_ip):
            m.d.comb += cause.eq(Cause.BAD_IP)
        with m.Elif(flags5.other_port):
            m.d.comb += cause.eq(Cause.NOT_OURS)
        with m.Elif(flags5.bad_length):
            m.d.comb += cause.eq(Cause.BAD_LENGTH)
        with m.Elif(bad_checksum):
            m.d.comb += cause.eq(Cause.BAD_CHECKSUM)
        with m.Elif(flags5.bad_version):
            m.d.comb += [cause.eq(Cause.BAD_VERSION), refuse.eq(flags5.join)]
        with m.Elif(flags5.bad_type):
            m.d.comb += cause.eq(Cause.BAD_TYPE)
        with m.Else():
            m.d.comb += [good.eq(1), judged.eq(0)]
        m.d.sync += [
            self.judged.eq(judged),
            self.cause.eq(cause),
            # A frame that is answered has a JOIN's length, so it holds room too.
            push.eq(flags5.ended & ~flags5.overflow & flags5.holds_room),
            summary6.eq(summary5),
            summary6.good.eq(good),
            summary6.refused_version.eq(refuse),
            summary6.checksum.eq(~flags5.no_checksum),
        ]
        m.d.comb += [
            summaries.i.payload.eq(summary6),
            summaries.i.valid.eq(push),
            pending.eq(
                valid1 | ended2 | flags3.ended | flags4.ended | flags5.ended | push | self.judged
            ),
            self.idle.eq(~pending & (index == 0) & ~self.o.valid & (summaries.level == 0)),
        ]
        return m
