"""What induction has to know of a lane walk."""

from amaranth.hdl import Assert, Module, Value

from tests.formal.inside import Inside

__all__ = ["rank", "tie_walk"]


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
    ]
