"""Sums of numbers in the RTL: frame by frame as in the golden model, with the same slots."""

import random
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from afflux_hdl.contract.registers import Command, Reason, address_of
from afflux_sim.golden.frames import Endpoint
from afflux_sim.golden.network import join_all, make_workers, run_in_order, run_unkindly
from afflux_sim.golden.worker import GoldenWorker
from afflux_sim.rtl.verilated import VerilatedEngine
from tests.scenarios.afflux_layer import ENGINE_PORT
from tests.scenarios.director import LARGE, Director
from tests.scenarios.job_frames import ENGINE_ADDRESS, ENGINE_MAC, Job
from tests.scenarios.performer import paces, perform
from tests.support.golden_tensors import DTYPES, KINDS, draw, reductions
from tests.support.planted_engine import bug_is_found
from tests.support.planting import Bug

SLOT_BITS = 64
GUARD_AND_SIGN = 7
ENGINE = Endpoint(bytes.fromhex(ENGINE_MAC.replace(":", "")), ENGINE_ADDRESS, ENGINE_PORT)
OPERATIONS = [(dtype, reduction) for dtype in DTYPES for reduction in reductions(dtype)]


class Bench:
    """The RTL beside the golden model, and golden workers of one job."""

    def __init__(self, engine: VerilatedEngine, *, workers: int = 3, ready: float = 0.9) -> None:
        self.engine = engine
        self.director = Director(**LARGE, window=SLOT_BITS - GUARD_AND_SIGN)
        self.pace = paces(ready, 0.1, 1)
        job = Job(number=1, workers=workers, lanes=3, slots=2, slot_base=4)
        self._perform(self.director.configure())
        self._perform(self.director.create(job, join=False))
        self.workers: list[GoldenWorker] = make_workers(
            workers,
            engine=ENGINE,
            job=job.number,
            key=job.key,
            round=job.first_round,
            lanes=job.lanes,
            slots=job.slots,
            numbers=True,
            group=None,
        )
        join_all(self.receive, self.workers)

    def _perform(self, actions):
        return perform(self.engine, actions, self.pace)

    def receive(self, frame: bytes) -> list[bytes]:
        return self._perform(self.director.each_frame([frame]))

    def slots_of(self, dtype: str) -> None:
        """Let the model keep as many bits as the RTL does: halves have half a slot's word each."""
        bits = SLOT_BITS if dtype in ("float32", "int32") else SLOT_BITS // 2
        self.director.golden.window = bits - GUARD_AND_SIGN

    def check_counters(self) -> None:
        self._perform(self.director.check_counters())


@pytest.fixture(params=[pytest.param(0, marks=pytest.mark.long), 1], ids=["", "output_register"])
def bench(request) -> Iterator[Callable[..., Bench]]:
    with VerilatedEngine(
        bus_bits=512, numbers=SLOT_BITS, ram_output_register=request.param, **LARGE
    ) as engine:
        yield lambda **options: Bench(engine, **options)


def check_operations(bench: Bench, seed: int = 7) -> None:
    """Every operation on every kind of tensor."""
    rng = np.random.default_rng(seed)
    for dtype, reduction in OPERATIONS:
        bench.slots_of(dtype)
        for kind in KINDS:
            for count in (1, 300):
                tensors = [draw(rng, kind, dtype, count) for _ in bench.workers]
                run_in_order(bench.receive, bench.workers, tensors, dtype, reduction)
    # -0 of one worker while the others send no blocks, and -0 of all.
    bench.slots_of("float32")
    zeros = np.zeros(300, np.float32)
    for signed in ([zeros, zeros, -zeros], [-zeros, -zeros, -zeros]):
        run_in_order(bench.receive, bench.workers, signed, "float32", "sum")
    bench.check_counters()


def test_operations_and_kinds_of_tensor(bench):
    check_operations(bench())


def test_bad_networks(bench):
    rng = np.random.default_rng(1)
    choose = random.Random(1)
    bench = bench(ready=0.5)
    for dtype, reduction in (("float32", "sum"), ("bfloat16", "avg"), ("float16", "max")):
        bench.slots_of(dtype)
        tensors = [draw(rng, "mixed", dtype, 500) for _ in bench.workers]
        run_unkindly(bench.receive, bench.workers, tensors, dtype, reduction, choose=choose)


BUGS = {
    "a lost bit is forgotten": Bug(
        "engine/merge.py",
        "loses.eq(lost.any() | (before & beat.any())),",
        "loses.eq(lost.any()),",
    ),
    "a lane that one has not sent": Bug("engine/admit.py", "& Mux(opens, -1, now.held.in_all)", ""),
    "the exponent of the own words": Bug(
        "engine/merge.py", "Cat(~operation.version,", "Cat(operation.version,"
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", BUGS)
def test_planted_bugs(name: str) -> None:
    build = {**LARGE, "numbers": SLOT_BITS, "ram_output_register": 1}
    with bug_is_found(f"sums {name}", BUGS[name], 512, build) as engine:
        check_operations(Bench(engine))


@pytest.mark.parametrize("bench", [1], indirect=True)
def test_a_parent_is_refused(bench: Callable[..., Bench]) -> None:
    """Partial sums of numbers do not go up yet: such a job must not come to count anywhere."""
    engine = bench().engine
    values = {"job_index": 2, "job_workers": 1, "job_lanes": 1, "job_slot_base": 8}
    values |= {"job_slot_count": 1, "job_parent_address": 0x0A000909, "job_parent_port": 4799}
    for name, value in values.items():
        engine.write(address_of(name), value)
    for command, reason in ((Command.CREATE, Reason.NONE), (Command.JOIN_PARENT, Reason.NO_PARENT)):
        engine.write(address_of("job_command"), command)
        while engine.read(address_of("job_busy")):
            pass
        assert engine.read(address_of("job_reason")) == reason
    assert engine.play([]) == []
