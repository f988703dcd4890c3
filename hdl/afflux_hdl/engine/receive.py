"""Receive stage: buffers whole frames and checks them.

::

    i ──┬─► receive buffer (look-ahead words, blocks) ──────────────► read port of the merge stage
        ├─► header register ─► compare ─┐
        └─► UDP checksum ───────────────┴─► verdict ─► o (FrameSummary), or a drop counter

Beats that enter the buffer get their residues here, from the register whose beats the UDP checksum
sums.

Store-and-forward: a frame is announced on `o` only when its last beat is in and it has passed every
check of `docs/protocol.md` section 5.2 that needs no table. Nothing before that touches a slot.

Proved: `tests/formal/stage_streams.py`. Tested: `tests/sim/test_engine_limits.py`,
`tests/sim/test_engine_random.py`, `tests/sim/test_fuzz.py`.
"""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from afflux_hdl.contract import wire
from afflux_hdl.engine.arriving_forms import is_one_of, is_partial, is_unknown, units_of
from afflux_hdl.engine.layouts import Cause, FrameSummary
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.engine.receive_stages import Stage1, Stage2, Stage3, Stage4, Stage5
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
    its headers has no summary, and all others have two beats or more. Input that does not arrive as
    a frame, the orders of `Control`, needs free cycles on `i`.

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
        self.index_limit = parameters.frame_beats_max + 1
        self.index = Signal(range(self.index_limit + 1))
        self.taken = Signal()
        self.push = Signal()
        self.stage1, self.stage2 = Stage1(parameters), Stage2(parameters)
        self.stage3 = Stage3(parameters)
        self.stage4, self.stage5 = Stage4(self.stage3), Stage5(self.stage3)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = self._parameters
        m.submodules.buffer = buffer = Ram(
            width=p.checked_bits,
            address_bits=p.offset_bits,
            output_register=bool(p.ram_output_register),
        )
        wiring.connect(m, wiring.flipped(self.read), buffer.read)

        m.submodules.summaries = self.summaries = Queue(
            self._summary, depth=SUMMARY_DEPTH, always_ready=True
        )
        wiring.connect(m, self.summaries.o, wiring.flipped(self.o))

        self._number(m)
        self._store(m, buffer)
        self._count_bytes(m)
        self._compare(m)
        self._fold(m, self._sum(m))
        self._judge(m)
        return m

    def _number(self, m: Module) -> None:
        """Put a register behind the pins, and the number of the beat within its frame."""
        then, index, limit = self.stage1, self.index, self.index_limit
        m.d.sync += [
            then.valid.eq(self.i.valid),
            then.beat.eq(self.i.payload),
            then.index.eq(index),
        ]
        with m.If(self.i.valid):
            m.d.sync += index.eq(Mux(self.i.payload.last, 0, Mux(index == limit, index, index + 1)))

    def _store(self, m: Module, buffer: Ram) -> None:
        """Stage 1: store the beat, if its frame finds room; take its part of the header in."""
        p = self._parameters
        now, then = self.stage1, self.stage2
        room = Signal()
        whole = Signal()
        offset = Signal(p.offset_bits)
        start = Signal(p.offset_bits)
        occupied = Signal(p.offset_bits)
        m.d.comb += [
            now.first.eq(now.index == 0),
            occupied.eq(offset - self.release),
            room.eq(
                (occupied < p.buffer_beats - p.payload_beats_max)
                & (self.summaries.level <= SUMMARY_DEPTH - SUMMARY_MARGIN)
            ),
            now.taking.eq(Mux(now.first, room, self.taken)),
            now.whole.eq(now.beat.keep.all() & (now.first | whole)),
            now.sealed.eq((now.beat.keep == (1 << wire.SEAL_BYTES) - 1) & (now.first | whole)),
            buffer.write.address.eq(offset),
            buffer.write.data.eq(Cat(now.beat.data, residues_of(m, now.beat.data))),
            buffer.write.enable.eq(
                now.valid
                & self.taken
                & (now.index >= p.header_beats)
                & (now.index < p.frame_beats_max)
            ),
        ]
        # The checks of the whole header begin as its last beat is taken in.
        next_header = then.next_header
        m.d.comb += next_header.eq(Cat(then.header, now.beat.data)[p.bus_bits :])
        with m.If(now.valid):
            m.d.sync += [self.taken.eq(now.taking), whole.eq(now.whole)]
            with m.If(now.first):
                m.d.sync += start.eq(offset)
            with m.If(buffer.write.enable):
                m.d.sync += offset.eq(offset + 1)
            with m.If(now.index < p.header_beats):
                m.d.sync += [
                    then.header.eq(next_header),
                    then.blocks.eq(tree_sum(list(next_header.afflux.present))),
                    then.units.eq(units_of(next_header.afflux)),
                ]
                ip_words = words_of(next_header.ipv4.as_value())
                for n, ip_sum in enumerate(then.ip_sums):
                    m.d.sync += ip_sum.eq(ip_words[2 * n] + ip_words[2 * n + 1])
        m.d.sync += [
            then.ended.eq(now.valid & now.beat.last),
            then.error.eq(now.beat.error),
            then.taken.eq(now.taking),
            then.whole.eq(now.whole),
            then.sealed.eq(now.sealed),
            then.beats.eq(now.index + 1),
            then.start.eq(Mux(now.first, offset, start)),
            then.end.eq(offset + buffer.write.enable),
        ]
        m.d.comb += [self.arrived.eq(then.ended), self.level.eq(occupied)]
        if p.ports > 1:
            m.d.sync += then.net_ports.eq(now.beat.net_ports)

    def _count_bytes(self, m: Module) -> None:
        """Stage 1 and on: count bytes, in steps of four numbers each."""
        p, now = self._parameters, self.stage1
        counts: list[Value] = list(now.beat.keep & now.valid.replicate(p.bus_bytes))
        while len(counts) > 1:
            sums = [tree_sum(counts[n : n + 4]) for n in range(0, len(counts), 4)]
            counts = [
                Signal.like(value, name=f"bytes_of_{p.bus_bytes // len(sums)}_{n}")
                for n, value in enumerate(sums)
            ]
            m.d.sync += [count.eq(value) for count, value in zip(counts, sums, strict=True)]
        m.d.comb += self.arrived_bytes.eq(counts[0])

    def _compare(self, m: Module) -> None:
        """Stage 2: the outcome of each comparison."""
        p = self._parameters
        now, then = self.stage2, self.stage3
        # The parent port of job j is the engine's own, plus 1, plus j.
        parent_port, to_parent_port = Signal(16), Signal()
        header = now.header
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
        longest = 2 * p.block_beats
        # Longer frames do not fit the buffer, but it has room for partial sums.
        more_blocks = now.blocks > p.lanes if p.lanes < wire.LANES_MAX else 0
        expected_beats = Signal(range(2 * p.header_beats + wire.LANES_MAX * longest + 2))
        m.d.comb += [
            sealed.eq(ipv4.length[8:] == least_ip + wire.SEAL_BYTES),
            expected_beats.eq(2 * p.header_beats + now.units * p.block_beats + sealed),
        ]
        m.d.sync += [
            then.flags.ended.eq(now.ended),
            then.flags.mac_error.eq(now.error),
            then.flags.overflow.eq(~now.taken),
            then.flags.not_ours.eq(
                (now.beats < p.header_beats)
                | ((now.beats == p.header_beats) & ~now.whole)
                | (ethernet.destination != self.local.mac)
                | (ethernet.type != as_sent(ETHERTYPE_IPV4, 2))
                | (ipv4.version != 4)
                | (ipv4.protocol != PROTOCOL_UDP)
                | (ipv4.destination != self.local.address)
                | no_address
            ),
            # Of flags and fragment offset, only don't-fragment may be set.
            then.flags.bad_ip.eq(
                (ipv4.header_words != 5)
                | ~is_of_host(ethernet.source, ipv4.source)
                | ((ipv4.fragment & as_sent(0xFFFF - DONT_FRAGMENT, 2)) != 0)
            ),
            then.flags.other_port.eq((udp.destination != self.local.port) & ~to_parent_port),
            then.flags.from_parent.eq(udp.destination != self.local.port),
            then.flags.bad_version.eq(afflux.version != wire.VERSION),
            # 256 for each block leaves the lower byte of both lengths as it is in an empty packet.
            then.flags.bad_length.eq(
                (now.beats != expected_beats)
                | ~Mux(sealed, now.sealed, now.whole)
                | (ipv4.length[:8] != now.units)
                | ((ipv4.length[8:] != least_ip) & ~sealed)
                | (udp.length[:8] != now.units)
                | (udp.length[8:] != Mux(sealed, least_udp + wire.SEAL_BYTES, least_udp))
                | more_blocks
            ),
            then.flags.bad_type.eq(is_unknown(afflux)),
            then.flags.bad_worker_type.eq(~is_one_of(afflux.type, WORKER_TYPES)),
            then.flags.bad_parent_type.eq(~is_one_of(afflux.type, PARENT_TYPES)),
            then.flags.no_checksum.eq(udp.checksum == 0),
            then.flags.join.eq(afflux.type == wire.Type.JOIN),
            then.flags.holds_room.eq(now.beats > p.header_beats),
            then.ip_sum.eq(tree_sum(now.ip_sums)),
            then.length.eq(udp.length),
            then.summary.header.eq(afflux),
            then.summary.from_parent.eq(udp.destination != self.local.port),
            then.parent_port.eq(parent_port),
            then.summary.source.mac.eq(ethernet.source),
            then.summary.source.address.eq(ipv4.source),
            then.summary.source.port.eq(udp.source),
            then.summary.start.eq(now.start),
            then.summary.end.eq(now.end),
            then.summary.blocks.eq(now.blocks),
        ]

        partial = is_partial(afflux)
        m.d.sync += then.summary.partial.eq(partial)
        # Results of a parent are rounded.
        with m.If(partial):
            m.d.sync += then.flags.bad_parent_type.eq(1)
        if p.ports > 1:
            m.d.sync += then.summary.source.net_ports.eq(now.net_ports)

    def _sum(self, m: Module) -> Signal:
        """Stages 1 to 3: return the sum for the UDP checksum.

        It is the one's complement sum of 16-bit words, pseudo-header included, and may be taken in
        either byte order (RFC 1071, section 2(B)). Addresses, UDP and data are words 13 and on of
        the frame; protocol and length are added at the end.
        """
        p, now = self._parameters, self.stage1
        words = words_of(now.beat.data)
        words_before = (wire.ETHERNET_BYTES + octet_of(Ipv4, "source")) // 2
        masked = []
        for n, word in enumerate(words):
            before = Signal(name=f"before_{n}")
            beats_before = (words_before - n + len(words) - 1) // len(words)
            m.d.comb += before.eq(now.index < beats_before)
            masked.append(Mux(before, 0, word))
        partial2 = [Signal(18, name=f"partial2_{n}") for n in range(max(1, len(words) // 4))]
        for n, partial in enumerate(partial2):
            m.d.sync += partial.eq(tree_sum(masked[4 * n : 4 * n + 4]))
        if p.bus_bytes > wire.SEAL_BYTES:
            # Of the last beat of a frame with a seal, nothing counts but the seal. Any other beat
            # that is not whole is of a frame whose length is wrong.
            with m.If(~now.beat.keep[wire.SEAL_BYTES]):
                m.d.sync += [partial.eq(0) for partial in partial2]
                m.d.sync += partial2[0].eq(words[0] + words[1])
        valid2, first2, valid3, first3 = Signal(), Signal(), Signal(), Signal()
        sum3 = Signal(16 + bits_for(len(words)))
        sum4 = Signal(30)
        m.d.sync += [
            valid2.eq(now.valid),
            first2.eq(now.first),
            valid3.eq(valid2),
            first3.eq(first2),
            sum3.eq(tree_sum(partial2)),
        ]
        with m.If(valid3):
            m.d.sync += sum4.eq(Mux(first3, 0, sum4) + sum3)
        return sum4

    def _fold(self, m: Module, sum4: Signal) -> None:
        """Stages 3 and 4: fold the sums; the outcomes wait for them."""
        p = self._parameters
        now, then, last = self.stage3, self.stage4, self.stage5
        m.d.sync += [
            then.flags.eq(now.flags),
            then.flags.bad_type.eq(
                now.flags.bad_type
                | Mux(now.flags.from_parent, now.flags.bad_parent_type, now.flags.bad_worker_type)
            ),
            then.flags.bad_ip.eq(now.flags.bad_ip | ~_folds_to_ones(now.ip_sum)),
            then.summary.eq(now.summary),
            then.summary.job.eq(
                Mux(now.summary.from_parent, now.parent_port, now.summary.header.job)[: p.job_bits]
            ),
            then.summary.job_built.eq(now.summary.from_parent | (now.summary.header.job < p.jobs)),
            then.length.eq(now.length),
            last.flags.eq(then.flags),
            last.summary.eq(then.summary),
            last.folded.eq(sum4[:16] + sum4[16:] + then.length + as_sent(PROTOCOL_UDP, 2)),
        ]

    def _judge(self, m: Module) -> None:
        """Stage 5: the verdict, in the order of the protocol document."""
        now = self.stage5
        bad_checksum = Signal()
        pending = Signal()
        m.d.comb += bad_checksum.eq(~now.flags.no_checksum & ~_folds_to_ones(now.folded))
        good = Signal()
        refuse = Signal()
        summary6 = Signal(self._summary)
        judged, cause = Signal(), Signal(Cause)
        m.d.comb += judged.eq(now.flags.ended)
        with m.If(now.flags.overflow):
            m.d.comb += cause.eq(Cause.RECEIVE_OVERFLOW)
        with m.Elif(now.flags.mac_error):
            m.d.comb += cause.eq(Cause.MAC_ERROR)
        with m.Elif(now.flags.not_ours):
            m.d.comb += cause.eq(Cause.NOT_OURS)
        with m.Elif(now.flags.bad_ip):
            m.d.comb += cause.eq(Cause.BAD_IP)
        with m.Elif(now.flags.other_port):
            m.d.comb += cause.eq(Cause.NOT_OURS)
        with m.Elif(now.flags.bad_length):
            m.d.comb += cause.eq(Cause.BAD_LENGTH)
        with m.Elif(bad_checksum):
            m.d.comb += cause.eq(Cause.BAD_CHECKSUM)
        with m.Elif(now.flags.bad_version):
            m.d.comb += [cause.eq(Cause.BAD_VERSION), refuse.eq(now.flags.join)]
        with m.Elif(now.flags.bad_type):
            m.d.comb += cause.eq(Cause.BAD_TYPE)
        with m.Else():
            m.d.comb += [good.eq(1), judged.eq(0)]
        m.d.sync += [
            self.judged.eq(judged),
            self.cause.eq(cause),
            # A frame that is answered has a JOIN's length, so it holds room too.
            self.push.eq(now.flags.ended & ~now.flags.overflow & now.flags.holds_room),
            summary6.eq(now.summary),
            summary6.good.eq(good),
            summary6.refused_version.eq(refuse),
            summary6.checksum.eq(~now.flags.no_checksum),
        ]
        m.d.comb += [
            self.summaries.i.payload.eq(summary6),
            self.summaries.i.valid.eq(self.push),
            pending.eq(
                self.stage1.valid
                | self.stage2.ended
                | self.stage3.flags.ended
                | self.stage4.flags.ended
                | now.flags.ended
                | self.push
                | self.judged
            ),
            self.idle.eq(
                ~pending & (self.index == 0) & ~self.o.valid & (self.summaries.level == 0)
            ),
        ]
