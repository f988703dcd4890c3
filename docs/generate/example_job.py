"""The job of the worked examples: a golden engine, and two golden workers on their way to it."""

from collections.abc import Sequence

from afflux_sim.golden.engine import GoldenEngine
from afflux_sim.golden.frames import DTYPES, Endpoint
from afflux_sim.golden.network import deliver, make_workers
from afflux_sim.golden.reductions import Tensor
from afflux_sim.golden.worker import GoldenWorker

__all__ = [
    "FIRST_ROUND",
    "JOB",
    "KEY",
    "LANES",
    "SLOTS",
    "WORKERS",
    "exchange",
    "joined_job",
    "new_job",
]

# The job of the example in section 10.2, with fewer workers, lanes and slots.
JOB, KEY, FIRST_ROUND = 2, 0x00F1E2D3C4B5A697, 0xDEADBEEF
WORKERS, LANES, SLOTS, CREDIT = 2, 2, 1, 4


def new_job(window: int | None = None) -> tuple[GoldenEngine, list[GoldenWorker]]:
    """Return an engine with the job, and its workers, which have yet to join.

    `window` is how many bits of a sum of float32 the engine keeps; None: all.
    """
    engine_at = Endpoint(bytes.fromhex("02affa000001"), "10.0.0.9", 4700)
    engine = GoldenEngine(
        windows={} if window is None else {DTYPES["float32"]: window},
        mac=engine_at.mac,
        address=engine_at.address,
        port=engine_at.port,
    )
    engine.create_job(
        JOB,
        key=KEY,
        workers=WORKERS,
        lanes=LANES,
        slot_base=0,
        slot_count=SLOTS,
        round=FIRST_ROUND,
        credit=CREDIT,
    )
    workers = make_workers(
        WORKERS,
        engine=engine_at,
        job=JOB,
        key=KEY,
        round=FIRST_ROUND,
        lanes=LANES,
        slots=SLOTS,
    )
    return engine, workers


def joined_job(
    tensors: Sequence[Tensor], dtype: str, reduction: str, window: int | None = None
) -> tuple[GoldenEngine, list[GoldenWorker]]:
    """Return the job with its workers joined and the first operation begun."""
    engine, workers = new_job(window)
    for worker, tensor in zip(workers, tensors, strict=True):
        deliver(engine.receive(worker.join()), workers)
        worker.start(tensor, dtype, reduction)
    return engine, workers


def exchange(
    engine: GoldenEngine, workers: Sequence[GoldenWorker]
) -> tuple[list[bytes], list[bytes]]:
    """Play one round of slot 0: return the workers' frames, and the results, now delivered."""
    frames = [frame for worker in workers for frame in worker.frames_to_send()]
    results = [answer for frame in frames for answer in engine.receive(frame)]
    deliver(results, workers)
    return frames, results
