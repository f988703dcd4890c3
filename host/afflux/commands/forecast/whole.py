"""The cost of a whole all-reduce at its ranks and its aggregator, over the loopback interface.

Ranks and aggregator are threads of this process, with the sockets and the code that they have in a
job. Costs are of processor time, so it does not matter how many cores they share.
"""

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from afflux.commands.forecast.ranks import RANKS, TIMEOUT_S, Rank, at_once
from afflux_drivers.aggregator.engine import SoftEngine
from afflux_drivers.aggregator.server import AggregatorServer
from afflux_drivers.collective import Reduction
from afflux_drivers.control.client import create_job
from afflux_drivers.worker.worker import Worker
from afflux_hdl.contract import wire

__all__ = ["SLOTS", "Whole", "measure_whole"]

SLOTS = 32
"""As a group has, unless AFFLUX_SLOTS asks for another number."""


@dataclass(frozen=True)
class Whole:
    """The calls' cost: seconds, for a byte of a rank's tensor unless otherwise said.

    Attributes:
        worker: Processor time of a rank.
        aggregator: That of the aggregator, for a byte that it receives, and one that it sends.
        wall: From a call's beginning to its end.
        worker_calls: System calls of a rank for a byte.
        aggregator_calls: Those of the aggregator, for a byte as above.
        handed_off: Share of packets that its threads have handed to one another.
    """

    worker: float
    aggregator: float
    wall: float
    worker_calls: float
    aggregator_calls: float
    handed_off: float


def measure_whole(
    lanes: int, tensor_bytes: int, repeats: int, *, threads: int = 1, slots: int = SLOTS
) -> Whole:
    """All-reduce a dense tensor of float32 in place, as often as asked for and once before.

    Args:
        lanes: Blocks of a packet.
        tensor_bytes: Size of each rank's tensor.
        repeats: Calls; medians are taken.
        threads: Of the aggregator.
        slots: Packets that a rank may have in flight.

    Raises:
        AffluxError: It did not work, or the sums were wrong.
        OSError: There can be no such sockets.
    """
    count = max(1, tensor_bytes // 4)
    with ExitStack() as held:
        server = AggregatorServer(SoftEngine(shares=threads))
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        held.callback(serving.join)
        held.callback(server.stop)
        lease = create_job(server.address, RANKS, lanes, slots, TIMEOUT_S)
        held.callback(lease.close)
        workers = [Worker([lease.ticket], rank) for rank in range(RANKS)]
        for worker in workers:
            held.callback(worker.close)
        for worker in workers:
            worker.join(TIMEOUT_S)
        ranks = [Rank(_all_reduce(worker), count) for worker in workers]
        at_once([rank.call for rank in ranks])
        samples = [_sample(server, workers, ranks) for _ in range(repeats)]
        for rank in ranks:
            rank.check(calls=repeats + 1)
    return Whole(*(median(vars(each)[name] for each in samples) for name in vars(samples[0])))


def _all_reduce(worker: Worker) -> Callable[[NDArray[np.float32]], None]:
    def all_reduce(tensor: NDArray[np.float32]) -> None:
        worker.all_reduce(
            tensor, wire.Dtype.FLOAT32, Reduction.SUM, tensor.shape, TIMEOUT_S, in_place=True
        )

    return all_reduce


def _sample(server: AggregatorServer, workers: list[Worker], ranks: list[Rank]) -> Whole:
    calls, passed, handed_off = _counts(server, workers)
    begin_s, process_s, own_s = time.perf_counter(), time.process_time(), time.thread_time()
    spent = at_once([rank.call for rank in ranks])
    wall_s = time.perf_counter() - begin_s
    # All that is not a rank's or this thread's.
    rest_s = time.process_time() - process_s - (time.thread_time() - own_s) - sum(spent)
    worker_calls, (taken, packets), handed = _counts(server, workers)
    size = ranks[0].nbytes
    return Whole(
        worker=sum(rank.cpu_s for rank in ranks) / len(ranks) / size,
        aggregator=max(0.0, rest_s) / len(ranks) / size,
        wall=wall_s / size,
        worker_calls=(worker_calls - calls) / len(ranks) / size,
        aggregator_calls=(taken - passed[0]) / len(ranks) / size,
        handed_off=(handed - handed_off) / max(1, packets - passed[1]),
    )


def _counts(server: AggregatorServer, workers: list[Worker]) -> tuple[int, tuple[int, int], int]:
    """Return system calls of the ranks; those of the aggregator and its packets; its hand-offs."""
    traffic = server.traffic()
    calls = traffic["received"]["calls"] + traffic["sent"]["calls"] + traffic["waits"]
    of_ranks = sum(worker.statistics.system_calls for worker in workers)
    return of_ranks, (calls, traffic["received"]["datagrams"]), traffic["handed_off"]
