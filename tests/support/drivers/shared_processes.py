"""Ranks of shared-memory groups as real processes, which do what the test asks them to."""

import multiprocessing
import os
import resource
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from afflux_drivers import _native
from afflux_drivers.c_api import Collective, Status
from afflux_drivers.collective import Reduction
from afflux_drivers.collectives.call import GroupCall
from afflux_drivers.errors import AffluxError
from afflux_drivers.shared.worker import SharedWorker
from afflux_hdl.contract import wire
from tests.support.drivers.c_api import CCalls

# Far above what anything takes, but a hang must end.
_PATIENCE_S = 120


class Rank:
    """The program of a process: one method for each request."""

    def __init__(self) -> None:
        self.group: Any = None
        self.memory: Any = None
        self.fingerprint = 0
        self.called: Any = None

    def attach(self, path: str, rank: int, ranks: int) -> None:
        """Join a group, whose memfd another process has open."""
        self.memory = None
        if self.group is not None:
            self.group.close()
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self.group = _native.SharedGroup(descriptor, rank, ranks)
        self.fingerprint = 0

    def allocate(self, offset: int, size: int) -> None:
        self.memory = _native.SharedGroup.allocate(self.group, offset, size)

    def reduce(
        self,
        tensor: np.ndarray,
        dtype: int,
        reduction: int,
        place: int | None = None,
        delay_s: float = 0.0,
        difference: int = 0,
    ) -> tuple[np.ndarray, str, str]:
        """One all-reduce: the tensor afterwards, and the error's type and text, if any.

        `place` is where to put it in the reachable memory.
        """
        time.sleep(delay_s)
        if place is not None:
            room = self.memory[place : place + tensor.nbytes].view(tensor.dtype)
            room[:] = tensor
            tensor = room
        self.fingerprint += 1
        try:
            self.group.begin(tensor, dtype, reduction, self.fingerprint + difference)
            deadline = time.monotonic() + _PATIENCE_S
            while not self.group.advance(1.0):
                assert time.monotonic() < deadline, f"waits for {self.group.missing()}"
        except _native.GroupFailed as error:
            return tensor, type(error).__name__, str(error)
        return tensor, "", ""

    def reduce_ones(self, count: int) -> tuple[bool, str]:
        """Sum float32 ones that no pipe carries: whether all ranks are in them, and an error."""
        ones = np.ones(count, np.float32)
        dtype, reduction = int(wire.Dtype.FLOAT32), Reduction.SUM.number
        result, _, text = self.reduce(ones, dtype, reduction)
        return bool((result == self.group.ranks).all()), text

    def attach_worker(self, path: str, rank: int, ranks: int) -> None:
        """Join a group as a `SharedWorker`."""
        self.close()
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self.group = SharedWorker(descriptor, rank, ranks)

    def collective(
        self,
        call: GroupCall,
        given: np.ndarray | None,
        *,
        parts: bool = False,
        inside: bool = False,
        history: int = 0,
    ) -> tuple[np.ndarray | None, str, str]:
        """One collective: what this rank gets, and the error's type and text, if any.

        `parts` gives addresses of parts instead of one tensor; `inside` makes the smaller tensor a
        part of the larger.
        """
        worker, rank, ranks = self.group, self.group.rank, self.group.ranks
        arguments = (call, _PATIENCE_S, lambda: None, history)
        got = given
        try:
            if given is None:
                worker.run((), (), *arguments)
            elif call.collective == Collective.ALL_GATHER:
                got = np.zeros(ranks * given.size, given.dtype)
                if inside:
                    got[rank * given.size : (rank + 1) * given.size] = given
                    given = got[rank * given.size : (rank + 1) * given.size]
                outputs = got.ctypes.data if not parts else _parts(got, ranks)
                worker.run(given.ctypes.data, outputs, *arguments)
            elif call.collective == Collective.REDUCE_SCATTER:
                size = given.size // ranks
                got = np.zeros(size, given.dtype)
                if inside:
                    got = given[rank * size : (rank + 1) * size]
                inputs = given.ctypes.data if not parts else _parts(given, ranks)
                worker.run(inputs, got.ctypes.data, *arguments)
            else:
                worker.run((), given.ctypes.data, *arguments)
        except (AffluxError, ValueError) as error:
            return got, type(error).__name__, str(error)
        return got, "", ""

    def run_through_calls(self, call: GroupCall, first_s: float = 60.0) -> int:
        """All-reduce four int64 ones as another library does; return the first status."""
        ones = np.ones(4, np.int64)
        status, operation, text = CCalls(self.group.calls()).run(call, ones.ctypes.data, first_s)
        self.called = call, ones, status, operation, text
        return status

    def end_of_calls(self) -> tuple[list[int], str, str]:
        """Do what that library then does; return the elements, and the error's type and text."""
        call, ones, status, operation, text = self.called
        error: Exception | None = None
        try:
            if status == Status.NOT_YET:
                self.group.finish(call, operation, _PATIENCE_S, lambda: None)
            elif status != Status.OVER:
                error = self.group.failure_of(status, call, text)
        except AffluxError as raised:
            error = raised
        return ones.tolist(), type(error).__name__ if error else "", str(error or "")

    def close_and_call(self, call: GroupCall) -> tuple[int, str]:
        """Use the calls of a group that is closed."""
        calls = CCalls(self.group.calls())
        self.group.close()
        status, _, text = calls.run(call, np.ones(4, np.int64).ctypes.data, 1.0)
        return status, text

    def worker_statistics(self) -> dict[str, int]:
        return dict(self.group.statistics())

    def ask(self, name: str, *arguments: Any) -> Any:
        """Call a method of the group."""
        return getattr(self.group, name)(*arguments)

    def close(self) -> None:
        self.memory = None
        if self.group is not None:
            self.group.close()
        self.group = None

    def limit_memory(self, more: int) -> None:
        """Let the address space grow by so many bytes and no further."""
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + more, resource.RLIM_INFINITY))

    def wait_idly(self, seconds: float) -> float:
        """Processor seconds that waiting so long for the others takes."""
        before = time.process_time()
        assert not self.group.advance(seconds)
        return time.process_time() - before

    def repeat(self, seed: int) -> tuple[int, str]:
        """Random sums of known result until one fails: how many there were, and why it ended."""
        generator = np.random.default_rng(seed)
        rank, ranks = self.group.rank, self.group.ranks
        done = 0
        while True:
            count = int(generator.choice([5, 4000, 9000, 70_000]))
            place = 0 if generator.random() < 0.3 else None
            base = np.arange(count, dtype=np.int64) % 59 + int(generator.integers(100))
            result, _, text = self.reduce((base + rank).astype(np.float32), 1, 0, place)
            if text:
                return done, text
            np.testing.assert_array_equal(result, base * ranks + ranks * (ranks - 1) // 2)
            done += 1

    def descriptors(self) -> int:
        return len(os.listdir("/proc/self/fd"))

    def mappings(self) -> str:
        with open("/proc/self/maps") as file:
            return file.read()


def _parts(array: np.ndarray, ranks: int) -> list[int]:
    return [array[r * (array.size // ranks) :].ctypes.data for r in range(ranks)]


def serve(connection: Connection) -> None:
    """Run the process of a rank: requests come as a method's name and its arguments."""
    rank = Rank()
    while True:
        name, arguments, options = connection.recv()
        if name == "end":
            return
        try:
            answer = (True, getattr(rank, name)(*arguments, **options))
        except BaseException:
            answer = (False, traceback.format_exc())
        connection.send(answer)


class Processes:
    """Processes that can be the ranks of one group after the other."""

    def __init__(self, count: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.processes = []
        self.connections: list[Connection] = []
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=serve, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
            self.processes.append(process)
            self.connections.append(ours)

    def start(self, rank: int, name: str, *arguments: Any, **options: Any) -> None:
        self.connections[rank].send((name, arguments, options))

    def answer(self, rank: int) -> Any:
        assert self.connections[rank].poll(_PATIENCE_S), f"rank {rank} does not answer"
        fine, value = self.connections[rank].recv()
        assert fine, f"rank {rank}: {value}"
        return value

    def call(self, rank: int, name: str, *arguments: Any, **options: Any) -> Any:
        self.start(rank, name, *arguments, **options)
        return self.answer(rank)

    def call_all(self, ranks: int, name: str, *arguments: Any, **options: Any) -> list[Any]:
        for rank in range(ranks):
            self.start(rank, name, *arguments, **options)
        return [self.answer(rank) for rank in range(ranks)]

    @contextmanager
    def group(
        self,
        ranks: int,
        small_bytes: int = 0,
        batch_bytes: int = 0,
        reachable: int = 0,
        attach: str = "attach",
    ) -> Iterator[int]:
        """Yield the memfd of a group of the first `ranks` processes, as long as the context."""
        memfd = os.memfd_create("afflux-test", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
        try:
            _native.initialise_segment(memfd, ranks, small_bytes, batch_bytes)
            path = f"/proc/{os.getpid()}/fd/{memfd}"
            for rank in range(ranks):
                self.start(rank, attach, path, rank, ranks)
            for rank in range(ranks):
                self.answer(rank)
            if reachable:
                self.call_all(ranks, "allocate", 0, reachable)
            yield memfd
        finally:
            os.close(memfd)
            for rank in range(ranks):
                if self.processes[rank].is_alive():
                    self.call(rank, "close")

    def reduce(
        self,
        tensors: Sequence[np.ndarray],
        dtype: wire.Dtype,
        reduction: Reduction,
        places: Sequence[int | None] | None = None,
        delays_s: Sequence[float] | None = None,
    ) -> list[np.ndarray]:
        """Run an all-reduce of all ranks that succeeds, and return their results."""
        for rank, tensor in enumerate(tensors):
            self.start(
                rank,
                "reduce",
                tensor,
                int(dtype),
                reduction.number,
                places[rank] if places else None,
                delays_s[rank] if delays_s else 0.0,
            )
        results = []
        for rank in range(len(tensors)):
            result, kind, text = self.answer(rank)
            assert not kind, f"rank {rank}: {kind}: {text}"
            results.append(result)
        return results

    def end(self) -> None:
        for process, connection in zip(self.processes, self.connections, strict=True):
            if process.is_alive():
                connection.send(("end", (), {}))
            process.join(30)
            assert not process.is_alive()
            connection.close()
            process.close()
