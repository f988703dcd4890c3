"""Ranks that come back to an aggregator as a small transition system, with guards to take out.

N ranks go through calls, one after the other, of which some need all ranks, and others only what
one rank, the root, has sent before. Each rank carries out a call over what has taken the
aggregator's place, or over the aggregator; all must take the same way in each call. Rank 0 may
declare at any moment that an aggregator answers, and each rank may hear of it at any later one, in
a call or between two. To join may fail at any rank, and a rank may give up waiting for the others
before it has joined; then all stay where they are, and rank 0 may declare the next attempt.

It is wrong if two ranks take different ways in a call; and a dead end if ranks wait for each other.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from tests.models.slot_model import Action

__all__ = ["FAIL_BACK_FAULTS", "FailBackGuards", "FailBackModel"]

NOT_YET, JOINED, FAILED = range(3)


@dataclass(frozen=True)
class FailBackGuards:
    """The guards of the way back.

    Attributes:
        waits: A rank that has said how far it is begins no call before all have.
        counts_the_running: How far a rank is includes the call that it is in.
        goes_as_far: All carry out as many calls as any has begun. Without: as the first rank has.
        stays: A rank uses the aggregator when all have joined. Without: when it has joined.
        hears: A rank that waits for others hears that one has given up.
    """

    waits: bool = True
    counts_the_running: bool = True
    goes_as_far: bool = True
    stays: bool = True
    hears: bool = True


class Rank(NamedTuple):
    """A rank: its calls, and its part in the attempt.

    Attributes:
        ways: Of the calls that it has begun: whether over the aggregator.
        running: Whether it is in the last of these.
        back: Whether it uses the aggregator.
        attempt: The number of the attempt that it heeds.
    """

    ways: tuple[bool, ...] = ()
    running: bool = False
    back: bool = False
    attempt: int = 0


class Attempt(NamedTuple):
    """What is in the store of one attempt.

    Attributes:
        declared: Whether rank 0 has declared it.
        told: How far each rank is; -1 where it has not said so.
        joined: Of each rank, whether it has joined, or could not.
        failed: Whether a rank has given up.
    """

    declared: bool
    told: tuple[int, ...]
    joined: tuple[int, ...]
    failed: bool = False


class State(NamedTuple):
    """The state of all."""

    ranks: tuple[Rank, ...]
    attempts: tuple[Attempt, ...]


T = TypeVar("T")
Step = tuple[Action, State, bool]


@dataclass(frozen=True)
class FailBackModel:
    """Steps of a group whose aggregator answers again.

    Attributes:
        roots: Of each call the rank that all others wait for; None: all wait for all.
        size: N.
        attempts: How many there are at most.
        guards: Which guards are in place.
    """

    roots: tuple[int | None, ...]
    size: int = 3
    attempts: int = 2
    guards: FailBackGuards = FailBackGuards()

    def first(self) -> State:
        """Return the first state: nobody has called anything, and no aggregator answers."""
        attempt = Attempt(False, (-1,) * self.size, (NOT_YET,) * self.size)
        return State((Rank(),) * self.size, (attempt,) * self.attempts)

    def is_over(self, state: State) -> bool:
        """Return whether all ranks have ended all calls."""
        calls = len(self.roots)
        return all(len(rank.ways) == calls and not rank.running for rank in state.ranks)

    def canonical(self, state: State) -> State:
        """Return the state: ranks are not alike, as calls have roots."""
        return state

    def steps(self, state: State) -> Iterator[Step]:
        """Yield every step that may come next and changes something."""
        for number, rank in enumerate(state.ranks):
            if rank.running:
                yield from self._end(state, number, rank)
            elif self._may_begin(state, rank, number):
                ways = (*rank.ways, rank.back)
                yield self._step(state, number, "begins a call", rank, ways=ways, running=True)
            if not rank.back and rank.attempt < self.attempts:
                yield from self._attend(state, number, rank)

    def _step(
        self, state: State, number: int, text: str, rank: Rank, at: int = -1, **changes: Any
    ) -> Step:
        """Return a step of a rank: its changes, and those of an attempt, if `at` is one."""
        of_rank = {key: value for key, value in changes.items() if key in Rank._fields}
        ranks = _with(state.ranks, number, rank._replace(**of_rank))
        attempts = state.attempts
        if at >= 0:
            of_attempt = {key: value for key, value in changes.items() if key not in of_rank}
            attempts = _with(attempts, at, attempts[at]._replace(**of_attempt))
        wrong = any(len(set(each)) > 1 for each in _columns([rank.ways for rank in ranks]))
        return Action(f"rank {{w}} {text}", number, 0), State(ranks, attempts), wrong

    def _end(self, state: State, number: int, rank: Rank) -> Iterator[Step]:
        call = len(rank.ways)
        root = self.roots[call - 1]
        others = state.ranks if root is None else (state.ranks[root],)
        if all(len(each.ways) >= call for each in others):
            yield self._step(state, number, "ends a call", rank, running=False)

    def _may_begin(self, state: State, rank: Rank, number: int) -> bool:
        begun = len(rank.ways)
        if begun == len(self.roots):
            return False
        if rank.back or rank.attempt == self.attempts:
            return True
        attempt = state.attempts[rank.attempt]
        if attempt.told[number] < 0 or not self.guards.waits:
            return attempt.joined[number] == NOT_YET
        return -1 not in attempt.told and begun < self._target(attempt)

    def _target(self, attempt: Attempt) -> int:
        return max(attempt.told) if self.guards.goes_as_far else attempt.told[0]

    def _attend(self, state: State, number: int, rank: Rank) -> Iterator[Step]:
        at = rank.attempt
        attempt = state.attempts[at]
        if not attempt.declared:
            if number == 0:
                yield self._step(state, 0, "finds an aggregator", rank, at, declared=True)
            return
        if attempt.told[number] < 0:
            counted = rank.running and not self.guards.counts_the_running
            told = _with(attempt.told, number, len(rank.ways) - counted)
            yield self._step(state, number, "says how far it is", rank, at, told=told)
            return
        if rank.running:
            return
        joined = attempt.joined[number]
        if joined == NOT_YET and -1 not in attempt.told and len(rank.ways) == self._target(attempt):
            for outcome, text in ((JOINED, "joins"), (FAILED, "cannot join")):
                after = _with(attempt.joined, number, outcome)
                yield self._step(state, number, text, rank, at, joined=after)
        if joined == NOT_YET:
            yield self._step(
                state, number, "gives up", rank, at, failed=True, attempt=rank.attempt + 1
            )
        enough = set(attempt.joined) if self.guards.stays else {joined}
        if joined != NOT_YET and enough == {JOINED}:
            yield self._step(state, number, "uses the aggregator", rank, back=True)
        elif (NOT_YET not in attempt.joined and FAILED in attempt.joined) or (
            attempt.failed and self.guards.hears
        ):
            yield self._step(state, number, "stays where it is", rank, attempt=rank.attempt + 1)


def _with(values: tuple[T, ...], at: int, value: T) -> tuple[T, ...]:
    return (*values[:at], value, *values[at + 1 :])


def _columns(rows: list[tuple[bool, ...]]) -> Iterator[list[bool]]:
    """Yield the ways of all ranks that have begun a call, call by call."""
    for call in range(max(map(len, rows))):
        yield [row[call] for row in rows if len(row) > call]


FAIL_BACK_FAULTS = {
    "a rank that has said how far it is goes on": FailBackGuards(waits=False),
    "a call that is running is not counted": FailBackGuards(counts_the_running=False),
    "ranks go as far as rank 0 has begun": FailBackGuards(goes_as_far=False),
    "a rank uses what others have not joined": FailBackGuards(stays=False),
    "nobody hears that a rank has given up": FailBackGuards(hears=False),
}
"""Guards that are out, each of which the checker must miss."""
