"""Checks of sums of numbers: golden workers through an engine, frame by frame as the golden one."""

from typing import TypeVar

import numpy as np

from afflux_sim.golden.frames import Endpoint
from afflux_sim.golden.network import deliver, join_all, make_workers, run_in_order
from afflux_sim.golden.worker import GoldenWorker
from afflux_sim.rtl.verilated import VerilatedEngine
from tests.checks.engine_checks import BUILDS
from tests.scenarios.afflux_layer import ENGINE_PORT
from tests.scenarios.director import Actions, Director
from tests.scenarios.job_frames import ENGINE_ADDRESS, ENGINE_MAC, Job
from tests.scenarios.performer import paces, perform
from tests.support.golden_tensors import DTYPES, KINDS, draw, reductions

__all__ = ["Bench", "check_jobs_side_by_side", "check_operations", "check_sums"]

T = TypeVar("T")

ENGINE = Endpoint(bytes.fromhex(ENGINE_MAC.replace(":", "")), ENGINE_ADDRESS, ENGINE_PORT)
OPERATIONS = [(dtype, reduction) for dtype in DTYPES for reduction in reductions(dtype)]


PAIRS = (
    (("float32", "sum"), ("bfloat16", "max")),
    (("bfloat16", "sum"), ("int32", "sum")),
    (("float16", "avg"), ("float32", "min")),
)
"""Operations of two jobs at once."""


class Bench:
    """The RTL beside the golden model, and golden workers of one job."""

    def __init__(self, engine: VerilatedEngine, bus_bits: int, *, ready: float = 0.9) -> None:
        self.engine, self.bus_bits = engine, bus_bits
        self.director = Director(**BUILDS[bus_bits])
        self.pace = paces(ready, 0.1, 1)
        self._perform(self.director.configure())
        self.workers = self.add_job(1)

    def add_job(self, number: int) -> list[GoldenWorker]:
        """Create a job; return its workers, which have joined."""
        job = Job(number=number, workers=3, lanes=3, slots=2, slot_base=2 + 2 * number)
        self._perform(self.director.create(job, join=False))
        workers = make_workers(
            job.workers,
            engine=ENGINE,
            job=job.number,
            key=job.key,
            round=job.first_round,
            lanes=job.lanes,
            slots=job.slots,
            group=None,
        )
        join_all(self.receive, workers)
        return workers

    def _perform(self, actions: Actions[T]) -> T:
        return perform(self.engine, actions, self.pace)

    def receive(self, frame: bytes) -> list[bytes]:
        return self._perform(self.director.each_frame([frame]))

    def flood(self, frames: list[bytes]) -> list[bytes]:
        return self._perform(self.director.flood_frames(frames))

    def check_counters(self) -> None:
        self._perform(self.director.check_counters())


def check_operations(bench: Bench, seed: int = 7) -> None:
    """Every operation on every kind of tensor."""
    rng = np.random.default_rng(seed)
    for dtype, reduction in OPERATIONS:
        for kind in KINDS:
            for count in (1, 300):
                tensors = [draw(rng, kind, dtype, count) for _ in bench.workers]
                run_in_order(bench.receive, bench.workers, tensors, dtype, reduction)
    # -0 of one worker while the others send no blocks, and -0 of all.
    zeros = np.zeros(300, np.float32)
    for signed in ([zeros, zeros, -zeros], [-zeros, -zeros, -zeros]):
        run_in_order(bench.receive, bench.workers, signed, "float32", "sum")
    # Nobody has lost a bit until the last beat of the last contribution.
    ones = np.ones(300, np.float32)
    lost = np.where(np.arange(300) % 64 == 63, np.float32(2.0**-60), ones)
    for third in (lost, ones):
        run_in_order(bench.receive, bench.workers, [ones, ones, third], "float32", "sum")
    bench.check_counters()


def check_jobs_side_by_side(bench: Bench, seed: int = 3) -> None:
    """Frames of two jobs, with numbers of two formats, right behind each other."""
    rng = np.random.default_rng(seed)
    jobs = (bench.workers, bench.add_job(2))
    every = [worker for workers in jobs for worker in workers]
    for pair in PAIRS:
        for workers, (dtype, reduction) in zip(jobs, pair, strict=True):
            for worker in workers:
                worker.start(draw(rng, "mixed", dtype, 1500), dtype, reduction)
        while True:
            frames = [frame for worker in every for frame in worker.frames_to_send()]
            if frames:
                deliver(bench.flood(frames), every)
            else:
                went_on = [worker.go_on() for worker in every]
                if not any(went_on):
                    break
    assert bench.director.left_out == 0
    bench.check_counters()


def check_sums(engine: VerilatedEngine, bus_bits: int) -> None:
    """Every operation, and two jobs side by side."""
    bench = Bench(engine, bus_bits)
    check_operations(bench)
    check_jobs_side_by_side(bench)
