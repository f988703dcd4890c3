"""Ranks that lose their aggregator as a small transition system, with guards that can be taken out.

N ranks go through calls, one after the other, each of which has so many rows in each slot; a row of
a slot is a round. What they decide behind the fence is the product's own
(`afflux.group.reducers.recovery`). The rest is written out:

* **The aggregator** completes a round when all have sent their contributions, at any later moment
  or never. A crash is that nothing completes any more; a partition, that it does so all the same.
* **The network** loses, delays and duplicates: a result of a completed round reaches a rank at any
  later moment or never, long after the aggregator has died too. A result that comes twice changes
  nothing, as a rank takes exactly the round that it waits for.
* **A rank** begins its next call at any moment, is idle in between, and leaves after its last one.
  Any rank may declare the aggregator dead at any moment, also wrongly.

A result is written over the contribution that it is of. So it is wrong to sum a row anew where any
rank has the result by now, to end a call without a row's result, or to find no way on.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from afflux.group.reducers.recovery import State as Written
from afflux.group.reducers.recovery import plan_of
from afflux_drivers.errors import AffluxError
from tests.models.slot_model import Action

__all__ = ["FAIL_OVER_FAULTS", "FailOverGuards", "FailOverModel", "Place", "Rank", "Seen"]

USES, FENCED, BEYOND, LEFT = range(4)
"""A rank uses the aggregator; has fenced itself off; goes on over another carrier; has left."""


@dataclass(frozen=True)
class FailOverGuards:
    """The guards of the change.

    Attributes:
        fence: A rank takes no result once it has written its state.
        keeps: A rank that has ended a call keeps the last row of each slot.
        keeps_until_heard: It keeps them until a result of the next call comes. Without: until it
            begins that.
        gives: Whoever has results gives them to the others.
        waits_for_all: Nobody acts upon the states before all have written theirs. Without: those
            that have not count as they are.
        leaves_results: A rank that leaves the group leaves its state and what it has kept.
    """

    fence: bool = True
    keeps: bool = True
    keeps_until_heard: bool = True
    gives: bool = True
    waits_for_all: bool = True
    leaves_results: bool = True


class Seen(NamedTuple):
    """What a rank has written."""

    over: int
    running: bool
    rows: tuple[int, ...]
    kept: bool


class Rank(NamedTuple):
    """A rank: where it is, and what it has of the results."""

    phase: int = USES
    over: int = 0
    running: bool = False
    # Results taken of the running call, by slot.
    rows: tuple[int, ...] = ()
    # Whether it has kept the last rows of the call that was over last.
    kept: bool = False
    seen: Seen | None = None


class Place(NamedTuple):
    """The state of all."""

    # Rounds that the aggregator has completed, by slot, over all calls.
    completed: tuple[int, ...]
    declared: bool
    ranks: tuple[Rank, ...]


T = TypeVar("T")
Step = tuple[Action, Place, bool]


@dataclass(frozen=True)
class FailOverModel:
    """Steps of a group whose aggregator may die.

    Attributes:
        size: N.
        slots: Of the job.
        rows: Rounds of each slot in a call.
        calls: How many each rank makes.
        guards: Which guards are in place.
    """

    size: int
    slots: int
    rows: int = 2
    calls: int = 2
    guards: FailOverGuards = FailOverGuards()

    def first(self) -> Place:
        """Return the first state: nobody has called anything."""
        none = (0,) * self.slots
        return Place(none, False, (Rank(rows=none),) * self.size)

    def is_over(self, state: Place) -> bool:
        """Return whether all ranks have ended all calls."""
        return all(rank.over == self.calls for rank in state.ranks)

    def canonical(self, state: Place) -> Place:
        """Return the same for all states that differ only in the numbering of slots and ranks."""

        def of_slot(slot: int) -> tuple[int, list[int]]:
            return state.completed[slot], sorted(rank.rows[slot] for rank in state.ranks)

        order = sorted(range(self.slots), key=of_slot)

        def reordered(rows: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(rows[slot] for slot in order)

        ranks = [
            rank._replace(
                rows=reordered(rank.rows),
                seen=rank.seen and rank.seen._replace(rows=reordered(rank.seen.rows)),
            )
            for rank in state.ranks
        ]

        def comparable(rank: Rank) -> Rank:
            return rank._replace(seen=rank.seen or Seen(-1, False, (), False))

        ranks.sort(key=comparable)
        return Place(reordered(state.completed), state.declared, tuple(ranks))

    def steps(self, state: Place) -> Iterator[Step]:
        """Yield every step that may come next and changes something."""
        for slot in range(self.slots):
            if self._all_have_sent(state, slot):
                more = _with(state.completed, slot, state.completed[slot] + 1)
                yield (
                    Action(f"the aggregator completes a round of slot {slot}", 0, 0),
                    state._replace(completed=more),
                    False,
                )
        for number, rank in enumerate(state.ranks):
            yield from self._of_rank(state, number, rank)
        yield from self._go_over(state)
        yield from self._call_beyond(state)

    def _all_have_sent(self, state: Place, slot: int) -> bool:
        """Return whether the slot's next round has the contributions of all."""
        call, row = divmod(state.completed[slot], self.rows)
        return all(
            rank.over > call or (rank.over == call and rank.running and rank.rows[slot] >= row)
            for rank in state.ranks
        )

    def _of_rank(self, state: Place, number: int, rank: Rank) -> Iterator[Step]:
        def step(text: str, after: Rank, wrong: bool = False) -> Step:
            ranks = _with(state.ranks, number, after)
            return Action(f"rank {{w}} {text}", number, 0), state._replace(ranks=ranks), wrong

        none = (0,) * self.slots
        if rank.phase in (USES, BEYOND) and not rank.running and rank.over < self.calls:
            kept = rank.kept and self.guards.keeps_until_heard
            yield step("begins a call", rank._replace(running=True, rows=none, kept=kept))
        if rank.phase == USES or (rank.phase == FENCED and not self.guards.fence):
            for slot in range(self.slots) if rank.running else ():
                if rank.rows[slot] == self.rows or (
                    state.completed[slot] <= rank.over * self.rows + rank.rows[slot]
                ):
                    continue
                rows = _with(rank.rows, slot, rank.rows[slot] + 1)
                taken = rank._replace(rows=rows, kept=False)
                if all(each == self.rows for each in rows) and rank.phase == USES:
                    taken = self._ended(taken)
                yield step(f"takes a result of slot {slot}", taken)
        if rank.phase != USES:
            return
        if not state.declared:
            declared = state._replace(declared=True)
            yield Action("rank {w} declares the aggregator dead", number, 0), declared, False
        else:
            if self.may_fence(state, rank):
                yield step("fences itself off, and writes its state", self._written(rank, FENCED))
        if rank.over == self.calls:
            left = self._written(rank, LEFT)
            yield step("leaves", left if self.guards.leaves_results else left._replace(seen=None))

    def may_fence(self, state: Place, rank: Rank) -> bool:
        """Return whether a rank that has heard of the change leaves the call that it is in."""
        return True

    def taken(self, seen: Seen) -> int:
        """Return how many results of the aggregator a rank writes that it has."""
        return sum(seen.rows)

    def _ended(self, rank: Rank) -> Rank:
        """Return a rank whose call has come to its end."""
        none = (0,) * self.slots
        return rank._replace(over=rank.over + 1, running=False, rows=none, kept=self.guards.keeps)

    def _written(self, rank: Rank, phase: int) -> Rank:
        return rank._replace(phase=phase, seen=Seen(rank.over, rank.running, rank.rows, rank.kept))

    def _go_over(self, state: Place) -> Iterator[Step]:
        """Let all ranks act upon what they have written."""
        here = [rank.phase == FENCED for rank in state.ranks]
        missing = [rank for rank in state.ranks if rank.seen is None]
        if not any(here) or (
            missing
            and (self.guards.waits_for_all or not all(rank.phase == USES for rank in missing))
        ):
            return
        seen = [
            rank.seen or Seen(rank.over, rank.running, rank.rows, rank.kept) for rank in state.ranks
        ]
        written = {
            number: Written(each.over, each.running, self.taken(each), "", rank.phase == LEFT)
            for number, (each, rank) in enumerate(zip(seen, state.ranks, strict=True))
        }
        action = Action("the ranks that have written their states go over", 0, 0)
        try:
            plan = plan_of(written)
        except AffluxError:
            yield action, state, True
            return
        wrong = False
        ranks = []
        for number, rank in enumerate(state.ranks):
            after = rank
            if number in plan.behind:
                assert plan.giver is not None
                # Only the last row of each slot is kept.
                has = self.guards.gives and seen[plan.giver].kept
                lacking = [self.rows - each for each in seen[number].rows]
                wrong |= any(each > int(has) for each in lacking)
                after = self._ended(rank)
            elif plan.together:
                after = self._ended(rank)
            elif rank.running:
                # It is carried out anew, from what is there.
                wrong |= any(rank.rows)
            ranks.append(after._replace(phase=BEYOND, seen=None) if rank.phase == FENCED else after)
        if plan.together:
            wrong |= self._wrong_rows(state, seen)
        yield action, state._replace(ranks=tuple(ranks)), wrong

    def _wrong_rows(self, state: Place, seen: list[Seen]) -> bool:
        """Return whether a row is summed of what is no contribution any more."""
        for slot in range(self.slots):
            for row in range(self.rows):
                has = [each.rows[slot] > row for each in seen]
                if any(has) and (self.guards.gives or all(has)):
                    continue
                if any(rank.rows[slot] > row for rank in state.ranks):
                    return True
        return False

    def _call_beyond(self, state: Place) -> Iterator[Step]:
        """Carry out a call over the other carrier."""
        if all(rank.phase == BEYOND and rank.running for rank in state.ranks):
            wrong = any(any(rank.rows) for rank in state.ranks)
            ranks = tuple(self._ended(rank) for rank in state.ranks)
            action = Action("all carry out a call without it", 0, 0)
            yield action, state._replace(ranks=ranks), wrong


def _with(values: tuple[T, ...], at: int, value: T) -> tuple[T, ...]:
    return (*values[:at], value, *values[at + 1 :])


FAIL_OVER_FAULTS = {
    "a rank takes results after it has written its state": FailOverGuards(fence=False),
    "nothing is kept of a call that is over": FailOverGuards(keeps=False),
    "what is kept goes when the next call begins": FailOverGuards(keeps_until_heard=False),
    "ranks keep their results to themselves": FailOverGuards(gives=False),
    "ranks act before all have written their states": FailOverGuards(waits_for_all=False),
    "a rank that leaves takes its results along": FailOverGuards(leaves_results=False),
}
"""Guards that are out, each of which the checker must miss."""
