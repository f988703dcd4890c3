"""The invariants of a lane walk, and of the two stages that walk, for induction."""

from amaranth.hdl import Assert, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data

from afflux_hdl.engine.layouts import SlotOperation
from afflux_hdl.engine.parameters import Parameters
from tests.formal.inside import Inside

__all__ = [
    "beats_merged",
    "beats_sent",
    "block_beats_of",
    "place_in_block",
    "rank",
    "tie_walk",
]


def block_beats_of(p: Parameters, partial: Value) -> Value:
    """Return the beats of a block in the receive buffer, or as it is sent."""
    return Mux(partial, 2 * p.block_beats, p.block_beats)


def place_in_block(beat: Value, partial: Value) -> Value:
    """Return the step of a merge in which it asks for what goes into a beat of a slot's block.

    Of partial sums it is the upper plane's, two beats of which come behind two of the lower one.
    """
    return Mux(partial, Cat(beat[0], Const(1, 1), beat[1:]), beat)


def rank(present: Value, lane: Value) -> Value:
    """Return the number of blocks in a packet before that of the lane."""
    below = (present & ((1 << lane) - 1))[: len(present)]
    return sum((below[n] for n in range(1, len(below))), start=below[0])


def tie_walk(m: Module, inside: Inside, name: str) -> None:
    """Say what a walk's registers keep of its bitmap."""
    walk, remaining = inside[name], inside[f"{name}.remaining"]
    m.d.comb += [
        Assert(walk.any == (remaining != 0)),
        Assert(inside[f"{name}.single"] == (sum(remaining) <= 1)),
        Assert((remaining == 0) | ((1 << walk.lane) == (remaining & -remaining))),
        Assert(~inside[f"{name}.short"] | ~walk.second),
    ]


def _of_present(m: Module, present: Value, remaining: Value) -> None:
    """Say of a walk that is under way which lanes are left: those above the ones that are done."""
    m.d.comb += [
        Assert(remaining != 0),
        Assert((present ^ remaining) < (remaining & -remaining)),
        Assert((present & remaining) == remaining),
    ]


def beats_sent(m: Module, inside: Inside, p: Parameters) -> Signal:
    """Say where in its frame the transmit stage is, and return its beats before that."""
    order, active, section = inside["order"], inside["active"], inside["section"]
    beat, walk, remaining = inside["beat"], inside["walk"], inside["walk.remaining"]
    tie_walk(m, inside, "walk")
    present, step = order.header.present, Cat(walk.beat, walk.second)
    at, done = Signal(range(p.frame_beats_max + 1)), Signal(5)
    m.d.comb += [
        done.eq(sum(present ^ remaining)),
        at.eq(
            Mux(
                section == 2,
                2 * p.header_beats + done * block_beats_of(p, order.partial) + step,
                beat + Mux(section == 1, p.header_beats, 0),
            )
        ),
    ]
    with m.If(active):
        m.d.comb += [
            Assert(section != 3),
            # Two by two: both cycles of a pair have room, or neither.
            Assert(at[0] == (~inside.whole.phase & inside["room"]), "in step with the banks"),
            Assert(order.blocks == Mux(order.partial, sum(present) << 1, sum(present))),
            Assert((present >> p.lanes) == 0),
            Assert(beat < p.header_beats),
            Assert(inside["walk.short"] == ~order.partial),
        ]
        with m.If(section == 2):
            m.d.comb += Assert(beat == 0)
            _of_present(m, present, remaining)
        with m.Else():
            m.d.comb += [Assert(remaining == present), Assert(step == 0)]
    with m.Else():
        m.d.comb += Assert(beat == 0)
    return at


def beats_merged(m: Module, inside: Inside, p: Parameters) -> Signal:
    """Say where in its operation the merge stage is, and return its beats before that."""
    operation = data.View(SlotOperation(p), inside["operation"])
    walk, remaining, state = inside["walk"], inside["walk.remaining"], inside.state
    word_beat, step = inside["word_beat"], Cat(walk.beat, walk.second)
    tie_walk(m, inside, "walk")
    at, done = Signal(range(p.frame_beats_max + 1)), Signal(5)
    m.d.comb += [
        Assert(inside.in_a_state),
        Assert((remaining >> p.lanes) == 0),
        done.eq(sum(operation.present ^ remaining)),
        at.eq(
            Mux(
                state("BLOCKS"),
                p.header_beats + done * block_beats_of(p, operation.partial) + step,
                word_beat,
            )
        ),
    ]
    before_blocks = state("WORDS") | (state("ALIGN") if p.header_beats > 1 else 0)
    with m.If(before_blocks):
        m.d.comb += [Assert(remaining == operation.present), Assert(step == 0)]
    with m.If(~state("TAKE")):
        m.d.comb += Assert(inside["walk.short"] == ~operation.partial)
    with m.If(state("BLOCKS")):
        _of_present(m, operation.present, remaining)
    with m.If(~state("WORDS")):
        m.d.comb += Assert(word_beat == 0)
    return at
