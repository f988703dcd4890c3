"""Failures end, soon, with an error at every rank that names the event and the rank."""

import socket
import time
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from afflux_drivers.aggregator.engine import SoftEngine
from afflux_drivers.c_api import Status
from afflux_drivers.collective import Reduction
from afflux_drivers.control.client import create_job
from afflux_drivers.errors import (
    AffluxError,
    AggregatorRefused,
    AggregatorUnreachable,
    DeadlineExceeded,
    Disagreement,
    Interrupted,
    RanksMissing,
    WorkerFailed,
)
from afflux_drivers.worker.worker import Worker
from afflux_hdl.contract import wire
from tests.support.drivers.c_api import CCalls
from tests.support.drivers.ranks import Ranks, run_ranks
from tests.support.drivers.served import Served
from tests.support.drivers.virtual_job import ticket_of

F32 = wire.Dtype.FLOAT32


def ones(count: int = 5000) -> np.ndarray:
    return np.ones(count, np.float32)


def reduce_ones(worker: Worker, count: int = 5000, timeout_s: float = 5.0) -> np.ndarray:
    return worker.all_reduce(ones(count), F32, Reduction.SUM, (count,), timeout_s)


@pytest.mark.parametrize("listening", [False, True])
def test_unreachable_aggregator(listening):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        if not listening:
            silent.close()
        worker = Worker([replace(ticket_of(2, 4, 4), host="127.0.0.1", port=port)], 1)
        start = time.monotonic()
        with pytest.raises(
            AggregatorUnreachable, match=f"join timed out: rank 1 .*127.0.0.1:{port}"
        ):
            worker.join(0.5)
        assert time.monotonic() - start < 2
        with pytest.raises(WorkerFailed, match=f"all_reduce: rank 1.*join.*{port}"):
            reduce_ones(worker)
        worker.close()


def test_a_name_that_is_none():
    with pytest.raises(AggregatorUnreachable, match=r"no-such-host\.invalid:4700"):
        Worker([replace(ticket_of(1, 1, 1), host="no-such-host.invalid")], 0)


def test_aggregator_dies_between_and_within_operations():
    served = Served(SoftEngine())
    try:
        lease = create_job(served.address, 2, 16, 4, 5.0)
        with Ranks(lease.ticket, peer_timeout_s=0.8) as ranks:
            assert all(
                isinstance(result, np.ndarray)
                for result in ranks.all_reduce([ones()] * 2, F32, Reduction.SUM)
            )

            def die() -> None:
                time.sleep(0.3)
                served.stop()

            start = time.monotonic()
            # Rank 1 never calls, so that rank 0 is in the middle when the aggregator goes.
            outcomes = run_ranks([lambda: reduce_ones(ranks.workers[0], timeout_s=30), die])
            assert isinstance(outcomes[0], AggregatorUnreachable)
            assert "1:sum:float32:5000" in str(outcomes[0])
            assert f"127.0.0.1:{served.address[1]}" in str(outcomes[0])
            with pytest.raises(AggregatorUnreachable, match="rank 1"):
                reduce_ones(ranks.workers[1], timeout_s=30)
            assert time.monotonic() - start < 10
        with pytest.raises(AggregatorRefused, match="it is ending, and job 0 with it"):
            lease.close()
    finally:
        served.stop()


def test_rank_that_never_comes_is_named(served):
    lease = create_job(served.address, 4, 16, 4, 5.0)
    with Ranks(lease.ticket) as ranks:
        start = time.monotonic()
        outcomes = run_ranks(
            [partial(reduce_ones, worker, timeout_s=0.7) for worker in ranks.workers[:2]]
        )
        assert time.monotonic() - start < 3
        for rank, outcome in enumerate(outcomes):
            assert isinstance(outcome, RanksMissing)
            assert outcome.ranks == (2, 3)
            for part in (
                f"rank {rank} ",
                "2, 3",
                "0:sum:float32:5000",
                "Timed out waiting 700ms (timeout 0.7 s)",
            ):
                assert str(outcome).count(part) == 1
        with pytest.raises(WorkerFailed, match=r"failed earlier.*2, 3"):
            reduce_ones(ranks.workers[0])
    lease.close()


def test_deadline_without_word_of_missing_ranks(served):
    lease = create_job(served.address, 2, 16, 4, 5.0)
    with (
        Ranks(lease.ticket) as ranks,
        pytest.raises(DeadlineExceeded, match=r"Timed out .* rank 0"),
    ):
        reduce_ones(ranks.workers[0], timeout_s=0.001)
    lease.close()


def test_a_slow_rank_is_waited_for(served):
    lease = create_job(served.address, 2, 16, 4, 5.0)
    with Ranks(lease.ticket, peer_timeout_s=0.5) as ranks:

        def slow() -> np.ndarray:
            # Longer than the aggregator may be silent: but it is not, it answers probes.
            time.sleep(1.5)
            return reduce_ones(ranks.workers[1])

        outcomes = run_ranks([lambda: reduce_ones(ranks.workers[0]), slow])
        for outcome in outcomes:
            np.testing.assert_array_equal(outcome, 2 * ones())
    lease.close()


@pytest.mark.parametrize(
    ("others_dtype", "others_reduction", "others_shape"),
    [
        (F32, Reduction.SUM, (10, 500)),
        (F32, Reduction.SUM, (5001,)),
        (F32, Reduction.SUM, (3,)),
        (F32, Reduction.SUM, (0,)),
        (F32, Reduction.AVG, (5000,)),
        (F32, Reduction.MAX, (5000,)),
        (wire.Dtype.INT32, Reduction.SUM, (5000,)),
        (wire.Dtype.FLOAT16, Reduction.MIN, (64, 2)),
    ],
)
@pytest.mark.parametrize("odd", [0, 2])
def test_disagreement_is_an_error_at_every_rank(
    served, odd, others_dtype, others_reduction, others_shape
):
    lease = create_job(served.address, 3, 16, 4, 5.0)
    types = {F32: np.float32, wire.Dtype.INT32: np.int32, wire.Dtype.FLOAT16: np.float16}
    other = np.ones(int(np.prod(others_shape)), types[others_dtype])
    with Ranks(lease.ticket, loss=0.05) as ranks:
        ranks.all_reduce([ones()] * 3, F32, Reduction.SUM)

        def call(rank: int) -> np.ndarray:
            worker = ranks.workers[rank]
            if rank == odd:
                return worker.all_reduce(other, others_dtype, others_reduction, others_shape, 5.0)
            return reduce_ones(worker)

        start = time.monotonic()
        outcomes = run_ranks([partial(call, rank) for rank in range(3)])
        assert time.monotonic() - start < 4
        for rank, outcome in enumerate(outcomes):
            assert isinstance(outcome, Disagreement), outcome
            assert outcome.number == 1
            assert outcome.description in str(outcome)
            assert (outcome.description == "1:sum:float32:5000") is (rank != odd)
            if outcome.fingerprints is not None:
                assert len(outcome.fingerprints) == 3
                assert outcome.fingerprints[rank] == outcome.fingerprint
            with pytest.raises(WorkerFailed, match="disagree"):
                reduce_ones(ranks.workers[rank])
    lease.close()


def test_interrupted(served):
    lease = create_job(served.address, 2, 16, 4, 5.0)
    with Ranks(lease.ticket) as ranks:
        start = time.monotonic()
        with pytest.raises(Interrupted, match=r"operation 0:sum.*: rank 0: rank 1 has failed"):
            ranks.workers[0].all_reduce(
                ones(), F32, Reduction.SUM, (5000,), 30.0, lambda: "rank 1 has failed"
            )
        # Of 30 s that the operation might take.
        assert time.monotonic() - start < 10
    lease.close()


def test_refusals_say_why(served):
    lease = create_job(served.address, 2, 4, 4, 5.0)
    ticket = lease.ticket
    for wrong, cause in (
        (replace(ticket, job=7), "no such job"),
        (replace(ticket, job=200), "no such job"),
        (replace(ticket, key=ticket.key ^ 1), "key is not"),
        (replace(ticket, workers=3), "no such worker"),
        (replace(ticket, slots=5), r"\[2, 4, 4, 4\]; rank 0 expects \[2, 4, 5, 4\]"),
    ):
        worker = Worker([wrong], 2 if wrong.workers == 3 else 0)
        with pytest.raises(AggregatorRefused, match=cause):
            worker.join(5.0)
        worker.close()
    lease.close()


@pytest.mark.parametrize(
    ("cause", "what"),
    [
        (wire.Refusal.VERSION, "does not speak version 2 of the protocol: update Afflux"),
        (77, "cause 77"),
    ],
)
def test_refusals_that_no_aggregator_of_this_version_sends(cause, what):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as aggregator:
        aggregator.bind(("127.0.0.1", 0))
        port = aggregator.getsockname()[1]
        worker = Worker([replace(ticket_of(2, 4, 4), host="127.0.0.1", port=port)], 1)

        def refuse() -> None:
            join, address = aggregator.recvfrom(100)
            refused = bytes([wire.VERSION << 4 | wire.Type.REFUSED]) + join[1:22]
            aggregator.sendto(refused + np.array([cause, *[0] * 15], "<u4").tobytes(), address)

        outcomes = run_ranks([lambda: worker.join(5.0), refuse])
        assert isinstance(outcomes[0], AggregatorRefused)
        assert f"127.0.0.1:{port} refused rank 1 of job 0: " in str(outcomes[0])
        assert what in str(outcomes[0])
        worker.close()


def test_a_job_that_ended_is_silent_and_refuses(served):
    lease = create_job(served.address, 1, 4, 4, 5.0)
    with Ranks(lease.ticket) as ranks:
        lease.close()
        with pytest.raises(
            AggregatorUnreachable,
            match=f"rank 0: the aggregator at .*:{served.address[1]} has restarted, or has ended "
            "the job, and no longer knows job 0: .*no such job",
        ):
            reduce_ones(ranks.workers[0], timeout_s=30)
    worker = Worker([lease.ticket], 0)
    with pytest.raises(AggregatorRefused, match="no such job"):
        worker.join(5.0)
    worker.close()


def test_wrong_arguments():
    ticket = ticket_of(2, 4, 4)
    for wrong, rank, what in (
        (ticket, 2, "rank 2"),
        (ticket, -1, "rank -1"),
        (replace(ticket, workers=65), 0, "65"),
        (replace(ticket, lanes=17), 0, "17"),
        (replace(ticket, slots=0), 0, "0"),
    ):
        with pytest.raises(ValueError, match=what):
            Worker([replace(wrong, host="127.0.0.1")], rank)
    with pytest.raises(ValueError, match="-1"):
        Worker([replace(ticket, host="127.0.0.1")], 0, peer_timeout_s=-1)


@pytest.mark.parametrize(
    ("elements", "dtype", "reduction", "shape", "what"),
    [
        (np.ones(4, np.float64), F32, Reduction.SUM, (4,), "float64"),
        (np.ones((2, 2), np.float32), F32, Reduction.SUM, (4,), "2-D"),
        (np.ones(8, np.float32)[::2], F32, Reduction.SUM, (4,), "contiguous"),
        (np.ones(4, np.float32), F32, Reduction.SUM, (2, 3), r"\(2, 3\)"),
        (np.ones(4, np.float32), F32, Reduction.SUM, (-2, -2), "negative"),
        (np.ones(4, np.int32), wire.Dtype.INT32, Reduction.AVG, (4,), "average of int32"),
    ],
)
def test_wrong_elements(served, elements, dtype, reduction, shape, what):
    lease = create_job(served.address, 1, 4, 4, 5.0)
    with Ranks(lease.ticket) as ranks:
        with pytest.raises(ValueError, match=what):
            ranks.workers[0].all_reduce(elements, dtype, reduction, shape, 5.0)
        with pytest.raises(WorkerFailed):
            reduce_ones(ranks.workers[0])
    lease.close()


def test_calls_out_of_turn(served):
    lease = create_job(served.address, 1, 4, 4, 5.0)
    worker = Worker([lease.ticket], 0)
    with pytest.raises(AffluxError, match="has not joined"):
        reduce_ones(worker)
    worker.close()
    worker.close()
    worker = Worker([lease.ticket], 0)
    worker.join(5.0)
    worker.close()
    with pytest.raises(WorkerFailed, match="closed"):
        reduce_ones(worker)
    lease.close()


def test_other_libraries_find_a_failed_worker_failed(served):
    lease = create_job(served.address, 1, 4, 4, 5.0)
    worker = Worker([lease.ticket], 0)
    worker.join(5.0)
    calls = CCalls(worker.calls())
    tensor = np.full(100, 2.5, np.float32)
    call = worker.prepare(F32, Reduction.SUM, (100,))
    assert calls.run(call, tensor.ctypes.data, 5.0) == (Status.OVER, 1, "")
    assert worker.statistics.operations == 1
    assert (tensor == 2.5).all()
    with pytest.raises(ValueError, match="shape"):
        worker.all_reduce(tensor, F32, Reduction.SUM, (7,), 5.0)
    status, _, text = calls.run(call, tensor.ctypes.data, 5.0)
    assert (status, text) == (Status.FAILED, "the worker is closed")
    worker.close()
    lease.close()
