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

from afflux_drivers.aggregator.engine import SoftEngine
from afflux_drivers.aggregator.server import AggregatorServer
from afflux_drivers.collective import Reduction
from afflux_drivers.control.client import create_job
from afflux_drivers.errors import AffluxError
from afflux_drivers.worker.worker import Worker
from afflux_hdl.contract import wire

__all__ = ["RANKS", "SLOTS", "Whole", "measure_whole"]

RANKS = 2
SLOTS = 32
"""As a group has, unless AFFLUX_SLOTS asks for another number."""

_TIMEOUT_S = 5.0


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
        lease = create_job(server.address, RANKS, lanes, slots, _TIMEOUT_S)
        held.callback(lease.close)
        ranks = [_Rank(Worker([lease.ticket], rank), count) for rank in range(RANKS)]
        for rank in ranks:
            held.callback(rank.worker.close)
        for rank in ranks:
            rank.worker.join(_TIMEOUT_S)
        _at_once([rank.call for rank in ranks])
        samples = [_sample(server, ranks) for _ in range(repeats)]
        for rank in ranks:
            rank.check(calls=repeats + 1)
    return Whole(*(median(vars(each)[name] for each in samples) for name in vars(samples[0])))


class _Rank:
    """A rank's worker and its tensor."""

    def __init__(self, worker: Worker, count: int) -> None:
        self.worker = worker
        self._first = np.linspace(1, 2, min(count, 64), dtype=np.float32)
        self._tensor = np.resize(self._first, count)
        self.cpu_s = 0.0

    def call(self) -> None:
        """All-reduce the tensor; note the processor time of this thread."""
        begin_s = time.thread_time()
        self.worker.all_reduce(
            self._tensor,
            wire.Dtype.FLOAT32,
            Reduction.SUM,
            self._tensor.shape,
            _TIMEOUT_S,
            in_place=True,
        )
        self.cpu_s = time.thread_time() - begin_s

    @property
    def nbytes(self) -> int:
        """Size of the tensor."""
        return self._tensor.nbytes

    def check(self, calls: int) -> None:
        """Raise unless the tensor is what so many sums make of it: they double it."""
        wanted = np.resize(self._first * np.float32(RANKS) ** calls, len(self._tensor))
        wrong = int((np.abs(self._tensor - wanted) > np.abs(wanted) * 1e-5).sum())
        if wrong:
            raise AffluxError(f"{wrong} of {len(wanted)} sums over the loopback are wrong")


def _sample(server: AggregatorServer, ranks: list[_Rank]) -> Whole:
    calls, passed, handed_off = _counts(server, ranks)
    begin_s, process_s, own_s = time.perf_counter(), time.process_time(), time.thread_time()
    spent = _at_once([rank.call for rank in ranks])
    wall_s = time.perf_counter() - begin_s
    # All that is not a rank's or this thread's.
    rest_s = time.process_time() - process_s - (time.thread_time() - own_s) - sum(spent)
    worker_calls, (taken, packets), handed = _counts(server, ranks)
    size = ranks[0].nbytes
    return Whole(
        worker=sum(rank.cpu_s for rank in ranks) / len(ranks) / size,
        aggregator=max(0.0, rest_s) / len(ranks) / size,
        wall=wall_s / size,
        worker_calls=(worker_calls - calls) / len(ranks) / size,
        aggregator_calls=(taken - passed[0]) / len(ranks) / size,
        handed_off=(handed - handed_off) / max(1, packets - passed[1]),
    )


def _counts(server: AggregatorServer, ranks: list[_Rank]) -> tuple[int, tuple[int, int], int]:
    """Return system calls of the ranks; those of the aggregator and its packets; its hand-offs."""
    traffic = server.traffic()
    calls = traffic["received"]["calls"] + traffic["sent"]["calls"] + traffic["waits"]
    of_ranks = sum(rank.worker.statistics.system_calls for rank in ranks)
    return of_ranks, (calls, traffic["received"]["datagrams"]), traffic["handed_off"]


def _at_once(functions: list[Callable[[], None]]) -> list[float]:
    """Run functions in threads; return the processor time of each; raise what one raised."""
    failures: list[BaseException] = []
    spent = [0.0] * len(functions)
    start = threading.Barrier(len(functions))

    def run(number: int) -> None:
        try:
            start.wait(_TIMEOUT_S)
            functions[number]()
        except BaseException as error:
            failures.append(error)
        spent[number] = time.thread_time()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return spent
