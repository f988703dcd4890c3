"""Whole tensors through the engine: int32 sums of many rounds, with and without loss."""

import random
from collections.abc import Sequence

from tests.scenarios.director import Actions, Director
from tests.scenarios.job_frames import Job
from tests.scenarios.stream_worker import StreamWorker, expected_sum

__all__ = ["boundary_sizes", "draw_tensor", "reduce_in_order", "reduce_unkindly"]

ELEMENTS = 64


def boundary_sizes(job: Job) -> list[int]:
    """One element, and a block, a packet, a row and the largest direct tensor, -1, 0 and +1."""
    edges = {ELEMENTS, job.lanes * ELEMENTS, job.slots * job.lanes * ELEMENTS}
    edges.add((job.lanes - 1) * ELEMENTS)
    sizes = {1} | {edge + offset for edge in edges for offset in (-1, 0, 1)}
    return sorted(size for size in sizes if size > 0)


def draw_tensor(count: int, choose: random.Random, density: float = 0.6) -> list[int]:
    """Return a tensor in which each block is present with the given probability."""
    tensor: list[int] = []
    while len(tensor) < count:
        present = choose.random() < density
        tensor += [choose.getrandbits(32) - 2**31 if present else 0 for _ in range(ELEMENTS)]
    return tensor[:count]


def start(workers: Sequence[StreamWorker], tensors: Sequence[Sequence[int]]) -> list[bytes]:
    pairs = zip(workers, tensors, strict=True)
    return [frame for worker, tensor in pairs for frame in worker.start(tensor)]


def check_results(workers: Sequence[StreamWorker], tensors: Sequence[Sequence[int]]) -> None:
    expected = expected_sum(tensors)
    for worker in workers:
        assert not worker.outstanding
        assert worker.result == expected, f"worker {worker.number}"


def reduce_in_order(
    director: Director,
    workers: Sequence[StreamWorker],
    tensors: Sequence[Sequence[int]],
    flood: bool = False,
) -> Actions[None]:
    """One all-reduce that loses nothing; frame by frame, or as many at once as there are."""
    frames = start(workers, tensors)
    while frames:
        play = director.flood(frames) if flood else director.each(frames)
        packets = yield from play
        frames = [frame for packet in packets for frame in workers[packet.worker].receive(packet)]
    check_results(workers, tensors)


def reduce_unkindly(
    director: Director,
    workers: Sequence[StreamWorker],
    tensors: Sequence[Sequence[int]],
    choose: random.Random,
    *,
    loss: float,
    duplication: float,
) -> Actions[None]:
    """One all-reduce over a network that loses, duplicates and reorders in both directions.

    Each turn moves a random handful of the frames on the way, in random order and at once; lost
    and duplicated are frames to the engine and frames from it alike.
    """
    to_engine = start(workers, tensors)
    from_engine: list = []
    for _ in range(10_000):
        waiting = [(worker, slot) for worker in workers for slot in worker.outstanding]
        if not waiting:
            break
        if not to_engine or choose.random() < 0.1:
            worker, slot = choose.choice(waiting)
            full = choose.random() < 0.5
            to_engine.append(worker.outstanding[slot] if full else worker.probe(slot))
        moved = _draw(to_engine, choose, duplication)
        moved = [frame for frame in moved if choose.random() >= loss]
        from_engine += yield from director.flood(moved)
        for packet in _draw(from_engine, choose, duplication):
            if choose.random() >= loss:
                to_engine += workers[packet.worker].receive(packet)
    check_results(workers, tensors)
    # Frames on the way arrive late, and must change nothing.
    yield from director.flood(to_engine)
    for packet in from_engine:
        assert workers[packet.worker].receive(packet) == []


def _draw(on_the_way: list, choose: random.Random, duplication: float) -> list:
    """Take a random handful from the list, in random order; some of them stay there too."""
    choose.shuffle(on_the_way)
    count = choose.randint(1, max(1, len(on_the_way) // 2))
    taken, on_the_way[:] = on_the_way[:count], on_the_way[count:]
    on_the_way += [item for item in taken if choose.random() < duplication]
    return taken
