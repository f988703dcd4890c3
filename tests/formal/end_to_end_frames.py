"""Frames of the end-to-end proof: what workers send, and what is seen to leave.

Whatever comes into the engine is one of these frames, in any order: of either worker, from either
worker's addresses, of any type and opcode, with a good or a bad key, for either slot or one that
does not exist, of a round around the job's first, with its block or without, its length right or
wrong, marked as bad or not.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data

from afflux_hdl.contract import wire
from afflux_hdl.engine.layouts import AffluxFrame, Header
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.lib.packet_stream import (
    ETHERTYPE_IPV4,
    IPV4_WITHOUT_OPTIONS,
    PROTOCOL_UDP,
    TIME_TO_LIVE,
    as_sent,
)

__all__ = [
    "ADDRESS",
    "FIRST_ROUND",
    "KEY",
    "MAC",
    "WORKERS",
    "Contribution",
    "FramesIn",
    "ResultsOut",
    "frame_beats",
]

KEY = 0x1234_5678
FIRST_ROUND = 0xFFFF_FFFE
"""So that rounds wrap within the run."""

MAC, ADDRESS = 0x0200_0000_0001, 0x0A00_0001
"""The engine's. Worker w has MAC + 1 + w and ADDRESS + 1 + w, and the same port."""

WORKERS = 2

LIVES = 2
"""How often the job is created, at most."""


def frame_beats(parameters: Parameters) -> int:
    """Return the beats of a frame with a block in each lane, none of which are partial sums."""
    return 2 * parameters.header_beats + parameters.lanes * parameters.block_beats


@dataclass(frozen=True)
class Contribution:
    """The watched data: each worker's contribution to a round of a slot, chosen freely.

    A job may be created twice, and its round is then another one in each of its two lives: it has
    other contributions. The lowest bit of their operation number, which the engine hands on
    without looking at it, shows of which life a contribution and a result are.

    Attributes:
        slot, round: The slot and the round.
        values: For each life, the first element of each worker's block.
        presents: For each life, whether each worker's contribution has a block.
    """

    slot: Value
    round: Signal
    values: Sequence[Value]
    presents: Sequence[Value]

    @staticmethod
    def chosen(m: Module) -> "Contribution":
        """Return one of slot 0 or 1, and of the job's first or second round."""
        number = Signal(32, name="watched_round")
        m.d.comb += number.eq(FIRST_ROUND + AnyConst(1))
        values = [Cat(AnyConst(32) for _ in range(WORKERS)) for _ in range(LIVES)]
        return Contribution(AnyConst(1), number, values, [AnyConst(WORKERS) for _ in range(LIVES)])

    def presents_in(self, life: Value) -> Value:
        """Return whether each worker's contribution of this life has a block."""
        return Mux(life, self.presents[1], self.presents[0])

    def value_in(self, life: Value, worker: Value) -> Value:
        """Return the first element of a worker's block in this life."""
        return Mux(life, self.values[1], self.values[0]).word_select(worker, 32)

    def sum_in(self, life: Value) -> Value:
        """Return the sum of what is there in this life."""
        presents = self.presents_in(life)
        parts = (Mux(presents[n], self.value_in(life, Const(n, 1)), 0) for n in range(WORKERS))
        return sum(parts, start=Value.cast(0))[:32]

    def is_of(self, header: data.View) -> Value:
        """Return whether a header is of this round and slot of the job with `KEY`."""
        return (header.slot == self.slot) & (header.round == self.round) & (header.key == KEY)


class FramesIn:
    """Drives the stream of frames to the engine.

    A frame has `2 * header_beats` beats, or all with a block in each lane, without pauses between
    them. Only the first element of the first block is any; the others are zeros.

    Members:
        asks: For each worker: in this cycle a frame ends that may cause a result for it: a
            contribution to the watched round, or a probe of it.
    """

    def __init__(
        self,
        m: Module,
        p: Parameters,
        stream: data.View,
        watched: Contribution,
        *,
        joins: Sequence[Value],
        starts_long: Value,
        starts_short: Value,
        got: Signal,
        life: Value,
    ) -> None:
        """Drive it.

        Args:
            m: The harness.
            p: The engine's.
            stream: The stream.
            watched: The watched data.
            joins: For each worker: it begins to join in this cycle.
            starts_long: A frame with a block may begin.
            starts_short: A frame without a block begins, unless one is under way.
            got: For each worker: it has had the watched round's result.
            life: Which one frames are of that begin in this cycle.
        """
        self._p, self._life = p, life
        self.asks = Signal(WORKERS)
        new, held, now = (Signal(_Choice, name=name) for name in ("new", "held", "now"))
        index, inside = Signal(range(frame_beats(p) + 1)), Signal()
        begins, long = Signal(), Signal()
        joining = Cat(joins).any()
        self._choose(m, new, watched, joining, joins[1], got)
        m.d.comb += [
            long.eq(starts_long & AnySeq(1)),
            begins.eq(~inside & (long | starts_short | joining)),
            new.blocks.eq(long),
            now.eq(Mux(inside, held.as_value(), new.as_value())),
        ]
        with m.If(begins):
            m.d.sync += held.eq(new)
        header = self._compose(m, now)
        text = Signal(p.bus_bits)
        with m.If(index < p.header_beats):
            m.d.comb += text.eq(
                header.word_select(index[: p.header_beats.bit_length()], p.bus_bits)
            )
        with m.Elif(index == 2 * p.header_beats):
            m.d.comb += text.eq(now.value)
        beat = stream.payload
        last = Signal()
        m.d.comb += [
            stream.valid.eq(inside | begins),
            last.eq(index == Mux(now.blocks, frame_beats(p) - 1, 2 * p.header_beats - 1)),
            beat.data.eq(text),
            beat.keep.eq(-1),
            beat.last.eq(last),
            beat.error.eq(last & now.error),
        ]
        with m.If(stream.valid):
            m.d.sync += [index.eq(Mux(last, 0, index + 1)), inside.eq(~last)]
        is_asking = (
            now.watched
            & (now.afflux.operation[0] == life)
            & ((now.afflux.type == wire.Type.DATA) | (now.afflux.type == wire.Type.PROBE))
        )
        for n in range(WORKERS):
            m.d.comb += self.asks[n].eq(stream.valid & last & is_asking & (now.afflux.worker == n))

    def _choose(
        self,
        m: Module,
        new: data.View,
        watched: Contribution,
        joining: Value,
        second: Value,
        got: Signal,
    ) -> None:
        """Choose a frame freely, or a JOIN."""
        afflux = new.afflux
        any_type, later, has_blocks = AnySeq(4), Signal(), Signal()
        m.d.comb += [
            afflux.version.eq(wire.VERSION),
            afflux.key.eq(KEY),
            afflux.operation.eq(self._life),
        ]
        with m.If(joining):
            m.d.comb += [
                afflux.type.eq(wire.Type.JOIN),
                afflux.worker.eq(second),
                new.source.eq(second),
            ]
        with m.Else():
            to_next = Signal()
            m.d.comb += [
                new.source.eq(AnySeq(1)),
                new.error.eq(AnySeq(1)),
                afflux.worker.eq(AnySeq(1)),
                afflux.slot.eq(AnySeq(2)),
                afflux.round.eq(FIRST_ROUND - 2 + AnySeq(3)),
                # A worker goes on to the next round only when it has the result. A packet that it
                # must not send has a key that no job has.
                later.eq(
                    (afflux.slot == watched.slot)
                    & ((afflux.round - watched.round)[:32] > 0)
                    & ~(afflux.round - watched.round)[31]
                ),
                to_next.eq(
                    (afflux.round == (watched.round + 1)[:32]) & got.bit_select(afflux.worker[0], 1)
                ),
                afflux.key[0].eq(KEY & 1 ^ AnySeq(1)),
                afflux.key[1].eq((KEY >> 1 & 1) ^ (later & ~to_next)),
                new.watched.eq(watched.is_of(afflux)),
                # The watched contributions agree, and are the same each time.
                afflux.type.eq(
                    Mux(new.watched & (any_type == wire.Type.CONFLICT), wire.Type.DATA, any_type)
                ),
                afflux.opcode.eq(Mux(new.watched, wire.Opcode.SUM, AnySeq(2))),
                has_blocks.eq(
                    Mux(
                        new.watched & (afflux.type == wire.Type.DATA),
                        watched.presents_in(self._life).bit_select(afflux.worker[0], 1),
                        AnySeq(1),
                    )
                ),
                afflux.present.eq(Mux(has_blocks, (1 << self._p.lanes) - 1, 0)),
            ]
        m.d.comb += new.value.eq(
            Mux(new.watched, watched.value_in(self._life, afflux.worker[0]), AnySeq(32))
        )

    def _compose(self, m: Module, now: data.View) -> Value:
        """Return all headers of a frame, without UDP checksum."""
        header = Signal(AffluxFrame)
        ethernet, ipv4, udp = header.ethernet, header.ipv4, header.udp
        payload = wire.UDP_PAYLOAD_MIN + wire.UDP_BYTES
        for source in range(WORKERS):
            for blocks in range(2):
                length = wire.IPV4_BYTES + payload + wire.BLOCK_BYTES * blocks * self._p.lanes
                fields = [IPV4_WITHOUT_OPTIONS << 8, length, TIME_TO_LIVE << 8 | PROTOCOL_UDP]
                for address in (ADDRESS, ADDRESS + 1 + source):
                    fields += [address >> 16, address & 0xFFFF]
                total = sum(fields)
                total = (total & 0xFFFF) + (total >> 16)
                with m.If((now.source == source) & (now.blocks == blocks)):
                    m.d.comb += [
                        ipv4.length.eq(as_sent(length, 2)),
                        ipv4.checksum.eq(as_sent(0xFFFF ^ total, 2)),
                        udp.length.eq(as_sent(length - wire.IPV4_BYTES, 2)),
                        ethernet.source.eq(as_sent(MAC + 1 + source, 6)),
                        ipv4.source.eq(as_sent(ADDRESS + 1 + source, 4)),
                    ]
        m.d.comb += [
            ethernet.destination.eq(as_sent(MAC, 6)),
            ethernet.type.eq(as_sent(ETHERTYPE_IPV4, 2)),
            ipv4.as_value()[:8].eq(IPV4_WITHOUT_OPTIONS),
            ipv4.time_to_live.eq(TIME_TO_LIVE),
            ipv4.protocol.eq(PROTOCOL_UDP),
            ipv4.destination.eq(as_sent(ADDRESS, 4)),
            udp.source.eq(as_sent(wire.PORT, 2)),
            udp.destination.eq(as_sent(wire.PORT, 2)),
            header.afflux.eq(now.afflux),
        ]
        return header.as_value()


_Choice = data.StructLayout(
    {"afflux": Header, "source": 1, "blocks": 1, "value": 32, "watched": 1, "error": 1}
)
"""A frame: its header, whose addresses it comes from, whether it has a block and that one's first
element, whether it is of the watched round, and whether the MAC marks it as bad."""


class ResultsOut:
    """Follows the frames that the network takes.

    Members:
        header, word: Headers of the frame, and the first element of its block.
        leaves: In this cycle a whole result of the watched round leaves, not marked as bad.
    """

    def __init__(self, m: Module, p: Parameters, stream: data.View, watched: Contribution) -> None:
        frame, index = Signal(AffluxFrame), Signal(range(p.frame_beats_max + 3))
        self.header, self.word, self.leaves = frame.afflux, Signal(32), Signal()
        taken, beat = stream.valid & stream.ready, stream.payload
        with m.If(taken):
            m.d.sync += index.eq(Mux(beat.last, 0, index + 1))
            with m.If(index < p.header_beats):
                m.d.sync += frame.as_value().eq(Cat(frame, beat.data)[p.bus_bits :])
            with m.If(index == 2 * p.header_beats):
                m.d.sync += self.word.eq(beat.data[:32])
        kind = self.header.type
        m.d.comb += self.leaves.eq(
            taken
            & beat.last
            & ~beat.error
            & ((kind == wire.Type.RESULT) | (kind == wire.Type.CONFLICT))
            & watched.is_of(self.header)
        )
