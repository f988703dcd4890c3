"""A host whose ranks send one stream loses its aggregator: a transition system, with guards.

The leader and another rank go through calls, each of which has so many pieces, and a piece so many
results. They share memory for two pieces (`afflux.group.reducers.host_worker`), and meet between
any two. From the moment that the aggregator is declared dead, each of them leaves at any point
where it waits; so the leader may be in a piece, between two, or in another call than the other one.

It is wrong to take out what is not of the piece, or not whole; and both must have the same results
in the end, as `afflux.group.reducers.recovery` takes the results of a host to be in one state.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.models.slot_model import Action

__all__ = ["HOST_FAULTS", "HostGuards", "HostModel", "Memory"]

USES, FENCED, SETTLED = range(3)
"""A rank uses the aggregator; has left its call; has what the leader had, too."""


@dataclass(frozen=True)
class HostGuards:
    """The guards of the change.

    Attributes:
        waits: The other rank takes nothing before the leader has fenced itself off.
        begun: The other takes nothing of a piece that the leader has not begun.
        keeps_off: The leader that waits for the other leaves the memory alone.
        ends: The leader ends a call all of whose pieces are whole.
    """

    waits: bool = True
    begun: bool = True
    keeps_off: bool = True
    ends: bool = True


class Half(NamedTuple):
    """The piece that lies in a half of the memory, and how many of its results are there."""

    call: int = -1
    piece: int = 0
    results: int = 0


class Member(NamedTuple):
    """A rank.

    Attributes:
        phase: USES, FENCED or SETTLED.
        over: Calls that it has ended.
        running: Whether the next one is running.
        came: How often it has come to a meeting of this call.
        waits: Whether it waits there for the other one.
        done: Pieces of this call that are whole.
        results: Results of the piece behind these.
    """

    phase: int = USES
    over: int = 0
    running: bool = False
    came: int = 0
    waits: bool = False
    done: int = 0
    results: int = 0


class Memory(NamedTuple):
    """The state of all."""

    declared: bool
    leader: Member
    other: Member
    halves: tuple[Half, Half]


Step = tuple[Action, Memory, bool]


@dataclass(frozen=True)
class HostModel:
    """Steps of two ranks of a host.

    Attributes:
        pieces: Of a call.
        results: Of a piece.
        calls: How many each rank makes.
        guards: Which guards are in place.
    """

    pieces: int
    results: int
    calls: int = 2
    guards: HostGuards = HostGuards()

    def first(self) -> Memory:
        """Return the first state: nobody has called anything."""
        return Memory(False, Member(), Member(), (Half(), Half()))

    def is_over(self, state: Memory) -> bool:
        """Return whether all calls are over, or both have left and have the same."""
        ended = all(each.over == self.calls for each in (state.leader, state.other))
        return ended or state.other.phase == SETTLED

    def canonical(self, state: Memory) -> Memory:
        """Return it as it is: the two differ."""
        return state

    def steps(self, state: Memory) -> Iterator[Step]:
        """Yield every step that may come next and changes something."""
        if not state.declared:
            yield self._step("the aggregator is declared dead", state._replace(declared=True))
        if state.leader.phase == USES:
            yield from self._of_leader(state)
        if state.other.phase == USES:
            yield from self._of_other(state)
        elif state.other.phase == FENCED and (
            state.leader.phase == FENCED or not self.guards.waits
        ):
            yield self._settle(state)

    def _step(self, text: str, after: Memory, wrong: bool = False) -> Step:
        return Action(text, 0, 0), after, wrong

    def _of_leader(self, state: Memory) -> Iterator[Step]:
        leader, other = state.leader, state.other
        at = leader.done % 2
        if not leader.running:
            if leader.over < self.calls:
                begun = Member(over=leader.over, running=True, came=1, waits=True)
                yield self._step("the leader begins a call", state._replace(leader=begun))
        elif leader.waits:
            if _has_come(other, leader):
                if leader.done == self.pieces:
                    after = state._replace(leader=Member(over=leader.over + 1))
                else:
                    empty = Half(leader.over, leader.done, 0)
                    after = state._replace(
                        leader=leader._replace(waits=False, results=0),
                        halves=_with(state.halves, at, empty),
                    )
                yield self._step("the leader goes on from the meeting", after)
        elif leader.results < self.results:
            more = leader._replace(results=leader.results + 1)
            half = Half(leader.over, leader.done, more.results)
            halves = _with(state.halves, at, half)
            yield self._step("a result comes", state._replace(leader=more, halves=halves))
        else:
            whole = leader._replace(
                came=leader.came + 1, waits=True, done=leader.done + 1, results=0
            )
            yield self._step("the leader has a whole piece", state._replace(leader=whole))
        if state.declared and (not leader.running or leader.waits or leader.results < self.results):
            yield self._step("the leader fences itself off", self._fence(state))

    def _fence(self, state: Memory) -> Memory:
        leader, halves = state.leader, state.halves
        if leader.running and leader.done == self.pieces:
            if self.guards.ends:
                leader = Member(over=leader.over + 1)
        elif leader.running and not (leader.waits and self.guards.keeps_off):
            half = Half(leader.over, leader.done, leader.results)
            halves = _with(halves, leader.done % 2, half)
        return state._replace(leader=leader._replace(phase=FENCED), halves=halves)

    def _of_other(self, state: Memory) -> Iterator[Step]:
        leader, other = state.leader, state.other
        if not other.running:
            if other.over < self.calls:
                begun = Member(over=other.over, running=True, came=1, waits=True)
                yield self._step("the other begins a call", state._replace(other=begun))
        elif other.waits:
            if _has_come(leader, other):
                # From the first meeting it comes to the second one, with another piece.
                gone = other._replace(came=2) if other.came == 1 else other._replace(waits=False)
                yield self._step("the other goes on from a meeting", state._replace(other=gone))
        else:
            taken, wrong = self._taken(state, other)
            yield self._step("the other takes out a piece", state._replace(other=taken), wrong)
        if state.declared and (not other.running or other.waits):
            fenced = other._replace(phase=FENCED)
            yield self._step("the other leaves its call", state._replace(other=fenced))

    def _taken(self, state: Memory, other: Member) -> tuple[Member, bool]:
        """Return the other with one more piece, and whether that is wrong."""
        half = state.halves[other.done % 2]
        wrong = half != Half(other.over, other.done, self.results)
        if other.done + 1 == self.pieces:
            return Member(phase=other.phase, over=other.over + 1), wrong
        came = other.came + 1
        return other._replace(came=came, waits=True, done=other.done + 1), wrong

    def _settle(self, state: Memory) -> Step:
        """Let the other take out what the leader has left."""
        leader, other, wrong = state.leader, state.other, False
        both = other.running and leader.over == other.over and leader.running
        done = leader.done if both else other.done
        if other.running and leader.over > other.over:
            done = self.pieces
        while other.running and other.done < done:
            other, bad = self._taken(state, other)
            wrong |= bad
        if other.running and both and not (leader.waits and self.guards.begun):
            half = state.halves[other.done % 2]
            wrong |= half[:2] != (other.over, other.done)
            other = other._replace(results=half.results)
        wrong |= (other.over, other.done, other.results) != (
            (leader.over, leader.done, leader.results) if leader.running else (leader.over, 0, 0)
        )
        settled = state._replace(other=other._replace(phase=SETTLED))
        return self._step("the other settles", settled, wrong)


def _has_come(who: Member, waiting: Member) -> bool:
    """Return whether a rank has come to the meeting where the other one waits."""
    here = who.over == waiting.over and who.running and who.came >= waiting.came
    return here or who.over > waiting.over


def _with(halves: tuple[Half, Half], at: int, half: Half) -> tuple[Half, Half]:
    return (half, halves[1]) if at == 0 else (halves[0], half)


HOST_FAULTS = {
    "the other does not wait for the leader": HostGuards(waits=False),
    "a piece that has not begun has the marks of another": HostGuards(begun=False),
    "the leader writes while it waits": HostGuards(keeps_off=False),
    "a call all of whose pieces are whole goes on": HostGuards(ends=False),
}
"""Guards that are out, each of which the checker must miss."""
