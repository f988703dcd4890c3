"""C++ workers of version 2 that stand for several ranks: the sums are those of all ranks."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from afflux_drivers.aggregator.engine import SoftEngine
from afflux_drivers.collective import Reduction
from afflux_drivers.worker.operation import HostPiece
from afflux_drivers.worker.session import Session
from afflux_hdl.contract import wire
from afflux_sim.golden.engine import GoldenEngine
from afflux_sim.golden.number_encoding import reduce_numbers
from tests.scenarios.golden_device import GoldenDevice
from tests.support.drivers.virtual_job import (
    VirtualNetwork,
    at_random,
    configure,
    create_job,
    ticket_of,
)
from tests.support.golden_tensors import BITS, KINDS, bits_of, draw, reductions

# Ranks of each host: uneven, not in order, one alone.
HOSTS = ((0, 1, 4), (2,), (3, 5))
RANKS = 6
FLOATS = ("float32", "float16", "bfloat16")
OPERATIONS = [(dtype, reduction) for dtype in (*FLOATS, "int32") for reduction in reductions(dtype)]


class NumberEngine(GoldenEngine):
    """One of version 2."""

    def __init__(self, **options) -> None:
        super().__init__(numbers=True, **options)


class HostJob(VirtualNetwork):
    """A worker for each of the HOSTS, on one aggregator."""

    def __init__(self, engine: Any = None) -> None:
        self.engine = engine or SoftEngine(numbers=True)
        configure(self.engine)
        ticket = replace(
            ticket_of(len(HOSTS), 4, 3),
            members=tuple(ranks[0] for ranks in HOSTS),
            beside=tuple(ranks[1:] for ranks in HOSTS),
            ranks=RANKS,
        )
        create_job(self.engine, ticket)
        sessions = [Session(ticket, ranks[0]) for ranks in HOSTS]
        super().__init__(sessions, {"10.0.0.1": self.engine}, ["10.0.0.1"] * len(HOSTS), 1e-4)


def expected(tensors, dtype, reduction):
    if dtype == "int32":
        whole = np.stack(tensors).astype(np.int64)
        best = whole.sum(axis=0) if reduction == "sum" else getattr(whole, reduction)(axis=0)
        return best.astype(np.int32).view(np.uint32)
    columns = [bits_of(tensor, dtype).tolist() for tensor in tensors]
    return np.array(reduce_numbers(columns, dtype, reduction), dtype=BITS[dtype])


def exponents_of(tensor, dtype):
    """Return those of blocks of 256 bytes, as a host's other ranks hand them over."""
    of = 256 // tensor.itemsize
    bits = np.pad(bits_of(tensor, dtype), (0, -len(tensor) % of)).reshape(-1, of)
    fraction, field = {"float32": (23, 255), "float16": (10, 31), "bfloat16": (7, 255)}[dtype]
    fields = bits >> fraction & field
    greatest = np.where(fields == field, 0, fields).max(axis=1, initial=1)
    return np.where(bits.any(axis=1), greatest, 0).astype(np.uint8)


def check(job, tensors, dtype, reduction, scanned=False, mirrored=False, **options):
    right = expected(tensors, dtype, reduction)
    hosts, mirrors = [], []
    for _, *beside in HOSTS:
        others = [tensors[rank].copy() for rank in beside]
        exponents = [exponents_of(each, dtype) for each in others] if scanned else []
        mirror = np.zeros_like(tensors[0]), np.zeros(-(-len(tensors[0]) // 64), np.uint8)
        mirrors.append(mirror)
        hosts.append(HostPiece(others, exponents, mirror if mirrored else None))
    own = [tensors[leader].copy() for leader, *_ in HOSTS]
    results = job.all_reduce(
        own,
        wire.Dtype[dtype.upper()],
        Reduction(reduction),
        numbers=True,
        hosts=hosts,
        **options,
    )
    for host, (result, (copy, marks)) in enumerate(zip(results, mirrors, strict=True)):
        wrong = np.flatnonzero(bits_of(result, dtype) != right)
        assert not wrong.size, f"host {host}: {wrong[:10]}"
        if mirrored:
            # All that is not marked is zero.
            assert np.array_equal(bits_of(copy, dtype), right)
            assert not right[np.repeat(marks, 64)[: len(right)] == 0].any()


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
    rng = np.random.default_rng(1)
    job = HostJob()
    for at, dtype in enumerate(FLOATS):
        tensors = [draw(rng, kind, dtype, 5000) for _ in range(RANKS)]
        fates = at_random(at, 0.05, 0.05, 0.02)
        check(job, tensors, dtype, "sum", scanned=True, mirrored=True, fates=fates)
        check(job, tensors, dtype, "avg", scanned=True, mirrored=True, in_place=True)


def test_a_golden_aggregator():
    rng = np.random.default_rng(2)
    golden = GoldenDevice(workers=64, lanes=16, jobs=8, slots=512, engine_class=NumberEngine)
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
        job.all_reduce(tensors, wire.Dtype.FLOAT16, Reduction.SUM, numbers=True, hosts=hosts)
