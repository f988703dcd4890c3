"""Workers that send the elements of all ranks of their host: the bits are those of a flat job."""

import functools
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import numpy as np
import pytest

from afflux_drivers import _native
from afflux_drivers.collective import Reduction
from afflux_drivers.control.client import create_job
from afflux_drivers.control.tickets import JobTicket
from afflux_drivers.errors import Disagreement, RanksMissing
from afflux_drivers.worker.operation import HostPiece
from afflux_drivers.worker.worker import Worker
from afflux_hdl.contract import wire
from tests.support.drivers.golden_check import assert_same_bits, expected
from tests.support.drivers.ranks import run_ranks
from tests.support.drivers.tensors import FLOATS, OPERATIONS, awkward, gaussian

# Ranks of each host: uneven, not in order, one alone.
HOSTS = ((0, 1, 4), (2,), (3, 5))
RANKS = 6
F32 = wire.Dtype.FLOAT32


def of_hosts(ticket: JobTicket) -> JobTicket:
    return replace(
        ticket,
        members=tuple(ranks[0] for ranks in HOSTS),
        beside=tuple(ranks[1:] for ranks in HOSTS),
        ranks=RANKS,
    )


@contextmanager
def workers_of(served, lanes=3, slots=2) -> Iterator[list[Worker]]:
    """Join a worker for each host."""
    with closing(create_job(served.address, len(HOSTS), lanes, slots, 5.0)) as lease:
        workers = [Worker([of_hosts(lease.ticket)], ranks[0]) for ranks in HOSTS]
        try:
            for worker in workers:
                worker.join(10.0)
            yield workers
        finally:
            for worker in workers:
                worker.close()


def all_reduce(workers, tensors, dtype, reduction, shapes=None, partial=False, **options):
    """One operation: what it returned or raised at each host."""

    def function(worker, ranks, shape):
        own, *others = (tensors[rank] for rank in ranks)
        return lambda: worker.all_reduce(
            own,
            dtype,
            reduction,
            shape or own.shape,
            30.0,
            host=HostPiece(others, partial=partial),
            **options,
        )

    shapes = shapes or [None] * len(HOSTS)
    return run_ranks([function(*each) for each in zip(workers, HOSTS, shapes, strict=True)])


# Within the opening round and not; whole blocks and not; several rows.
COUNTS = (0, 1, 60, 73, 74, 64 * 3, 64 * 3 * 2 * 4 + 17)


@pytest.mark.parametrize(("dtype", "reduction"), OPERATIONS)
@pytest.mark.parametrize("in_place", [False, True])
def test_the_bits_are_those_of_all_ranks(served, dtype, reduction, in_place):
    generator = np.random.default_rng(3)
    with workers_of(served) as workers:
        for count in COUNTS:
            tensors = [awkward(generator, count, dtype, False) for _ in range(RANKS)]
            want = expected(tensors, dtype, reduction)
            found = all_reduce(workers, tensors, dtype, reduction, in_place=in_place)
            assert_same_bits(found, want)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("reduction", Reduction)
@pytest.mark.parametrize("in_place", [pytest.param(False, marks=pytest.mark.long), True])
def test_nan_and_infinities_of_any_rank(served, dtype, reduction, in_place):
    generator = np.random.default_rng(4)
    with workers_of(served, lanes=5) as workers:
        for _ in range(3):
            tensors = [awkward(generator, 3000, dtype, True, 0.5) for _ in range(RANKS)]
            want = expected(tensors, dtype, reduction)
            found = all_reduce(workers, tensors, dtype, reduction, in_place=in_place)
            assert_same_bits(found, want)


def test_a_block_that_one_rank_of_the_host_has(served):
    with workers_of(served) as workers:
        tensors = [-np.zeros(64 * 40, np.float32) for _ in range(RANKS)]
        for rank, tensor in enumerate(tensors):
            tensor[64 * rank * 3 : 64 * rank * 3 + 64] = 2.0**rank
        want = expected(tensors, F32, Reduction.SUM)
        assert_same_bits(all_reduce(workers, tensors, F32, Reduction.SUM, in_place=True), want)


def put_in(tensor, dtype):
    """Return what a rank hands its leader: its blocks, garbage for zeros, and which are which."""
    exponents = np.empty(-(-tensor.nbytes // 256), np.uint8)
    given = np.full(256 * len(exponents), 0xA5, np.uint8).view(tensor.dtype)
    _native.scan_into(int(dtype), tensor, given, exponents)
    return given[: len(tensor)], exponents


@pytest.mark.parametrize(("dtype", "reduction"), OPERATIONS)
@pytest.mark.parametrize("density", [0.05, pytest.param(0.6, marks=pytest.mark.long)])
def test_blocks_of_zeros_are_neither_looked_at_nor_handed_out(served, dtype, reduction, density):
    generator = np.random.default_rng(6)
    # To the others zero is a number like any.
    skips = reduction.opcode is wire.Opcode.SUM
    with workers_of(served) as workers:
        for count in (64 * 3 * 2 * 40, 64 * 3 * 2 * 4 + 17, 1025):
            tensors = [awkward(generator, count, dtype, True, density) for _ in range(RANKS)]
            want = expected(tensors, dtype, reduction)
            mirrors, calls = [], []
            for worker, (leader, *others) in zip(workers, HOSTS, strict=True):
                given, exponents = [tensors[rank] for rank in others], []
                if skips:
                    pairs = [put_in(each, dtype) for each in given]
                    given, exponents = [each for each, _ in pairs], [each for _, each in pairs]
                mirrors.append((np.full_like(want, 99), np.zeros(-(-want.nbytes // 256), np.uint8)))
                calls.append(
                    functools.partial(
                        worker.all_reduce, tensors[leader], dtype, reduction, want.shape, 30.0,
                        in_place=True, host=HostPiece(given, exponents, mirrors[-1]),
                    )
                )  # fmt: skip
            assert_same_bits(run_ranks(calls), want)
            for (_, *others), (mirrored, marks) in zip(HOSTS, mirrors, strict=True):
                of = 256 // want.itemsize
                assert (mirrored[np.repeat(marks, of)[:count] == 0] == 99).all()
                assert skips or marks.all()
                for rank in others:
                    _native.copy_marked(mirrored, marks, tensors[rank])
                    assert_same_bits([tensors[rank]], want)


def test_a_part_is_compared_by_the_shape_of_the_whole(served):
    generator = np.random.default_rng(5)
    with workers_of(served) as workers:
        tensors = [gaussian(generator, 640, F32) for _ in range(RANKS)]
        want = expected(tensors, F32, Reduction.SUM)
        shapes = [(1000, 3)] * len(HOSTS)
        found = all_reduce(workers, tensors, F32, Reduction.SUM, shapes, True)
        assert_same_bits(found, want)
        shapes[1] = (3, 1000)
        for rank, error in zip(
            (0, 2, 3), all_reduce(workers, tensors, F32, Reduction.SUM, shapes, True),
            strict=True,
        ):  # fmt: skip
            assert isinstance(error, Disagreement)
            # Every rank has its word, those of a host the same.
            groups = {each: error.fingerprints[each] for each in range(RANKS)}
            assert groups[0] == groups[1] == groups[4] == groups[3] == groups[5] != groups[2]
            assert f"rank {rank} called" in str(error)
    assert error.fingerprints is not None


def test_the_ranks_of_a_missing_host_are_named(served):
    with workers_of(served) as workers:
        own, *others = np.ones((3, 100), np.float32)
        with pytest.raises(RanksMissing) as caught:
            workers[0].all_reduce(own, F32, Reduction.SUM, (100,), 1.0, host=HostPiece(others))
        assert caught.value.ranks == (2, 3, 5)


def test_others_that_do_not_fit_are_refused(served):
    with workers_of(served) as workers:
        own = np.ones(100, np.float32)
        with pytest.raises(ValueError, match="those of 2 are sent"):
            workers[0].all_reduce(own, F32, Reduction.SUM, (100,), 1.0)
        with pytest.raises(ValueError, match="as many elements"):
            others = [np.ones(99, np.float32), np.ones(100, np.float32)]
            workers[2].all_reduce(own, F32, Reduction.SUM, (100,), 1.0, host=HostPiece(others[:1]))


def test_tickets_with_hosts(served):
    with closing(create_job(served.address, len(HOSTS), 3, 2, 5.0)) as lease:
        ticket = of_hosts(lease.ticket)
        assert JobTicket.from_json(ticket.to_json()) == ticket
        assert [ticket.ranks_of(worker) for worker in range(3)] == list(HOSTS)
        assert [lease.ticket.ranks_of(worker) for worker in range(3)] == [(0,), (1,), (2,)]
        for beside in (((1,), (), (1,)), ((1,), ()), ((0,), (), ()), ((6,), (), ())):
            with pytest.raises(ValueError, match="are not those of"):
                replace(ticket, beside=beside)
