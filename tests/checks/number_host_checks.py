"""Checks of workers that stand for several ranks; with a bug in them one must fail.

`check_scanned` needs no arguments, so that a process of its own can run it.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from afflux_drivers.aggregator.engine import SoftEngine
from afflux_drivers.collective import Reduction
from afflux_drivers.worker.operation import HostPiece
from afflux_drivers.worker.session import Session
from afflux_hdl.contract import wire
from afflux_sim.golden.reductions import reduce_numbers
from tests.support.drivers.virtual_job import (
    VirtualNetwork,
    at_random,
    configure,
    create_job,
    ticket_of,
)
from tests.support.golden_tensors import BITS, bits_of, draw

# Ranks of each host: uneven, not in order, one alone.
HOSTS = ((0, 1, 4), (2,), (3, 5))
RANKS = 6
FLOATS = ("float32", "float16", "bfloat16")


class HostJob(VirtualNetwork):
    """A worker for each of the HOSTS, on one aggregator."""

    def __init__(self, engine: Any = None) -> None:
        self.engine = engine or SoftEngine()
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


def expected(tensors: Sequence[Any], dtype: str, reduction: str) -> np.ndarray:
    if dtype == "int32":
        whole = np.stack(tensors).astype(np.int64)
        best = whole.sum(axis=0) if reduction == "sum" else getattr(whole, reduction)(axis=0)
        return best.astype(np.int32).view(np.uint32)
    columns = [bits_of(tensor, dtype).tolist() for tensor in tensors]
    return np.array(reduce_numbers(columns, dtype, reduction), dtype=BITS[dtype])


def exponents_of(tensor: np.ndarray, dtype: str) -> np.ndarray:
    """Return those of blocks of 256 bytes, as a host's other ranks hand them over."""
    of = 256 // tensor.itemsize
    bits = np.pad(bits_of(tensor, dtype), (0, -len(tensor) % of)).reshape(-1, of)
    fraction, field = {"float32": (23, 255), "float16": (10, 31), "bfloat16": (7, 255)}[dtype]
    fields = bits >> fraction & field
    greatest = np.where(fields == field, 0, fields).max(axis=1, initial=1)
    return np.where(bits.any(axis=1), greatest, 0).astype(np.uint8)


def check(
    job: HostJob,
    tensors: Sequence[Any],
    dtype: str,
    reduction: str,
    scanned: bool = False,
    mirrored: bool = False,
    **options: Any,
) -> None:
    """One operation of all hosts, of a tensor of each rank; compare what each host gets."""
    right = expected(tensors, dtype, reduction)
    hosts, mirrors = [], []
    for _, *beside in HOSTS:
        others = [tensors[rank].copy() for rank in beside]
        exponents = [exponents_of(each, dtype) for each in others] if scanned else []
        mirror = np.zeros_like(tensors[0]), np.zeros(-(-tensors[0].nbytes // 256), np.uint8)
        mirrors.append(mirror)
        hosts.append(HostPiece(others, exponents, mirror if mirrored else None))
    own = [tensors[leader].copy() for leader, *_ in HOSTS]
    results = job.all_reduce(
        own,
        wire.Dtype[dtype.upper()],
        Reduction(reduction),
        hosts=hosts,
        **options,
    )
    for host, (result, (copy, marks)) in enumerate(zip(results, mirrors, strict=True)):
        wrong = np.flatnonzero(bits_of(result, dtype) != right)
        assert not wrong.size, f"host {host}: {wrong[:10]}"
        if mirrored:
            # All that is not marked is zero.
            assert np.array_equal(bits_of(copy, dtype), right)
            of = 256 // copy.itemsize
            assert not right[np.repeat(marks, of)[: len(right)] == 0].any()


def check_scanned(kind: str = "sparse") -> None:
    """Blocks that the ranks have scanned, a mirror, and a network that loses packets."""
    rng = np.random.default_rng(1)
    job = HostJob()
    for at, dtype in enumerate(FLOATS):
        tensors = [draw(rng, kind, dtype, 5000) for _ in range(RANKS)]
        fates = at_random(at, 0.05, 0.05, 0.02)
        check(job, tensors, dtype, "sum", scanned=True, mirrored=True, fates=fates)
        check(job, tensors, dtype, "avg", scanned=True, mirrored=True, in_place=True)


def check_zeros() -> None:
    """Zeros of all signs."""
    job = HostJob()
    tensors = [np.full(640, -0.0, np.float32) for _ in range(RANKS)]
    for rank in range(RANKS):
        tensors[rank][64 * rank : 64 * rank + 64] = 0.0
    check(job, tensors, "float32", "sum", scanned=True)
