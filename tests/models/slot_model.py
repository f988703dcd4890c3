"""One slot of the protocol as a small transition system, with guards that can be taken out.

N workers, one slot, one lane. Numbers are left out: a sum is the list of the contributions that
went into it, so that a missing, doubled or foreign one shows. The rest is `docs/protocol.md`
sections 5.3, 5.4 and 6:

* **The network** loses, duplicates, delays and reorders. A packet that was ever sent may arrive at
  any later moment, any number of times, or never. That covers retransmission and late replays too.
  A worker whose outstanding round is r may have sent its packets of all rounds up to r, so packets
  on the way to the aggregator need no state of their own.
* **The transmit queue** is apart from the completion of a round: a queued result is begun at some
  later moment, and its sums are read at a later one still, while rounds go on in between.
* **Reception**: a frame may have a bad end, which shows only after its blocks have passed.
* A MISSING packet makes a worker send again what it may send again at any time, so it is left out.

Workers are alike, so states that differ only in their numbering are one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Action", "Guards", "SlotModel", "State", "Worker"]

# The contributions for which a sum is exact, when it is exact for no round.
NO_ROUND = -1
# Header of a queued result that is not begun.
NOT_BEGUN = -1


@dataclass(frozen=True)
class Guards:
    """The guards of the sums, and of the completion, each of which the checker can do without.

    Attributes:
        whole_frames: A frame with a bad end touches nothing. Without: its blocks are merged, but
            its worker is not marked as seen.
        header_in_descriptor: A queued result carries the round that it is of. Without: the header
            is made when it is begun, from R.
        discard_outdated: A queued result is discarded if R is neither its round nor the next.
        exact_round: A worker takes only the result of its outstanding round. Without: any result of
            the same operation that the same version held.
        drop_premature: A packet of round R + 1 is dropped while R is incomplete. Without: it opens
            R + 1.
        two_versions: Rounds alternate between two versions. Without: all use one.
        seen_check: A contribution that is in is not added again.
        replay_previous: A packet of round R − 1 is answered with its result.
        worker_waits: A worker contributes to r + 1 only when it has the result of r. Without: one
            round earlier.
    """

    whole_frames: bool = True
    header_in_descriptor: bool = True
    discard_outdated: bool = True
    exact_round: bool = True
    drop_premature: bool = True
    two_versions: bool = True
    seen_check: bool = True
    replay_previous: bool = True
    worker_waits: bool = True


class Worker(NamedTuple):
    """A worker, with what the aggregator and the network hold of it."""

    # Outstanding round; when it reaches the number of rounds, the worker has finished.
    round: int
    seen: bool
    # For each version the rounds of this worker's contributions that are in its sum, sorted.
    in_sums: tuple[tuple[int, ...], tuple[int, ...]]
    # Results queued for it: round, and the header once begun. Sorted, no doubles.
    queue: tuple[tuple[int, int], ...]
    # Results sent to it: round in the header, round that the sum is exact for. Sorted, no doubles.
    results: tuple[tuple[int, int], ...]


class State(NamedTuple):
    """R, and the workers."""

    open_round: int
    workers: tuple[Worker, ...]


class Action(NamedTuple):
    """One step: what happens, to which worker, with which round."""

    what: str
    worker: int
    round: int

    def __str__(self) -> str:
        return self.what.format(w=self.worker, r=self.round)


# One step: what it is, where it leads, and whether a worker has taken a wrong sum in it.
Step = tuple[Action, State, bool]


@dataclass(frozen=True)
class SlotModel:
    """Steps of one slot with N workers over several operations.

    Attributes:
        workers: N.
        rounds: How many rounds each worker goes through, from 0 on, operations one after another.
        rounds_per_operation: After how many rounds the next operation begins.
        guards: Which guards are in place.
        atomic_transmit: Whether a result is begun and its sums are read in one step, which no
            hardware does.
        forgetful: Whether what can make no difference any more is left out of the state, which
            keeps the number of states small.
    """

    workers: int
    rounds: int
    rounds_per_operation: int = 3
    guards: Guards = Guards()
    atomic_transmit: bool = False
    forgetful: bool = True

    def first(self) -> State:
        """Return the first state: R is the round before the first, and complete."""
        worker = Worker(round=0, seen=True, in_sums=((), ()), queue=(), results=())
        return State(-1, (worker,) * self.workers)

    def is_over(self, state: State) -> bool:
        """Return whether all workers have the results of all rounds."""
        return all(worker.round == self.rounds for worker in state.workers)

    def canonical(self, state: State) -> State:
        """Return the same for all states that differ only in the numbering of the workers."""
        return State(state.open_round, tuple(sorted(state.workers)))

    def steps(self, state: State) -> Iterator[Step]:
        """Yield every step that may come next and changes something."""
        for w, worker in enumerate(state.workers):
            ahead = 0 if self.guards.worker_waits else 1
            latest = min(worker.round + ahead, self.rounds - 1)
            # Packets of earlier rounds than R − 1 are stale and change nothing.
            for r in range(max(0, state.open_round - 1), latest + 1):
                yield from self._data(state, w, r)
                yield from self._probe(state, w, r)
                if not self.guards.whole_frames:
                    yield from self._bad_end(state, w, r)
            for entry in worker.queue:
                yield self._transmit(state, w, entry)
            for result in worker.results:
                yield from self._deliver(state, w, result)
                yield self._lose(state, w, result)

    def _version(self, r: int) -> int:
        return r & 1 if self.guards.two_versions else 0

    def _data(self, state: State, w: int, r: int) -> Iterator[Step]:
        """Let DATA of round r from worker w arrive whole."""
        worker = state.workers[w]
        distance = r - state.open_round
        full = all(other.seen for other in state.workers)

        if distance == 1 and (full or not self.guards.drop_premature):
            opened = self._add(self._opened(state, r), w, r)
            opened = replace_worker(opened, w, opened.workers[w]._replace(seen=True))
            yield (
                Action("DATA of round {r} from worker {w} opens the round", w, r),
                self._completed(opened, r),
                False,
            )
        elif distance == 0 and not worker.seen:
            added = self._add(state, w, r)
            added = replace_worker(added, w, added.workers[w]._replace(seen=True))
            yield (
                Action("DATA of round {r} from worker {w} is added", w, r),
                self._completed(added, r),
                False,
            )
        elif distance == 0 and not self.guards.seen_check:
            yield (
                Action("DATA of round {r} from worker {w} is added again", w, r),
                self._add(state, w, r),
                False,
            )
        else:
            yield from self._asked(state, w, r, "DATA")

    def _probe(self, state: State, w: int, r: int) -> Iterator[Step]:
        """Let PROBE for round r from worker w arrive; a MISSING answer changes nothing."""
        yield from self._asked(state, w, r, "PROBE")

    def _asked(self, state: State, w: int, r: int, packet: str) -> Iterator[Step]:
        """Queue a replay, if the round is R and complete, or R − 1."""
        distance = r - state.open_round
        full = all(other.seen for other in state.workers)
        if (distance == 0 and full) or (distance == -1 and self.guards.replay_previous):
            action = Action(packet + " of round {r} from worker {w} queues its result again", w, r)
            yield from changed(state, (action, self._queue_result(state, w, r), False))

    def _bad_end(self, state: State, w: int, r: int) -> Iterator[Step]:
        """Merge DATA of round r whose end is bad, before that is known."""
        distance = r - state.open_round
        full = all(other.seen for other in state.workers)
        action = Action("DATA of round {r} from worker {w} has a bad end, but is merged", w, r)
        if distance == 1 and full:
            yield action, self._add(self._opened(state, r), w, r), False
        elif distance == 0 and not state.workers[w].seen:
            yield action, self._add(state, w, r), False

    def _opened(self, state: State, r: int) -> State:
        """Open round r: R is r; nobody is seen; the version of r is empty."""
        v = self._version(r)
        return State(
            r,
            tuple(
                worker._replace(seen=False, in_sums=with_item(worker.in_sums, v, ()))
                for worker in state.workers
            ),
        )

    def _add(self, state: State, w: int, r: int) -> State:
        v = self._version(r)
        worker = state.workers[w]
        rounds = tuple(sorted((*worker.in_sums[v], r)))
        return replace_worker(
            state, w, worker._replace(in_sums=with_item(worker.in_sums, v, rounds))
        )

    def _completed(self, state: State, r: int) -> State:
        """Queue the result for all workers, if the round is complete."""
        if all(worker.seen for worker in state.workers):
            for w in range(self.workers):
                state = self._queue_result(state, w, r)
        return state

    def _transmit(self, state: State, w: int, entry: tuple[int, int]) -> Step:
        """Begin or discard a queued result; or let one that is begun read its sums and leave."""
        r, header = entry
        worker = state.workers[w]
        rest = tuple(other for other in worker.queue if other != entry)
        if header == NOT_BEGUN:
            if self.guards.discard_outdated and state.open_round not in (r, r + 1):
                action = Action("queued result of round {r} for worker {w} is discarded", w, r)
                return action, replace_worker(state, w, worker._replace(queue=rest)), False
            header = r if self.guards.header_in_descriptor else state.open_round
            if self.atomic_transmit:
                return self._leave(state, w, r, header, rest)
            queue = insert(rest, (r, header))
            action = Action(f"result for worker {{w}} is begun, its header names {header}", w, r)
            return action, replace_worker(state, w, worker._replace(queue=queue)), False
        return self._leave(state, w, r, header, rest)

    def _leave(
        self, state: State, w: int, r: int, header: int, rest: tuple[tuple[int, int], ...]
    ) -> Step:
        """Read the sums of round r's version; `rest` stays queued."""
        worker = state.workers[w]
        results = insert(worker.results, (header, self._exact_for(state, self._version(r))))
        after = self._forget(worker._replace(queue=rest, results=results))
        action = Action("result of round {r} leaves for worker {w}", w, header)
        return action, replace_worker(state, w, after), False

    def _exact_for(self, state: State, v: int) -> int:
        """Return the round of which version v holds each contribution once, and nothing else."""
        rounds = state.workers[0].in_sums[v]
        if len(rounds) != 1 or any(worker.in_sums[v] != rounds for worker in state.workers):
            return NO_ROUND
        return rounds[0]

    def _deliver(self, state: State, w: int, result: tuple[int, int]) -> Iterator[Step]:
        """Let a result arrive at worker w, which takes or ignores it; it may arrive again."""
        header, exact = result
        worker = state.workers[w]
        if worker.round == self.rounds:
            return
        if self.guards.exact_round:
            taken = header == worker.round
        else:
            same_version = self._version(header) == self._version(worker.round)
            operation = worker.round // self.rounds_per_operation
            taken = same_version and header // self.rounds_per_operation == operation
        if taken:
            wrong = exact != worker.round
            contents = "a wrong sum" if wrong else "the right sum"
            action = Action(
                f"worker {{w}}, in round {worker.round}, takes the result of round {{r}}, "
                + contents,
                w,
                header,
            )
            after = self._forget(worker._replace(round=worker.round + 1))
            yield action, replace_worker(state, w, after), wrong

    def _lose(self, state: State, w: int, result: tuple[int, int]) -> Step:
        """Lose all copies of a result that is on the way: it will not arrive any more."""
        worker = state.workers[w]
        results = tuple(other for other in worker.results if other != result)
        action = Action("result of round {r} for worker {w} is lost", w, result[0])
        return action, replace_worker(state, w, worker._replace(results=results)), False

    def _forget(self, worker: Worker) -> Worker:
        """Drop the results that it can never take, as they are of rounds that it has left.

        Its round only grows, so that they arrive or not makes no difference.
        """
        if not self.guards.exact_round or not self.forgetful:
            return worker
        results = tuple(result for result in worker.results if result[0] >= worker.round)
        queue = worker.queue
        if self.guards.header_in_descriptor:
            queue = tuple(entry for entry in queue if entry[0] >= worker.round)
        return worker._replace(results=results, queue=queue)

    def _queue_result(self, state: State, w: int, r: int) -> State:
        """Queue the result of round r for worker w, unless it is queued already."""
        worker = state.workers[w]
        queue = insert(worker.queue, (r, NOT_BEGUN))
        return replace_worker(state, w, self._forget(worker._replace(queue=queue)))


def replace_worker(state: State, w: int, worker: Worker) -> State:
    workers = state.workers
    return State(state.open_round, (*workers[:w], worker, *workers[w + 1 :]))


def changed(state: State, step: Step) -> Iterator[Step]:
    """Return the step, if it leads anywhere else."""
    if step[1] != state:
        yield step


def insert(
    items: tuple[tuple[int, int], ...], item: tuple[int, int]
) -> tuple[tuple[int, int], ...]:
    """Return the sorted tuple with one more item, without duplicates."""
    return items if item in items else tuple(sorted((*items, item)))


def with_item(
    pair: tuple[tuple[int, ...], tuple[int, ...]], v: int, item: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the pair with its item v replaced."""
    return (item, pair[1]) if v == 0 else (pair[0], item)
