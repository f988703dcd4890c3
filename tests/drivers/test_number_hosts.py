"""C++ workers that stand for several ranks: the sums are those of all ranks."""

import numpy as np
import pytest

from afflux_drivers.collective import Reduction
from afflux_drivers.worker.operation import HostPiece
from afflux_hdl.contract import wire
from afflux_sim.golden.engine import GoldenEngine
from tests.checks.number_host_checks import (
    FLOATS,
    HOSTS,
    RANKS,
    HostJob,
    check,
    check_scanned,
    check_zeros,
)
from tests.scenarios.golden_device import GoldenDevice
from tests.support.drivers.built_worker import catches
from tests.support.golden_tensors import KINDS, draw, reductions
from tests.support.planting import Bug, first_now

OPERATIONS = [(dtype, reduction) for dtype in (*FLOATS, "int32") for reduction in reductions(dtype)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_operation(kind):
    rng = np.random.default_rng(KINDS.index(kind))
    job = HostJob()
    for dtype, reduction in OPERATIONS:
        for at, count in enumerate((0, 3, 65, 1000)):
            tensors = [draw(rng, kind, dtype, count) for _ in range(RANKS)]
            check(job, tensors, dtype, reduction, in_place=at % 2 == 0)


@pytest.mark.parametrize("kind", ["sparse", "mixed"])
def test_scanned_blocks_a_mirror_and_a_bad_network(kind):
    check_scanned(kind)


def test_zeros():
    check_zeros()


def test_a_golden_aggregator():
    rng = np.random.default_rng(2)
    golden = GoldenDevice(workers=64, lanes=16, jobs=8, slots=512, engine_class=GoldenEngine)
    job = HostJob(golden)
    for dtype in FLOATS:
        for kind in ("special", "zeros"):
            tensors = [draw(rng, kind, dtype, 300) for _ in range(RANKS)]
            check(job, tensors, dtype, "sum")


def test_exponents_of_other_blocks_are_refused():
    job = HostJob()
    tensors = [np.ones(640, np.float16) for _ in HOSTS]
    hosts = [HostPiece([tensors[0]] * len(beside)) for _, *beside in HOSTS]
    hosts[0] = hosts[0]._replace(exponents=[np.ones(10, np.uint8)] * 2)
    with pytest.raises(ValueError, match="as many elements"):
        job.all_reduce(tensors, wire.Dtype.FLOAT16, Reduction.SUM, hosts=hosts)


# Bugs of a worker, with the check that must see each.
BUGS = {
    "leaves out the host's other ranks": (
        Bug("worker/host_ranks.cpp", "sum.add(environment, at(other, block));", ""),
        "check_scanned",
    ),
    "counts an absent block as -0": (
        Bug("worker/host_ranks.cpp", "all_present = false;", ""),
        "check_zeros",
    ),
    "mirrors the first half of a block": (
        Bug(
            "worker/blocks.cpp",
            "put_in(tensor_.mirror, block, bytes, target(block));",
            "put_in(tensor_.mirror, block, bytes / 2, target(block));",
        ),
        "check_scanned",
    ),
}


@pytest.mark.parametrize("name", first_now(BUGS))
def test_a_worker_that(name):
    bug, check = BUGS[name]
    assert catches(name, bug, f"tests.checks.number_host_checks:{check}")
