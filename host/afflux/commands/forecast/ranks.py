"""Ranks of a forecast: threads of this process, each with a tensor of its own."""

import threading
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from afflux_drivers.errors import AffluxError

__all__ = ["RANKS", "TIMEOUT_S", "Rank", "at_once"]

RANKS = 2
TIMEOUT_S = 5.0


class Rank:
    """A rank and its tensor.

    Args:
        all_reduce: Sums a tensor in place, with those of the other ranks.
        count: Elements of the tensor.

    Attributes:
        cpu_s: Processor time of the last call.
    """

    def __init__(self, all_reduce: Callable[[NDArray[np.float32]], None], count: int) -> None:
        self._all_reduce = all_reduce
        self._first = np.linspace(1, 2, min(count, 64), dtype=np.float32)
        self._tensor = np.resize(self._first, count)
        self.cpu_s = 0.0

    def call(self) -> None:
        """All-reduce the tensor; note the processor time of this thread."""
        begin_s = time.thread_time()
        self._all_reduce(self._tensor)
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


def at_once(functions: list[Callable[[], None]]) -> list[float]:
    """Run functions in threads; return the processor time of each; raise what one raised."""
    failures: list[BaseException] = []
    spent = [0.0] * len(functions)
    start = threading.Barrier(len(functions))

    def run(number: int) -> None:
        try:
            start.wait(TIMEOUT_S)
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
