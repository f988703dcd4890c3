"""Transmit stage: composes frames from orders and the slot memory, at line rate.

Proved: `tests/formal/sending.py`. Tested: `tests/hdl/test_latency.py`,
`tests/sim/test_cocotb_engine.py`, `tests/sim/test_rate_bugs.py`.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from afflux_hdl.contract import wire
from afflux_hdl.engine.block_notes import note_port
from afflux_hdl.engine.lane_walk import LaneWalk
from afflux_hdl.engine.layouts import AffluxFrame
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.engine.replicate import FrameOrder
from afflux_hdl.engine.seal import DEPTH, MARGIN, FrameBeat, Seal
from afflux_hdl.engine.slot_words import ROUND_CYCLES, SendWord, delayed
from afflux_hdl.lib.memory_ports import ReadPort
from afflux_hdl.lib.mux_tree import select
from afflux_hdl.lib.packet_stream import (
    DONT_FRAGMENT,
    ETHERTYPE_IPV4,
    IPV4_WITHOUT_OPTIONS,
    PROTOCOL_UDP,
    TIME_TO_LIVE,
    Local,
    PacketBeat,
    as_sent,
)
from afflux_hdl.numbers.formats import Fixed

__all__ = ["Transmit"]


class Transmit(wiring.Component):
    """Sends frames.

    Latency: 12 cycles from an order to the first beat on `o`: in five of them blocks are rounded,
    and all beats wait for that. One more with the slot memory's output register, and one more if it
    comes at the wrong phase. Throughput: one beat in each cycle while
    `o.ready` holds, the seal of each frame included; back-pressure stops what is before the seal in
    steps of two beats, so that each beat is read at its bank's phase. While `discard` holds it
    takes orders at that rate too, whatever `o.ready` is, and discards their frames.

    A frame is discarded whole, unless some of its beats are before the network when `discard`
    rises: its rest is replaced by one beat with `last` and `error`, so that the MAC spoils it.
    Beats before the network already (up to `seal.DEPTH`) stay, because a beat that has been offered
    may not change; they leave when the network takes them.

    Members:
        phase: Alternates from cycle to cycle; frames start when it is 1.
        local: The engine's addresses.
        i: Frame orders.
        read_block, read_words: Slot memory.
        read_note: Block notes.
        o: Frames for the MAC, without frame check sequence; `keep` is all ones, except in the
            seal that ends a frame. `error`, with `last`, marks a frame whose rest is missing.
        discard: Nobody takes frames, or nobody is to get them.
        cut: In the first cycle after a reset: the reset has cut a frame off, which is to be ended.
        departed: A whole frame's last beat leaves in this cycle.
        departed_bytes: Bytes that leave in this cycle.
        done, done_job: In this cycle an order of this job has addressed the last word that it reads
            in the slot memory.
        discarded: A frame of which not all will leave has been composed.
        mismatch: A frame is spoiled, because a word did not fit its residue.
        idle: Nothing is in flight.
    """

    def __init__(self, parameters: Parameters) -> None:
        p = parameters
        self._parameters = p
        super().__init__(
            {
                "phase": In(1),
                "local": In(Local),
                "i": In(stream.Signature(FrameOrder(p))),
                "read_block": Out(ReadPort(p.block_address_bits, p.slot_beat_bits)),
                "read_words": Out(ReadPort(p.words_address_bits, p.checked_bits)),
                "read_note": Out(ReadPort(*note_port(p))),
                "o": Out(stream.Signature(PacketBeat(p.bus_bits, p.ports))),
                "discard": In(1),
                "cut": In(1),
                "departed": Out(1),
                "departed_bytes": Out(bits_for(p.bus_bytes)),
                "done": Out(1),
                "done_job": Out(p.job_bits),
                "discarded": Out(1),
                "mismatch": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = self._parameters
        header_beats = p.header_beats

        m.submodules.seal = seal = Seal(p)
        wiring.connect(m, seal.o, wiring.flipped(self.o))
        # The beat that ends a frame which is cut off counts as nothing.
        departs, bytes_of_beat = Signal(), Mux(self.o.payload.last, wire.SEAL_BYTES, p.bus_bytes)
        m.d.comb += [
            departs.eq(self.o.valid & self.o.ready & ~self.o.payload.error),
            self.departed.eq(departs & self.o.payload.last),
            self.departed_bytes.eq(Mux(departs, bytes_of_beat, 0)),
            self.mismatch.eq(seal.mismatch),
        ]

        # Beats go in pairs: the decision at phase 0 holds for the next two cycles. Those for which
        # there need not be room carry a mark.
        # One more in flight takes a pair more.
        margin = MARGIN + 2 * p.ram_output_register
        room, unsent = Signal(), Signal()
        with m.If(~self.phase):
            m.d.sync += [
                room.eq((seal.level <= DEPTH - margin) | self.discard),
                unsent.eq(self.discard),
            ]

        order = Signal(FrameOrder(p))
        m.submodules.walk = walk = LaneWalk(p)
        beat = Signal(range(max(2, header_beats)))
        active, in_header, in_words, in_blocks = Signal(), Signal(), Signal(), Signal()
        last_issue, ends_next, taking = Signal(), Signal(), Signal()
        section = Signal(2)
        m.d.comb += [
            in_header.eq(active & room & (section == 0)),
            in_words.eq(active & room & (section == 1)),
            in_blocks.eq(active & room & (section == 2)),
            walk.step.eq(in_blocks),
            # Frames end on the second beat of a pair (phase 0); the first beat announces it.
            ends_next.eq(
                self.phase
                & active
                & room
                & Mux(
                    order.blocks == 0,
                    (section == 0) if header_beats == 1 else (section == 1) & beat[1:].all(),
                    (section == 2) & walk.last_but_one,
                )
            ),
            # A new order is taken at phase 0, to start at phase 1.
            taking.eq(~self.phase & (~active | last_issue)),
            self.i.ready.eq(taking),
            # Without an order the walk stands still, as nothing is active.
            walk.load.eq(taking),
            walk.present.eq(self.i.payload.header.present),
            walk.long.eq(self.i.payload.partial),
        ]
        m.d.sync += last_issue.eq(ends_next)
        m.d.comb += [self.done.eq(last_issue & ~order.reply), self.done_job.eq(order.job)]
        with m.If(in_header | in_words):
            m.d.sync += beat.eq(beat + 1)
            with m.If(beat == header_beats - 1):
                m.d.sync += [beat.eq(0), section.eq(section + 1)]
        with m.If(last_issue):
            m.d.sync += active.eq(0)
        with m.If(taking & self.i.valid):
            m.d.sync += [
                active.eq(1),
                order.eq(self.i.payload),
                section.eq(0),
            ]

        version = order.header.round[0]
        if header_beats > 1:
            m.d.comb += self.read_words.address.eq(Cat(beat, version, order.slot))
        else:
            m.d.comb += self.read_words.address.eq(Cat(version, order.slot))
        m.d.comb += self.read_block.address.eq(Cat(walk.beat, walk.lane, version, order.slot))

        # One cycle later: the memory's data, or the text of headers and short answers.
        header = self._compose(m, order)
        words = Cat(order.words.as_value(), Const(0, 512 - len(order.words.as_value())))
        texts = [
            part[p.bus_bits * n : p.bus_bits * (n + 1)]
            for part in (header, words)
            for n in range(header_beats)
        ]
        text = select(texts, Cat(beat, section[0]) if header_beats > 1 else section[0])
        valid1, last1 = Signal(), Signal()
        from_text1, from_words1 = Signal(), Signal()
        text1 = Signal(p.bus_bits)
        m.d.sync += [
            valid1.eq(in_header | in_words | in_blocks),
            last1.eq(last_issue),
            from_text1.eq((section == 0) | order.reply),
            from_words1.eq(in_words),
        ]
        with m.If(in_header | in_words):
            m.d.sync += text1.eq(text)
        unsent1, net_ports1 = Signal(), Signal(p.ports)
        unsent_now = unsent1
        if p.ports > 1:
            m.d.sync += net_ports1.eq(order.peer.net_ports)
        words1 = self.read_words.data
        self.net_ports1, self.text1 = net_ports1, text1
        under_way = valid1
        if p.ram_output_register:
            if header_beats == 1:
                # Words are addressed with the header, a cycle early, and pass a register.
                words1 = Signal(p.checked_bits)
                m.d.sync += words1.eq(self.read_words.data)
            # The blocks come a cycle later, and all else waits for them.
            self.words1 = words1
            waiting = (valid1, last1, from_text1, from_words1, text1, unsent1, net_ports1, words1)
            found = tuple(Signal.like(each, name=f"found_{n}") for n, each in enumerate(waiting))
            m.d.sync += [later.eq(now) for later, now in zip(found, waiting, strict=True)]
            self.found_words = found[-1]
            under_way = valid1 | found[0]
            valid1, last1, from_text1, from_words1, text1, unsent1, net_ports1, words1 = found
        # While blocks are rounded.
        block1 = self._round(m, order, walk)
        stages = [(valid1, last1, from_text1, from_words1, text1, unsent1, net_ports1, words1)]
        for _ in range(ROUND_CYCLES):
            found = tuple(Signal.like(each) for each in stages[-1])
            m.d.sync += [later.eq(now) for later, now in zip(found, stages[-1], strict=True)]
            stages.append(found)
        under_way = under_way | Cat(stage[0] for stage in stages).any()
        valid1, last1, from_text1, from_words1, text1, unsent1, net_ports1, words1 = found
        valid2 = Signal()
        beat2 = Signal(FrameBeat(p))
        content = Cat(beat2.data, beat2.residues)
        unsent2 = Signal()
        m.d.sync += [valid2.eq(valid1), unsent_now.eq(unsent), unsent2.eq(unsent1)]
        with m.If(valid1):
            m.d.sync += [beat2.last.eq(last1), beat2.from_memory.eq(~from_text1)]
            with m.If(from_text1):
                m.d.sync += beat2.data.eq(text1)
            with m.Elif(from_words1):
                m.d.sync += content.eq(words1)
            with m.Else():
                m.d.sync += content.eq(block1)
        if p.ports > 1:
            with m.If(valid1):
                m.d.sync += beat2.net_ports.eq(net_ports1)
        # A beat with the mark is discarded, and all behind it in its frame. If some have gone
        # before it, it becomes the beat that ends the frame: the only one that enters the queue
        # while there may be no room, and one that MARGIN has room for.
        begun, dropping, drops = Signal(), Signal(), Signal()
        m.d.comb += [
            drops.eq(dropping | unsent2),
            seal.i.payload.eq(beat2),
            seal.i.payload.last.eq(beat2.last | drops | self.cut),
            seal.i.payload.error.eq(drops | self.cut),
            seal.i.valid.eq((valid2 & (~drops | (begun & ~dropping))) | self.cut),
            self.discarded.eq(valid2 & beat2.last & drops),
            self.idle.eq(~active & ~self.i.valid & ~under_way & ~valid2 & seal.idle),
        ]
        with m.If(valid2):
            m.d.sync += [begun.eq(~beat2.last), dropping.eq(drops & ~beat2.last)]
        # For proofs and planted bugs.
        self.seal, self.walk, self.order, self.beat, self.section = seal, walk, order, beat, section
        self.active, self.taking, self.last_issue, self.text = active, taking, last_issue, text
        self.in_header, self.in_words, self.in_blocks = in_header, in_words, in_blocks
        self.room, self.unsent, self.begun, self.dropping = room, unsent, begun, dropping
        self.valid1, self.from_text1, self.from_words1 = valid1, from_text1, from_words1
        self.valid2, self.beat2, self.unsent2, self.drops = valid2, beat2, unsent2, drops
        return m

    def _round(self, m: Module, order: data.View, walk: LaneWalk) -> Value:
        """Return the beat of a block that is sent, five cycles after the slot memory's."""
        p = self._parameters
        in_lane = Signal()
        m.d.sync += in_lane.eq(order.in_all.bit_select(walk.lane, 1))
        m.d.comb += self.read_note.address.eq(self.read_block.address[p.beat_bits :])
        # The order may be the next one's when the slot memory answers.
        known = (order.header.opcode, order.header.dtype, order.partial, walk.second, order.rounded)
        opcode, dtype, partial, upper, rounded = (
            delayed(m, value, 1 + p.ram_output_register) for value in known
        )
        note, all_present = (
            delayed(m, value, p.ram_output_register) for value in (self.read_note.data, in_lane)
        )
        wrong = note.exponent.xor() | (note.loss.lost == note.loss.kept)
        words = []
        for n in range(p.words_per_beat):
            m.submodules[f"send_{n}"] = word = SendWord(Fixed())
            m.d.comb += [
                word.slot.eq(self.read_block.data.word_select(n, p.slot_word_bits)),
                word.opcode.eq(opcode),
                word.dtype.eq(dtype),
                word.partial.eq(partial),
                word.upper.eq(upper),
                word.rounded.eq(rounded),
                word.exponent.eq(note.exponent[:-1]),
                word.lost.eq(note.loss.lost),
                word.wrong.eq(wrong),
                word.all_present.eq(all_present),
            ]
            words.append(word)
        return Cat(*(word.word for word in words), *(word.check for word in words))

    def _compose(self, m: Module, order: data.View) -> Value:
        """Compose all headers of the frame, which has a seal."""
        header = Signal(AffluxFrame)
        ethernet, ipv4, udp = header.ethernet, header.ipv4, header.udp
        # The length has 256 for each unit of the blocks: their number is the upper octet.
        upper = Cat(order.blocks, Const(0, 8 - len(order.blocks)))
        length_low = wire.UDP_PAYLOAD_MIN + wire.SEAL_BYTES + wire.UDP_BYTES
        m.d.comb += [
            ethernet.destination.eq(order.peer.mac),
            ethernet.source.eq(self.local.mac),
            ethernet.type.eq(as_sent(ETHERTYPE_IPV4, 2)),
            ipv4.as_value()[:8].eq(IPV4_WITHOUT_OPTIONS),
            ipv4.length.eq(Cat(upper, Const(length_low + wire.IPV4_BYTES, 8))),
            ipv4.fragment.eq(as_sent(DONT_FRAGMENT, 2)),
            ipv4.time_to_live.eq(TIME_TO_LIVE),
            ipv4.protocol.eq(PROTOCOL_UDP),
            ipv4.checksum.eq(order.ip_checksum),
            ipv4.source.eq(self.local.address),
            ipv4.destination.eq(order.peer.address),
            udp.source.eq(order.source_port),
            udp.destination.eq(order.peer.port),
            udp.length.eq(Cat(upper, Const(length_low, 8))),
            udp.checksum.eq(wire.SEALED_CHECKSUM),
            header.afflux.eq(order.header),
        ]
        return header.as_value()
