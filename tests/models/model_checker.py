"""Explores every state of the models: none takes a wrong sum, and none is a dead end.

Breadth first, so that a counterexample is as short as there is one. A dead end is a state from
which completion cannot be reached, however kind the network becomes; that no state is one is shown
by walking back from completion. `python -m tests.models.model_checker` prints how many states
there are, and for each guard that is taken out the shortest way to the fault.
"""

import time
from array import array
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from tests.models.slot_model import Action, Guards, SlotModel
from tests.models.tree_model import TreeGuards, TreeModel

__all__ = [
    "FAULTS",
    "SIZES",
    "TREE_FAULTS",
    "TREE_SIZES",
    "Fault",
    "Outcome",
    "TreeFault",
    "check",
    "report",
]

S = TypeVar("S", bound=Hashable)


@dataclass(frozen=True)
class Outcome:
    """The checker's findings.

    Attributes:
        states, steps: How many different states were reached, and by how many steps between them.
        fault: None, "wrong sum" or "dead end".
        trace: The shortest sequence of steps that shows the fault.
    """

    states: int
    steps: int
    fault: str | None = None
    trace: tuple[Action, ...] = field(default=(), repr=False)


class Model(Protocol[S]):
    """A transition system: what the checker asks of a model."""

    def first(self) -> S: ...

    def is_over(self, state: S) -> bool: ...

    def canonical(self, state: S) -> S: ...

    def steps(self, state: S) -> Iterator[tuple[Action, S, bool]]: ...


def check(model: Model[S]) -> Outcome:
    """Explore all states that the model can reach, or those before the first wrong sum."""
    first = model.canonical(model.first())
    numbers = {first: 0}
    states = [first]
    parents = array("l", [0])
    # Steps as pairs of state numbers, for the way back.
    sources, targets = array("l"), array("l")

    at = 0
    while at < len(states):
        for _, after, wrong in model.steps(states[at]):
            if wrong:
                way = [*path(states, parents, at), model.canonical(after)]
                return Outcome(
                    len(states), len(sources), "wrong sum", name_steps(model, way, ends_wrong=True)
                )
            state = model.canonical(after)
            number = numbers.setdefault(state, len(states))
            if number == len(states):
                states.append(state)
                parents.append(at)
            if number != at:
                sources.append(at)
                targets.append(number)
        at += 1

    over = [number for number, state in enumerate(states) if model.is_over(state)]
    hopeful = walk_back(len(states), over, sources, targets)
    dead = hopeful.find(0)
    if dead < 0:
        return Outcome(len(states), len(sources))
    # States are numbered in the order of their distance, so this one is as near as any.
    way = path(states, parents, dead)
    return Outcome(len(states), len(sources), "dead end", name_steps(model, way))


def path(states: list[S], parents: "array[int]", to: int) -> list[S]:
    """Return the states from the first one to number `to`."""
    numbers = [to]
    while numbers[-1] != 0:
        numbers.append(parents[numbers[-1]])
    return [states[number] for number in reversed(numbers)]


def walk_back(
    count: int, over: list[int], sources: "array[int]", targets: "array[int]"
) -> bytearray:
    """Return for each state 1 if one of `over` can be reached from it."""
    # Sources of the steps into each state, one state after another.
    begins = array("l", bytes(8 * (count + 1)))
    for target in targets:
        begins[target + 1] += 1
    for number in range(count):
        begins[number + 1] += begins[number]
    free = array("l", begins)
    into = array("l", bytes(8 * len(sources)))
    for source, target in zip(sources, targets, strict=True):
        into[free[target]] = source
        free[target] += 1

    reached = bytearray(count)
    for number in over:
        reached[number] = 1
    todo = list(over)
    while todo:
        number = todo.pop()
        for source in into[begins[number] : begins[number + 1]]:
            if not reached[source]:
                reached[source] = 1
                todo.append(source)
    return reached


def name_steps(model: Model[S], way: list[S], *, ends_wrong: bool = False) -> tuple[Action, ...]:
    """Name the steps along the way, each worker with the same number throughout.

    The states on the way have their workers sorted; here they are walked again unsorted.
    """
    state = model.first()
    actions = []
    for at, target in enumerate(way[1:], start=2):
        for action, after, wrong in model.steps(state):
            if model.canonical(after) == target and wrong == (ends_wrong and at == len(way)):
                actions.append(action)
                state = after
                break
        else:
            raise AssertionError("no step leads along the way")
    return tuple(actions)


@dataclass(frozen=True)
class Fault:
    """Guards to take out, and the violation that the checker must find (None: nothing)."""

    name: str
    guards: Guards
    expected: str | None
    atomic_transmit: bool = False

    def model(self) -> SlotModel:
        """Make the model: two workers and four rounds are enough to show every fault."""
        return SlotModel(2, 4, guards=self.guards, atomic_transmit=self.atomic_transmit)


FAULTS = (
    Fault("frames with a bad end are merged", Guards(whole_frames=False), "wrong sum"),
    Fault(
        "the header of a result is made when it is sent",
        Guards(header_in_descriptor=False),
        "wrong sum",
    ),
    Fault("a worker takes results of other rounds", Guards(exact_round=False), "wrong sum"),
    Fault("one version instead of two", Guards(two_versions=False), "wrong sum"),
    Fault("a contribution that is in is added again", Guards(seen_check=False), "wrong sum"),
    Fault("results of R − 1 are not replayed", Guards(replay_previous=False), "dead end"),
    Fault("workers run a round ahead", Guards(worker_waits=False), "wrong sum"),
    # A packet can be premature only if a worker runs ahead. As long as no result is overtaken
    # while it is sent, the guard then saves the sums, though not the completion.
    Fault(
        "workers run a round ahead, results are sent in one step",
        Guards(worker_waits=False),
        "dead end",
        atomic_transmit=True,
    ),
    Fault(
        "workers run a round ahead, results are sent in one step, premature packets open rounds",
        Guards(worker_waits=False, drop_premature=False),
        "wrong sum",
        atomic_transmit=True,
    ),
    # Where workers keep the rules, these two are spare: other guards keep out the same faults.
    Fault("premature packets open rounds", Guards(drop_premature=False), None),
    Fault("outdated results are sent", Guards(discard_outdated=False), None),
)


@dataclass(frozen=True)
class TreeFault:
    """The same for guards between the levels of a tree."""

    name: str
    guards: TreeGuards
    expected: str | None
    rounds: int = 4
    atomic_transmit: bool = False

    def model(self) -> TreeModel:
        """Make the model: two leaves of one worker are enough to show every fault."""
        return TreeModel(
            (1, 1), self.rounds, guards=self.guards, atomic_transmit=self.atomic_transmit
        )


TREE_FAULTS = (
    TreeFault("a waiting round is replayed", TreeGuards(waiting_is_incomplete=False), "wrong sum"),
    TreeFault(
        "a duplicate while waiting is not sent up", TreeGuards(sends_up_again=False), "dead end"
    ),
    TreeFault(
        "nobody sends DATA again where nobody is missing",
        TreeGuards(data_when_all_are_in=False),
        "dead end",
    ),
    TreeFault("a leaf takes results of other rounds", TreeGuards(exact_round=False), "wrong sum"),
    TreeFault(
        "the header of a partial sum is made when it is sent",
        TreeGuards(header_in_descriptor=False),
        "wrong sum",
    ),
    TreeFault("a partial sum that is in is added again", TreeGuards(seen_check=False), "wrong sum"),
    TreeFault("the parent does not replay R − 1", TreeGuards(replay_previous=False), "dead end"),
    # As below one aggregator: only a worker that runs ahead meets the first of these.
    TreeFault(
        "workers run a round ahead, full rounds make room for the next",
        TreeGuards(worker_waits=False, opens_when_complete=False),
        "wrong sum",
        rounds=2,
        atomic_transmit=True,
    ),
    TreeFault("full rounds make room for the next", TreeGuards(opens_when_complete=False), None),
    # A result that comes twice is the same one.
    TreeFault(
        "a result is taken that the slot does not wait for",
        TreeGuards(only_while_waiting=False),
        None,
        rounds=2,
    ),
)

# Workers of each leaf, and rounds.
TREE_SIZES = (((1, 1), 5), ((2, 1), 2), ((2, 2), 2), ((1, 1, 1), 1))

# Workers and rounds of the protocol as it is.
SIZES = ((1, 12), (2, 12), (3, 8), (4, 5))


def fault_lines(name: str, outcome: Outcome) -> Iterator[str]:
    """Show what was found without some guards, and the way there."""
    yield ""
    yield f"{name}: {outcome.fault or 'no fault'} ({outcome.states} states)"
    for number, action in enumerate(outcome.trace, start=1):
        yield f"  {number:2}. {action}"


def report() -> Iterator[str]:
    """Return the lines of the report: the protocol as it is, then without each guard."""
    for workers, rounds in SIZES:
        start = time.monotonic()
        outcome = check(SlotModel(workers, rounds))
        yield (
            f"{workers} workers, {rounds} rounds: {outcome.states} states, {outcome.steps} steps, "
            f"{outcome.fault or 'no fault'} ({time.monotonic() - start:.1f} s)"
        )
    for leaves, rounds in TREE_SIZES:
        start = time.monotonic()
        outcome = check(TreeModel(leaves, rounds))
        yield (
            f"leaves of {', '.join(map(str, leaves))} workers, {rounds} rounds: {outcome.states} "
            f"states, {outcome.steps} steps, {outcome.fault or 'no fault'} "
            f"({time.monotonic() - start:.1f} s)"
        )
    for fault in FAULTS:
        yield from fault_lines(fault.name, check(fault.model()))
    for tree_fault in TREE_FAULTS:
        yield from fault_lines(tree_fault.name, check(tree_fault.model()))


if __name__ == "__main__":
    for line in report():
        print(line, flush=True)
