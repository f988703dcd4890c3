"""The same ranks with streams to each other, which carry out some of the calls by themselves.

The aggregator has no part in these *own* calls: their rows are completed by the ranks, and what is
on its way still comes when a rank has fenced itself off. But nobody writes down what has come of
them, or keeps any of it. So it is wrong to leave an own call which another rank has ended, or to
begin it anew with results in place of contributions; and it is a dead end to stay in one that
another rank will not call any more.
"""

from dataclasses import dataclass

from tests.models.fail_over_model import FailOverGuards, FailOverModel, Place, Rank, Seen

__all__ = ["STREAMS_FAULTS", "StreamsFailOverModel", "StreamsGuards"]


@dataclass(frozen=True)
class StreamsGuards(FailOverGuards):
    """The guards of the change, with those for own calls.

    Attributes:
        ends_calls: A rank stays in an own call that all have called, or may yet call.
        leaves_calls: It leaves one that a rank has not called before it fenced itself off.
    """

    ends_calls: bool = True
    leaves_calls: bool = True


@dataclass(frozen=True)
class StreamsFailOverModel(FailOverModel):
    """Steps of a group whose aggregator of streams may die.

    Attributes:
        own: The calls, from 0, that the ranks carry out by themselves.
    """

    calls: int = 3
    guards: StreamsGuards = StreamsGuards()
    own: frozenset[int] = frozenset({1})

    def may_fence(self, state: Place, rank: Rank) -> bool:
        """Return whether a rank that has heard of the change leaves the call that it is in."""
        if not rank.running or rank.over not in self.own or not self.guards.ends_calls:
            return True
        written = [each.seen for each in state.ranks if each.seen is not None]
        return self.guards.leaves_calls and any(
            each.over < rank.over or (each.over == rank.over and not each.running)
            for each in written
        )

    def taken(self, seen: Seen) -> int:
        """Return how many results of the aggregator a rank writes that it has."""
        return 0 if seen.over in self.own else super().taken(seen)

    def _ended(self, rank: Rank) -> Rank:
        ended = super()._ended(rank)
        return ended._replace(kept=ended.kept and rank.over not in self.own)


STREAMS_FAULTS = {
    "a rank leaves an own call that all have called": StreamsGuards(ends_calls=False),
    "a rank waits in an own call for one that will not call it": StreamsGuards(leaves_calls=False),
}
"""Guards that are out, each of which the checker must miss."""
