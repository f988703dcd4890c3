"""One of the four ranks of `benchmarks.network.shares`: two jobs of two, on the same two hosts."""

import argparse
import json
import socket
import sys
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

import afflux  # noqa: F401 - registers the backend
from afflux.torchrun import end_with_parent
from benchmarks.report.control import Control

__all__ = ["BACKENDS", "CASES", "ROW_MARK", "main"]

ROW_MARK = "row: "

BACKENDS = ("gloo", "afflux")
"""Of the jobs."""

CASES = ("alone", "two jobs", "beside a TCP stream")
"""What is on the wire: the first job in all of them."""

_COUNT = 4 << 20
_CHUNK = 1 << 18


class _Jobs(Control):
    """The jobs are ranks 0 and 2, and 1 and 3. Ranks 0 and 1 are on the first host."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds
        self._first = self.rank % 2 == 0
        self._groups = {
            backend: [
                dist.new_group([job, job + 2], backend=backend, timeout=timedelta(seconds=60))
                for job in (0, 1)
            ][self.rank % 2]
            for backend in BACKENDS
        }
        self._address = socket.gethostbyname(socket.gethostname())

    def rate(self, backend: str, case: str) -> float:
        """Return the bytes a second: of the own job each way, or of the stream."""
        other = self._connected() if case == "beside a TCP stream" else None
        dist.barrier(self.control)
        if self._first or case == "two jobs":
            return self._job(self._groups[backend])
        return 0.0 if other is None else self._stream(other)

    def _job(self, group: Any) -> float:
        tensor = torch.ones(_COUNT)
        begin = time.perf_counter()
        calls = 0
        # Averages of ones are ones; the last element tells both ranks that the time is over.
        while tensor[-1] == 1.0:
            if time.perf_counter() - begin > self._seconds:
                tensor[-1] = 2.0
            dist.all_reduce(tensor, group=group)
            tensor /= 2
            calls += 1
        if not bool((tensor[:-1] == 1.0).all()):
            raise RuntimeError("a sum is wrong")
        return calls * tensor.nbytes / (time.perf_counter() - begin)

    def _connected(self) -> socket.socket | None:
        """Return the end of a connection between ranks 1 and 3."""
        listener = socket.create_server((self._address, 0)) if self.rank == 3 else None
        places: list[Any] = [None] * self.ranks
        place = listener.getsockname() if listener is not None else None
        dist.all_gather_object(places, place, group=self.control)
        if self.rank == 1:
            return socket.create_connection(places[3])
        if listener is None:
            return None
        with listener:
            return listener.accept()[0]

    def _stream(self, tcp: socket.socket) -> float:
        begin, passed = time.perf_counter(), 0
        with tcp:
            if self.rank == 3:
                while got := len(tcp.recv(_CHUNK)):
                    passed += got
            else:
                chunk = bytes(_CHUNK)
                while time.perf_counter() - begin < self._seconds:
                    tcp.sendall(chunk)
                    passed += len(chunk)
        return passed / (time.perf_counter() - begin)


def main() -> int:
    """Run one rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, required=True)
    given = parser.parse_args()
    end_with_parent()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    jobs = _Jobs(given.seconds)
    for backend in BACKENDS:
        for case in CASES:
            rates: list[float] = [0.0] * jobs.ranks
            dist.all_gather_object(rates, jobs.rate(backend, case), group=jobs.control)
            if jobs.rank == 0:
                # Of the stream what was received.
                print(ROW_MARK + json.dumps([backend, case, rates[0], rates[3]]), flush=True)
    dist.barrier()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
