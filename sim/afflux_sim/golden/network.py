"""How frames get from golden workers to an engine and back: in order, or as in bad networks.

The engine is anything that takes a frame and returns the frames which that causes, so the golden
engine, the Verilated one and the software one run under the same schedules.
"""

import random
from collections.abc import Callable, Sequence

from afflux_sim.golden.frames import Endpoint, GroupAddress, is_for
from afflux_sim.golden.reductions import Tensor
from afflux_sim.golden.worker import GoldenWorker

__all__ = ["Receive", "deliver", "join_all", "make_workers", "run_in_order", "run_unkindly"]

Receive = Callable[[bytes], Sequence[bytes]]


def make_workers(
    workers: int,
    *,
    engine: Endpoint,
    job: int,
    key: int,
    round: int,
    lanes: int,
    slots: int,
    first_rank: int = 0,
    ranks: int | None = None,
    group: GroupAddress | None = None,
) -> list[GoldenWorker]:
    """Return all workers of a job, each at an endpoint of its own.

    Under a leaf of a tree they are numbers `first_rank`, … of `ranks`.
    """
    return [
        GoldenWorker(
            endpoint=Endpoint(
                bytes([2, 0, 0, 0, job, first_rank + w]),
                f"10.1.{job}.{1 + first_rank + w}",
                50000 + w,
            ),
            engine=engine,
            job=job,
            key=key,
            round=round,
            worker=w,
            workers=workers,
            lanes=lanes,
            slots=slots,
            rank=first_rank + w,
            ranks=ranks,
            group=group,
        )
        for w in range(workers)
    ]


def join_all(receive: Receive, workers: Sequence[GoldenWorker]) -> None:
    """Join all workers; check for each what the aggregator answers."""
    for worker in workers:
        deliver(receive(worker.join()), workers)
        expected = (worker.workers, worker.lanes, len(worker.rounds))
        group = worker.group.words if worker.group else (0, 0)
        joined = worker.joined
        if joined is None or joined[:3] != expected or joined[4:6] != group:
            raise AssertionError(f"worker {worker.worker} joined {joined}, not {expected}")


def deliver(frames: Sequence[bytes], workers: Sequence[GoldenWorker]) -> None:
    """Hand each frame to the worker, or to each worker of the group, at its destination."""
    for frame in frames:
        for worker in receivers(frame, workers):
            worker.receive(frame)


def receivers(frame: bytes, workers: Sequence[GoldenWorker]) -> list[GoldenWorker]:
    """Return the workers at the destination of a frame; there is always one."""
    found = [
        worker
        for worker in workers
        if any(is_for(endpoint, frame) for endpoint in worker.endpoints)
    ]
    if not found:
        raise AssertionError(f"frame for nobody: {frame[:64].hex(' ')}")
    return found


def run_in_order(
    receive: Receive,
    workers: Sequence[GoldenWorker],
    tensors: Sequence[Tensor],
    dtype: str,
    reduction: str,
) -> list[Tensor]:
    """Run one all-reduce over a network that loses nothing; return each worker's result."""
    for worker, tensor in zip(workers, tensors, strict=True):
        worker.start(tensor, dtype, reduction)
    while True:
        frames = [frame for worker in workers for frame in worker.frames_to_send()]
        if not frames:
            went_on = [worker.go_on() for worker in workers]
            if not any(went_on):
                break
        for frame in frames:
            deliver(receive(frame), workers)
    return [worker.result() for worker in workers]


def run_unkindly(
    receive: Receive,
    workers: Sequence[GoldenWorker],
    tensors: Sequence[Tensor],
    dtype: str,
    reduction: str,
    *,
    choose: random.Random,
    loss: float = 0.2,
    duplication: float = 0.2,
    max_steps: int = 200_000,
) -> list[Tensor]:
    """Run one all-reduce over a network that loses, duplicates and reorders both ways.

    Args:
        receive: Gives a frame to the engine; returns the frames that it sends.
        workers: All workers of the job.
        tensors: One for each worker.
        dtype: Type of their elements.
        reduction: The reduction to apply.
        choose: Draws which of the frames on the way moves next, and what becomes of it.
        loss: Probability that a frame which moves is lost.
        duplication: Probability that it also stays on the way.
        max_steps: How many frames may move before the all-reduce counts as stuck.

    Returns:
        The result of each worker.

    Raises:
        AssertionError: If the all-reduce is stuck.
    """
    for worker, tensor in zip(workers, tensors, strict=True):
        worker.start(tensor, dtype, reduction)
    # Each with its receiver: a worker, or the engine where there is none. Of a frame to a group
    # every receiver's copy goes its own way.
    on_the_way: list[tuple[GoldenWorker | None, bytes]] = []
    for _ in range(max_steps):
        for worker in workers:
            worker.go_on()
        on_the_way += [(None, frame) for worker in workers for frame in worker.frames_to_send()]
        waiting = [(worker, slot) for worker in workers for slot in worker.outstanding]
        if not waiting:
            # The remaining packets arrive late, when they must change nothing.
            for receiver, frame in on_the_way:
                if receiver is None:
                    deliver(receive(frame), workers)
                else:
                    receiver.receive(frame)
            return [worker.result() for worker in workers]
        if not on_the_way or choose.random() < 0.05:
            worker, slot = choose.choice(waiting)
            on_the_way.append((None, worker.retransmit(slot, probe=choose.random() < 0.5)))
            continue
        at = choose.randrange(len(on_the_way))
        receiver, frame = on_the_way[at]
        if choose.random() >= duplication:
            del on_the_way[at]
        if choose.random() < loss:
            continue
        if receiver is None:
            for answer in receive(frame):
                on_the_way += [(worker, answer) for worker in receivers(answer, workers)]
        else:
            receiver.receive(frame)
    raise AssertionError(f"not over after {max_steps} steps")
