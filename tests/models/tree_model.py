"""One slot of a tree as a small transition system, with guards that can be taken out.

Leaves with workers, and one parent above (`docs/protocol.md` section 5.6); one slot, one lane.
`slot_model` shows the behaviour of an aggregator alone; here it is right, but for the guards that
matter between levels. So a sum needs no list of contributions, only what it is exact for: the sum
of a leaf's own workers in a round, the sum of all workers in a round, or nothing.

* **The network** loses, duplicates, delays and reorders on all links. Every packet ever sent may
  arrive at any later moment, any number of times, or never: a loss does not take a step of its own.
  But all that is on the way may be lost at once. Whatever is a dead end when some of it is lost is
  one when all is, so no dead end is overlooked.
* **Timeouts**: when all is lost, workers have sent DATA of their outstanding round a second time
  in vain. From then on they only probe, and send DATA again when a MISSING packet makes them.
* **The transmit queue**: a queued partial sum is begun at some later moment, and its sums are read
  at a later one still.

Workers of a leaf are alike, and so are leaves; states that differ only in numbering are one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from tests.models.slot_model import NOT_BEGUN, Action

__all__ = ["TreeGuards", "TreeModel", "TreeState"]

# The workers and the round for which a sum is exact. PARTIAL: those of the leaf.
PARTIAL, TOTAL, WRONG = "partial", "total", "wrong"
Sum = tuple[str, int]
NOTHING: Sum = (WRONG, -1)
# An entry of a queue or of a link: a round, with a header or a sum.
Entry = TypeVar("Entry", bound=tuple[int, object])


@dataclass(frozen=True)
class TreeGuards:
    """The guards of the sums, and of the completion, between the levels of a tree.

    Attributes:
        waiting_is_incomplete: A round that waits for the parent is not complete, so it is not
            replayed. Without: what is full is replayed.
        opens_when_complete: Round R + 1 opens only when R is complete. Without: when it is full.
        sends_up_again: A duplicate of a waiting round sends the partial sum up again.
        data_when_all_are_in: A worker that learns that nobody is missing sends DATA again.
        only_while_waiting: A result of the parent is taken only while the slot waits for one.
        exact_round: A result of the parent is taken only for exactly the round that waits. Without:
            for any round of the same version.
        header_in_descriptor: A queued partial sum carries the round that it is of. Without: the
            header is made when it is begun, from R.
        seen_check: The parent does not add again what is in. Without: partial sums that are sent
            again count again.
        replay_previous: The parent answers a partial sum of its round R − 1 with that round's
            result.
        worker_waits: A worker contributes to r + 1 only when it has the result of r. Without: one
            round earlier.
    """

    waiting_is_incomplete: bool = True
    opens_when_complete: bool = True
    sends_up_again: bool = True
    data_when_all_are_in: bool = True
    only_while_waiting: bool = True
    exact_round: bool = True
    header_in_descriptor: bool = True
    seen_check: bool = True
    replay_previous: bool = True
    worker_waits: bool = True


class TreeWorker(NamedTuple):
    """A worker, with what its leaf and the network hold of it."""

    # Outstanding round; when it reaches the number of rounds, the worker has finished.
    round: int
    # Whether DATA of the outstanding round arrives no more, unless it is made to send it.
    lost: bool
    seen: bool
    # Results sent to it: round in the header, sum. Sorted, no doubles.
    results: tuple[tuple[int, Sum], ...]


class Leaf(NamedTuple):
    """A leaf, with what the parent and the network hold of it."""

    open_round: int
    waiting: bool
    # The content of each version.
    sums: tuple[Sum, Sum]
    # Partial sums queued: round, and the header once begun. Sorted, no doubles.
    queue: tuple[tuple[int, int], ...]
    # On the way up and down: round in the header, sum. Sorted, no doubles.
    up: tuple[tuple[int, Sum], ...]
    down: tuple[tuple[int, Sum], ...]
    # At the parent: whether it is seen, and its part in each version.
    seen: bool
    in_parent: tuple[tuple[Sum, ...], tuple[Sum, ...]]
    workers: tuple[TreeWorker, ...]

    @property
    def full(self) -> bool:
        return all(worker.seen for worker in self.workers)


class TreeState(NamedTuple):
    """R of the parent, and the leaves."""

    open_round: int
    leaves: tuple[Leaf, ...]


# One step: what it is, where it leads, and whether a worker has taken a wrong sum in it.
TreeStep = tuple[Action, TreeState, bool]


@dataclass(frozen=True)
class TreeModel:
    """Steps of one slot in a tree of two levels.

    Attributes:
        leaves: Number of workers of each leaf.
        rounds: How many rounds each worker goes through, from 0 on.
        guards: Which guards are in place.
        atomic_transmit: Whether a partial sum is begun and its sums are read in one step.
        forgetful: Whether what can make no difference any more is left out of the state, which
            keeps the number of states small.
    """

    leaves: tuple[int, ...]
    rounds: int
    guards: TreeGuards = TreeGuards()
    atomic_transmit: bool = False
    forgetful: bool = True

    def first(self) -> TreeState:
        """Return the first state: R is the round before the first, and complete, on both levels."""
        worker = TreeWorker(round=0, lost=False, seen=True, results=())
        return TreeState(
            -1,
            tuple(
                Leaf(-1, False, (NOTHING, NOTHING), (), (), (), True, ((), ()), (worker,) * count)
                for count in self.leaves
            ),
        )

    def is_over(self, state: TreeState) -> bool:
        """Return whether all workers have the results of all rounds."""
        return all(worker.round == self.rounds for leaf in state.leaves for worker in leaf.workers)

    def canonical(self, state: TreeState) -> TreeState:
        """Return the same for all states that differ only in numbers of workers and leaves."""
        leaves = (leaf._replace(workers=tuple(sorted(leaf.workers))) for leaf in state.leaves)
        return TreeState(state.open_round, tuple(sorted(leaves)))

    def steps(self, state: TreeState) -> Iterator[TreeStep]:
        """Yield every step that may come next and changes something."""
        for number, leaf in enumerate(state.leaves):
            for what, r, after, wrong in self._leaf_steps(leaf):
                where = f"leaf {number}: {what}"
                yield Action(where, number, r), self._with_leaf(state, number, after), wrong
            for header, sum_ in leaf.up:
                for what, after_all in self._arrives_above(state, number, header, sum_):
                    action = Action(f"parent: {what} of leaf {number}", number, header)
                    yield action, after_all, False
        yield Action("all that is on the way is lost", 0, 0), self._all_lost(state), False

    def _leaf_steps(self, leaf: Leaf) -> Iterator[tuple[str, int, Leaf, bool]]:
        """Yield the steps in which only a leaf and its workers take part."""
        for w, worker in enumerate(leaf.workers):
            yield from self._worker_steps(leaf, w, worker)
        for entry in leaf.queue:
            yield self._transmit(leaf, entry)
        for header, sum_ in leaf.down:
            if self._takes(leaf, header):
                taken = leaf._replace(
                    waiting=False, sums=with_sum(leaf.sums, leaf.open_round, sum_)
                )
                for w in range(len(leaf.workers)):
                    taken = self._result(taken, w, leaf.open_round)
                yield "result of round {r} comes down and is taken", header, taken, False

    def _worker_steps(
        self, leaf: Leaf, w: int, worker: TreeWorker
    ) -> Iterator[tuple[str, int, Leaf, bool]]:
        ahead = 0 if self.guards.worker_waits else 1
        latest = min(worker.round + ahead, self.rounds - 1)
        # Packets of earlier rounds than R − 1 are stale and change nothing.
        for r in range(max(0, leaf.open_round - 1), latest + 1):
            if r != worker.round or not worker.lost:
                for what, after in self._data(leaf, w, r):
                    yield f"DATA of round {{r}} from worker {w} {what}", r, after, False
            for what, after in self._probe(leaf, w, r):
                yield f"PROBE of round {{r}} from worker {w} {what}", r, after, False
        for header, sum_ in worker.results:
            if header == worker.round:
                wrong = sum_ != (TOTAL, header)
                contents = "a wrong sum" if wrong else "the right sum"
                # Copies of older results can no longer arrive, or make no difference.
                after = with_worker(
                    leaf, w, worker._replace(round=header + 1, lost=False, results=())
                )
                yield (
                    f"worker {w} takes the result of round {{r}}, {contents}",
                    header,
                    after,
                    wrong,
                )

    def _data(self, leaf: Leaf, w: int, r: int) -> Iterator[tuple[str, Leaf]]:
        """Let DATA of round r from worker w arrive at its leaf."""
        distance = r - leaf.open_round
        if distance == 1 and leaf.full and not (leaf.waiting and self.guards.opens_when_complete):
            workers = tuple(worker._replace(seen=False) for worker in leaf.workers)
            opened = leaf._replace(
                open_round=r,
                waiting=False,
                sums=with_sum(leaf.sums, r, (PARTIAL, r)),
                workers=workers,
            )
            yield "opens the round", self._added(opened, w, r)
        elif distance == 0 and not leaf.workers[w].seen:
            yield "is added", self._added(leaf, w, r)
        elif distance == 0 and leaf.waiting and self.guards.waiting_is_incomplete:
            if self.guards.sends_up_again and (r, NOT_BEGUN) not in leaf.queue:
                queue = insert(leaf.queue, (r, NOT_BEGUN))
                yield "queues the partial sum again", leaf._replace(queue=queue)
        else:
            yield from self._replay(leaf, w, r)

    def _probe(self, leaf: Leaf, w: int, r: int) -> Iterator[tuple[str, Leaf]]:
        """Let PROBE for round r from worker w arrive at its leaf."""
        distance = r - leaf.open_round
        worker = leaf.workers[w]
        incomplete = not leaf.full or (leaf.waiting and self.guards.waiting_is_incomplete)
        if distance == 1 or (distance == 0 and incomplete):
            # MISSING makes the workers that it names send again; in round R + 1 it names all.
            must_resend = distance == 1 or not worker.seen
            must_resend = must_resend or (leaf.full and self.guards.data_when_all_are_in)
            if must_resend and worker.lost and r == worker.round:
                after = with_worker(leaf, w, worker._replace(lost=False))
                yield "brings MISSING and DATA again", after
        else:
            yield from self._replay(leaf, w, r)

    def _replay(self, leaf: Leaf, w: int, r: int) -> Iterator[tuple[str, Leaf]]:
        """Replay the result of round r for worker w, if it is R and complete, or R − 1."""
        distance = r - leaf.open_round
        if distance == -1 or (distance == 0 and leaf.full):
            after = self._result(leaf, w, r)
            if after != leaf:
                yield "brings its result again", after

    def _result(self, leaf: Leaf, w: int, r: int) -> Leaf:
        """Send the result of round r to worker w, unless that has left the round."""
        worker = leaf.workers[w]
        if r < worker.round:
            return leaf
        results = insert(worker.results, (r, leaf.sums[r & 1]))
        return with_worker(leaf, w, worker._replace(results=results))

    def _added(self, leaf: Leaf, w: int, r: int) -> Leaf:
        """Add worker w; if all are in, queue the partial sum."""
        leaf = with_worker(leaf, w, leaf.workers[w]._replace(seen=True))
        if leaf.full:
            leaf = leaf._replace(waiting=True, queue=insert(leaf.queue, (r, NOT_BEGUN)))
        return leaf

    def _transmit(self, leaf: Leaf, entry: tuple[int, int]) -> tuple[str, int, Leaf, bool]:
        """Begin or discard a queued partial sum; or let one that is begun read its sums."""
        r, header = entry
        rest = without(leaf.queue, entry)
        if header == NOT_BEGUN:
            if leaf.open_round not in (r, r + 1):
                discarded = leaf._replace(queue=rest)
                return "queued partial sum of round {r} is discarded", r, discarded, False
            header = r if self.guards.header_in_descriptor else leaf.open_round
            if not self.atomic_transmit:
                begun = leaf._replace(queue=insert(rest, (r, header)))
                what = f"partial sum of round {{r}} is begun, its header names {header}"
                return what, r, begun, False
        kind, of = leaf.sums[r & 1]
        # The round that the version has gone on to may not be full.
        whole = (kind, of) if of == r or leaf.full else NOTHING
        sent = leaf._replace(queue=rest, up=insert(leaf.up, (header, whole)))
        return "partial sum of round {r} leaves", header, sent, False

    def _takes(self, leaf: Leaf, header: int) -> bool:
        """Return whether a result of the parent is taken, for round R."""
        if self.guards.exact_round:
            fits = header == leaf.open_round
        else:
            fits = header & 1 == leaf.open_round & 1
        return fits and (leaf.waiting or not self.guards.only_while_waiting)

    def _arrives_above(
        self, state: TreeState, number: int, r: int, sum_: Sum
    ) -> Iterator[tuple[str, TreeState]]:
        """Let a partial sum of round r arrive at the parent, where it is DATA."""
        distance = r - state.open_round
        leaf = state.leaves[number]
        full = all(other.seen for other in state.leaves)
        after = state
        if distance == 1 and full:
            leaves = tuple(
                other._replace(seen=False, in_parent=with_item(other.in_parent, r & 1, ()))
                for other in state.leaves
            )
            opened = TreeState(r, leaves)
            yield "round {r} is opened by a partial sum", self._added_above(opened, number, r, sum_)
        elif distance == 0 and not leaf.seen:
            yield "partial sum of round {r} is added", self._added_above(state, number, r, sum_)
        elif distance == 0 and not self.guards.seen_check:
            after = self._added_above(state, number, r, sum_)
            yield "partial sum of round {r} is added again", after
        elif (distance == 0 and full) or (distance == -1 and self.guards.replay_previous):
            after = self._send_down(state, number, r)
            if after != state:
                yield "result of round {r} is sent again, asked for by a partial sum", after

    def _all_lost(self, state: TreeState) -> TreeState:
        """Lose all that was ever sent, with every timeout run out once."""
        leaves = []
        for leaf in state.leaves:
            workers = tuple(
                worker._replace(lost=worker.round < self.rounds, results=())
                for worker in leaf.workers
            )
            leaves.append(leaf._replace(queue=(), up=(), down=(), workers=workers))
        return TreeState(state.open_round, tuple(leaves))

    def _added_above(self, state: TreeState, number: int, r: int, sum_: Sum) -> TreeState:
        leaf = state.leaves[number]
        sums = tuple(sorted((*leaf.in_parent[r & 1], sum_)))
        leaf = leaf._replace(seen=True, in_parent=with_item(leaf.in_parent, r & 1, sums))
        state = self._with_leaf(state, number, leaf)
        if all(other.seen for other in state.leaves):
            for each in range(len(state.leaves)):
                state = self._send_down(state, each, r)
        return state

    def _send_down(self, state: TreeState, number: int, r: int) -> TreeState:
        """Send the parent's result of round r to a leaf."""
        exact = all(leaf.in_parent[r & 1] == ((PARTIAL, r),) for leaf in state.leaves)
        leaf = state.leaves[number]
        down = insert(leaf.down, (r, (TOTAL, r) if exact else NOTHING))
        return self._with_leaf(state, number, leaf._replace(down=down))

    def _with_leaf(self, state: TreeState, number: int, leaf: Leaf) -> TreeState:
        """Return the state with a leaf replaced, without what makes no difference any more."""
        leaves = (*state.leaves[:number], leaf, *state.leaves[number + 1 :])
        return TreeState(
            state.open_round, tuple(self._forget(state.open_round, each) for each in leaves)
        )

    def _forget(self, above: int, leaf: Leaf) -> Leaf:
        """Drop what changes nothing whenever it arrives, because rounds only grow.

        Results of rounds that the leaf has completed, or left behind; and, as the parent has made
        these from its partial sums, those partial sums too. Where the guards that make it so are
        out, more is kept.
        """
        guards = self.guards
        if not self.forgetful:
            return leaf
        done = guards.only_while_waiting and leaf.full and not leaf.waiting
        first = leaf.open_round + (1 if done else 0)
        down, up, queue = leaf.down, leaf.up, leaf.queue
        if guards.exact_round:
            down = tuple(entry for entry in down if entry[0] >= first)
        needed = above - 1
        if guards.seen_check and guards.header_in_descriptor and guards.worker_waits:
            needed = max(needed, first)
            queue = tuple(entry for entry in queue if entry[0] >= first)
        up = tuple(entry for entry in up if entry[0] >= needed)
        return leaf._replace(up=up, down=down, queue=queue)


def with_worker(leaf: Leaf, w: int, worker: TreeWorker) -> Leaf:
    workers = leaf.workers
    return leaf._replace(workers=(*workers[:w], worker, *workers[w + 1 :]))


def with_sum(sums: tuple[Sum, Sum], r: int, item: Sum) -> tuple[Sum, Sum]:
    """Return the pair with the sum of round r's version replaced."""
    return (item, sums[1]) if r & 1 == 0 else (sums[0], item)


def with_item(
    pair: tuple[tuple[Sum, ...], tuple[Sum, ...]], v: int, item: tuple[Sum, ...]
) -> tuple[tuple[Sum, ...], tuple[Sum, ...]]:
    """Return the pair with its item v replaced."""
    return (item, pair[1]) if v == 0 else (pair[0], item)


def insert(items: tuple[Entry, ...], item: Entry) -> tuple[Entry, ...]:
    """Return the sorted tuple with one more item, without duplicates."""
    return items if item in items else tuple(sorted((*items, item)))


def without(items: tuple[Entry, ...], item: Entry) -> tuple[Entry, ...]:
    return tuple(other for other in items if other != item)
