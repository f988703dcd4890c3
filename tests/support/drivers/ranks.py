"""Ranks as threads of the test's process, each with its worker and its socket."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from afflux_drivers.collective import Reduction
from afflux_drivers.control.tickets import JobTicket
from afflux_drivers.worker.loss import LossSwitch
from afflux_drivers.worker.worker import Worker
from afflux_hdl.contract import wire

LIMIT_S = 60.0


def run_ranks(functions: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run the functions at the same time. Return what each returned or raised."""
    outcomes: list[Any] = [None] * len(functions)

    def run(rank: int) -> None:
        try:
            outcomes[rank] = functions[rank]()
        except BaseException as error:
            outcomes[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
        assert not thread.is_alive(), "a rank hangs"
    return outcomes


class Ranks:
    """The workers of all ranks of a job, or of jobs whose aggregators share columns.

    Closes them at the end of a `with`.
    """

    def __init__(
        self,
        *tickets: JobTicket,
        loss: float = 0.0,
        peer_timeout_s: float = 10.0,
        seed: int = 1,
    ) -> None:
        self.workers = [
            Worker(
                tickets,
                rank,
                loss=LossSwitch(loss, seed, rank),
                peer_timeout_s=peer_timeout_s,
            )
            for rank in range(tickets[0].workers)
        ]

    def __enter__(self) -> "Ranks":
        for worker in self.workers:
            worker.join(10.0)
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.close()

    def all_reduce(
        self,
        tensors: Sequence[np.ndarray],
        dtype: wire.Dtype,
        reduction: Reduction,
        timeout_s: float = 30.0,
    ) -> list[Any]:
        """One operation at all ranks: what each returned or raised."""

        def function(rank: int) -> Callable[[], Any]:
            tensor = tensors[rank]
            return lambda: self.workers[rank].all_reduce(
                tensor.reshape(-1), dtype, reduction, tensor.shape, timeout_s
            )

        return run_ranks([function(rank) for rank in range(len(tensors))])

    def blocks_sent(self) -> int:
        return sum(worker.statistics.blocks_sent for worker in self.workers)
