"""Seal stage: checks what leaves against its residues, and ends each frame with its seal.

::

    cycle  0                 1           2                    3            4
    i ─┬─► register ───────► queue ────────────────────────► o: beats ──► o: the seal
       ├─► sums of words ──► their sum ─► sum of the frame ─► queue ──────┘
       └─► words fit? ─────► all of them? ─► in all beats? ──┘

A UDP checksum stands before the data that it covers, and a result leaves as it is read. So its
value is a constant, and the last four bytes of the frame, the seal, make the sum of all come out
right: RFC 7820's checksum complement. The receiver of the frame checks it like any other. The sum
is taken of the very beats whose residues are checked here. A flip before that makes a word that
does not fit its residue, and one bit of the complement is then inverted; a flip after it makes data
that do not fit the complement. Either way no receiver takes the frame.

Proved: `tests/formal/sending.py`. Tested: `tests/hdl/test_seal.py`, `tests/sim/test_integrity.py`.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from afflux_hdl.contract import wire
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.lib.ones_complement import fold, tree_sum, words_of
from afflux_hdl.lib.packet_stream import TIME_TO_LIVE, Ipv4, PacketBeat, as_sent, octet_of
from afflux_hdl.lib.queue import Queue
from afflux_hdl.lib.residue import RESIDUE_BITS, fits

__all__ = ["DEPTH", "MARGIN", "FrameBeat", "Seal"]

DEPTH = 32
"""Beats behind the memories: those in flight when the MAC stops, and a few more."""

MARGIN = 15
"""Space for the next two beats plus those already in flight."""

SUMS = 32
"""Frames whose sums are kept: more than have their last beat in a full queue."""


class FrameBeat(data.StructLayout):
    """One beat of a frame that has no seal yet.

    Members:
        data: Bytes, all of which belong to the frame.
        residues: With `from_memory`: those of its words.
        from_memory: The data come from the slot memory, and have residues.
        last: The frame ends here.
        error: With `last`: its rest is missing. It gets no seal.
        net_ports: If there are several network ports: those by which the frame leaves.
    """

    def __init__(self, parameters: Parameters) -> None:
        residues = parameters.checked_bits - parameters.bus_bits
        super().__init__(
            {
                "data": parameters.bus_bits,
                "residues": residues,
                "from_memory": 1,
                "last": 1,
                "error": 1,
            }
            | ({"net_ports": parameters.ports} if parameters.ports > 1 else {})
        )


def _word_of(name: str) -> int:
    """Return the number of the 16-bit word of a frame in which an IPv4 field begins."""
    return (wire.ETHERNET_BYTES + octet_of(Ipv4, name)) // 2


class Seal(wiring.Component):
    """Adds a seal to each frame.

    Latency: 3 cycles from a beat on `i` to the same beat on `o`, two of them those of a queue. The
    seal follows the last beat at once, as a beat of its own; a frame that is cut off has none.
    Throughput: one beat on `o` in each cycle while `o.ready` holds, so a frame takes a cycle more
    than it has beats. Back-pressure: the writer must stop in time, by `level`; a beat that finds
    the queue full is lost.

    Members:
        i: Frames without seal, beat by beat.
        level: Beats in the queue.
        o: Frames for the MAC, without frame check sequence. `keep` is all ones, except that of the
            last beat, in which there is nothing but the seal. `error`, with `last`, is in the place
            of the seal of a frame whose rest is missing.
        mismatch: A frame ends that was spoiled, because a word did not fit its residue.
        idle: Nothing is in flight.
    """

    def __init__(self, parameters: Parameters) -> None:
        p = parameters
        self._parameters = p
        super().__init__(
            {
                "i": In(stream.Signature(FrameBeat(p), always_ready=True)),
                "level": Out(range(DEPTH + 1)),
                "o": Out(stream.Signature(PacketBeat(p.bus_bits, p.ports))),
                "mismatch": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = self._parameters
        beat_shape = data.StructLayout(
            {"data": p.bus_bits, "last": 1, "error": 1}
            | ({"net_ports": p.ports} if p.ports > 1 else {})
        )
        sum_shape = data.StructLayout({"folded": 17, "spoiled": 1})
        m.submodules.output = output = Queue(beat_shape, depth=DEPTH, always_ready=True)
        m.submodules.sums = sums = Queue(sum_shape, depth=SUMS, buffered=False, always_ready=True)

        # A register on the way to the queue, while the frame's sum is made.
        beat0, beat1 = self.i.payload, Signal(beat_shape)
        valid1, valid2, last2, last3 = Signal(), Signal(), Signal(), Signal()
        m.d.sync += [
            valid1.eq(self.i.valid),
            valid2.eq(valid1),
            last2.eq(beat1.last & ~beat1.error),
            last3.eq(valid2 & last2),
        ]
        with m.If(self.i.valid):
            m.d.sync += [
                beat1.data.eq(beat0.data),
                beat1.last.eq(beat0.last),
                beat1.error.eq(beat0.error),
            ]
            if p.ports > 1:
                m.d.sync += beat1.net_ports.eq(beat0.net_ports)
        m.d.comb += [
            output.i.payload.eq(beat1),
            output.i.valid.eq(valid1),
            self.level.eq(output.level),
        ]

        # The sum is that of addresses, UDP header and data, with protocol and UDP length of the
        # pseudo-header. The IPv4 header has these two as well, one beside the time to live, the
        # other as part of its length. Their excess there is taken off in the place of the frame's
        # first word.
        index = Signal(range(p.header_beats + 1))
        with m.If(self.i.valid):
            m.d.sync += index.eq(Mux(beat0.last, 0, Mux(index == p.header_beats, index, index + 1)))
        places = {_word_of("length"), _word_of("time_to_live")}
        too_much = wire.IPV4_BYTES + (TIME_TO_LIVE << 8)
        words = words_of(beat0.data)
        terms: list[Value] = []
        for n, word in enumerate(words):
            term = Signal(16, name=f"term_{n}")
            m.d.comb += term.eq(word)
            for beat in range(p.header_beats):
                place = len(words) * beat + n
                if place < _word_of("source") and place not in places:
                    with m.If(index == beat):
                        m.d.comb += term.eq(as_sent(0xFFFF - too_much, 2) if place == 0 else 0)
            terms.append(term)
        partial1 = [Signal(18, name=f"partial1_{n}") for n in range(max(1, len(words) // 4))]
        for n, partial in enumerate(partial1):
            m.d.sync += partial.eq(tree_sum(terms[4 * n : 4 * n + 4]))
        first1, first2 = Signal(), Signal()
        sum2, sum3 = Signal(16 + bits_for(len(words))), Signal(29)
        m.d.sync += [first1.eq(index == 0), first2.eq(first1), sum2.eq(tree_sum(partial1))]
        with m.If(valid2):
            m.d.sync += sum3.eq(Mux(first2, 0, sum3) + sum2)

        # In step with it: whether each word of the frame fits its residue.
        wrong1, wrong2, wrong3 = Signal(p.words_per_beat), Signal(), Signal()
        for n in range(p.words_per_beat):
            word = beat0.data[32 * n : 32 * n + 32]
            check = beat0.residues[RESIDUE_BITS * n : RESIDUE_BITS * (n + 1)]
            m.d.sync += wrong1[n].eq(beat0.from_memory & ~fits(m, word, check))
        m.d.sync += wrong2.eq(wrong1.any())
        with m.If(valid2):
            m.d.sync += wrong3.eq((wrong3 & ~first2) | wrong2)
        m.d.comb += [
            sums.i.payload.folded.eq(fold(sum3)),
            sums.i.payload.spoiled.eq(wrong3),
            sums.i.valid.eq(last3),
            self.mismatch.eq(last3 & wrong3),
        ]

        # The seal follows the last beat: its sum is there one cycle behind that beat.
        sealing, cut = Signal(), Signal()
        complement = Signal(16)
        seal = Cat(Const(0, 16), complement ^ sums.o.payload.spoiled)
        unsealed = output.o.payload.data & ~sealing.replicate(p.bus_bits)
        m.d.comb += [
            cut.eq(~sealing & output.o.payload.error),
            complement.eq(~(sums.o.payload.folded[:16] + sums.o.payload.folded[16])),
            self.o.payload.data.eq(unsealed | Mux(sealing, seal, 0)),
            self.o.payload.keep.eq(Mux(sealing, (1 << wire.SEAL_BYTES) - 1, -1)),
            self.o.payload.last.eq(sealing | cut),
            self.o.payload.error.eq(cut),
            self.o.valid.eq(Mux(sealing, sums.o.valid, output.o.valid)),
            output.o.ready.eq(self.o.ready & ~sealing),
            sums.o.ready.eq(self.o.ready & sealing),
            self.idle.eq(
                ~(valid1 | valid2 | last3 | sealing) & (output.level == 0) & (sums.level == 0)
            ),
        ]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += sealing.eq(~sealing & output.o.payload.last & ~output.o.payload.error)
        if p.ports > 1:
            # The seal leaves as its frame, whose last beat is not in the queue any more.
            sealed = Signal(p.ports)
            m.d.comb += self.o.payload.net_ports.eq(
                Mux(sealing, sealed, output.o.payload.net_ports)
            )
            with m.If(~sealing):
                m.d.sync += sealed.eq(output.o.payload.net_ports)
        # For proofs.
        self.output, self.sealing, self.valid1 = output, sealing, valid1
        return m
