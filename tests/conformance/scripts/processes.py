"""Signals, threads, forks, debug levels and profilers: what else goes on in a rank's process."""

import contextlib
import json
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

from tests.conformance.script import ENDED, FLOAT_SUM, refusal, sample, script
from tests.conformance.scripts.data_parallel import TRAINED, net, train

_DETAIL = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}


@contextlib.contextmanager
def _handled(number: int, handler: Any) -> Iterator[None]:
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


@script(alone=True, limit_s=40)
def signal_while_idle(rank: int, size: int, backend: str) -> Any:
    """Agree in a SIGUSR1 handler while nothing else goes on."""
    seen: list[torch.Tensor] = []

    def handler(*_: Any) -> None:
        flag = torch.tensor([1.0 + rank])
        dist.all_reduce(flag)
        dist.barrier()
        seen.append(flag)

    with _handled(signal.SIGUSR1, handler):
        dist.all_reduce(torch.ones(2))
        os.kill(os.getpid(), signal.SIGUSR1)
        while not seen:
            time.sleep(0.01)
        after = sample(rank, 4)
        dist.all_reduce(after, op=dist.ReduceOp.MAX)
    return [seen, after]


@script(alone=True, beyond_gloo=True, limit_s=40)
def signal_inside_a_collective(rank: int, size: int, backend: str) -> Any:
    """Agree in a SIGTERM handler that comes to all but one rank inside an all_reduce.

    As SLURM's preemption does: the last rank is not in the collective yet, calls it first, and has
    its own signal afterwards.
    """
    seen: list[torch.Tensor] = []

    def handler(*_: Any) -> None:
        flag = torch.tensor([1.0 + rank])
        dist.all_reduce(flag)
        seen.append(flag)

    total = torch.full((1000,), 1.0 + rank)
    with _handled(signal.SIGTERM, handler):
        dist.all_reduce(torch.ones(2))
        if rank < size - 1:
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
        else:
            time.sleep(1.5)
        dist.all_reduce(total)
        if rank == size - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        while not seen:
            time.sleep(0.01)
    expected = sum(1.0 + each for each in range(size))
    assert total.eq(expected).all() and seen[0].item() == expected, (total[0], seen)
    return "agreed"


@script(alone=True)
def interrupted_by_a_signal(rank: int, size: int, backend: str) -> Any:
    """Take signals whose handler does nothing, in the middle of collectives."""
    count = [0]

    def handler(*_: Any) -> None:
        count[0] += 1

    tensors = [sample(rank + each, 1000, dtype=torch.int32) for each in range(50)]
    with _handled(signal.SIGALRM, handler):
        signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
        for tensor in tensors:
            dist.all_reduce(tensor)
            dist.broadcast(tensor, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
    return tensors


@script()
def data_loader_workers(rank: int, size: int, backend: str) -> Any:
    """Load data with forked workers while collectives go on."""
    data = TensorDataset(torch.arange(40))
    seen = []
    # The default of a program of one's own; these ranks come from a fork server.
    loader = DataLoader(data, batch_size=8, num_workers=2, multiprocessing_context="fork")
    for (batch,) in loader:
        total = batch + rank
        dist.all_reduce(total)
        seen.append(total)
    return seen


@script()
def forked_child(rank: int, size: int, backend: str) -> Any:
    """Fork a child that ends without a word: the parent's group goes on."""
    dist.all_reduce(torch.ones(1))
    child = os.fork()
    if child == 0:
        os._exit(7)
    _, status = os.waitpid(child, 0)
    after = torch.ones(3)
    dist.all_reduce(after)
    return [os.waitstatus_to_exitcode(status), after]


@script(bound=FLOAT_SUM)
def threads_with_groups(rank: int, size: int, backend: str) -> Any:
    """Use one group from each of four threads."""
    groups = [dist.new_group() for _ in range(4)]

    def work(index: int) -> list[torch.Tensor]:
        tensors = [sample(rank + index * 10 + each, 100) for each in range(10)]
        for tensor in tensors:
            dist.all_reduce(tensor, group=groups[index])
        return tensors

    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(work, range(4)))


@script(bound=FLOAT_SUM)
def waited_in_another_thread(rank: int, size: int, backend: str) -> Any:
    """Start in one thread, wait in another."""
    tensor = sample(rank, 300)
    work = dist.all_reduce(tensor, async_op=True)
    assert work is not None
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work.wait).result(20)
    return tensor


@script(bound=TRAINED, environment=_DETAIL, beyond_gloo=True)
def debug_detail_ddp(rank: int, size: int, backend: str) -> Any:
    """Train with TORCH_DISTRIBUTED_DEBUG=DETAIL, which torch 2.13 does not survive with Gloo."""
    return train(DDP(net()), rank)


@script(bound=TRAINED, environment=_DETAIL)
def debug_detail(rank: int, size: int, backend: str) -> Any:
    """Call collectives with TORCH_DISTRIBUTED_DEBUG=DETAIL."""
    tensor = sample(rank, 5)
    dist.all_reduce(tensor)
    parts = [torch.empty(5) for _ in range(size)]
    dist.all_gather(parts, tensor)
    found: list[Any] = [None] * size
    dist.all_gather_object(found, rank)
    return [tensor, parts, found]


@script(environment=_DETAIL, timeout_s=5.0)
def debug_detail_sees_a_mismatch(rank: int, size: int, backend: str) -> Any:
    """Call different collectives with DETAIL: every rank is told."""
    call = (lambda: dist.all_reduce(torch.ones(2))) if rank else dist.barrier
    return refusal(call)


def _traced(rank: int, size: int) -> list[str]:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        tensor = sample(rank, 100)
        dist.all_reduce(tensor)
        work = dist.broadcast(tensor, 0, async_op=True)
        assert work is not None
        work.wait()
        parts = [torch.empty(100) for _ in range(size)]
        dist.all_gather(parts, tensor)
        dist.barrier()
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        profiler.export_chrome_trace(file.name)
        events = json.loads(Path(file.name).read_text(encoding="utf-8"))["traceEvents"]
    return [str(each.get("name", "")) for each in events]


@script()
def profiler_events(rank: int, size: int, backend: str) -> Any:
    """Find collectives in a trace: the backend's own events and torch's."""
    names = _traced(rank, size)
    own = backend.rpartition(":")[2]
    wanted = ("all_reduce", "broadcast", "all_gather")
    return [
        [f"{own}:{each}" in names for each in wanted],
        [f"c10d::{each}_" in names for each in ("allreduce", "broadcast", "allgather")],
    ]


@script()
def profiler_events_of_each_call(rank: int, size: int, backend: str) -> Any:
    """Profile calls of all kinds: each has one asynchronous event, with the shapes it reads."""
    tensor = sample(rank, 12)
    peer = rank ^ 1
    with torch.autograd.profiler.profile(record_shapes=True) as profiler:
        dist.all_reduce(tensor)
        works = [dist.all_reduce(sample(rank, 2, 3), async_op=True) for _ in range(3)]
        works += [dist.broadcast(tensor, 0, async_op=True), dist.reduce(tensor, 0, async_op=True)]
        dist.all_reduce(torch.ones(3, dtype=torch.uint8))
        dist.all_gather([torch.empty(12) for _ in range(size)], tensor)
        dist.gather(tensor, [torch.empty(12) for _ in range(size)] if rank == 0 else None)
        dist.scatter(tensor, [sample(rank, 12) for _ in range(size)] if rank == 0 else None)
        dist.all_to_all_single(torch.empty(4 * size), sample(rank, 4 * size))
        dist.barrier()
        for _ in range(2):
            works += [dist.isend(tensor, peer), dist.irecv(torch.empty(12), peer)]
        works.append(dist.isend(tensor, peer))
        dist.recv(torch.empty(12))
        for work in works:
            assert work is not None
            work.wait()
    own = backend.rpartition(":")[2]
    kinds = "all_reduce broadcast reduce all_gather gather scatter barrier send recv recvAnySource"
    return {
        kind: sorted(
            (each.is_async, str(each.input_shapes), each.count)
            for each in profiler.function_events
            if each.name == f"{own}:{kind}"
        )
        for kind in kinds.split()
    }


@script(bound=FLOAT_SUM)
def hooks_of_a_group(rank: int, size: int, backend: str) -> Any:
    """Count operations by torch's own hook on completion, where a backend has it."""
    group = dist.distributed_c10d._get_default_group()
    seen: list[int] = []
    try:
        group._register_on_completion_hook(lambda info: seen.append(1))
    except RuntimeError:
        return "refused"
    dist.all_reduce(torch.ones(1))
    return "registered"


@script(bound=FLOAT_SUM)
def garbage_collected_works(rank: int, size: int, backend: str) -> Any:
    """Forget Works and their tensors before they are done, then meet."""
    for each in range(30):
        dist.all_reduce(sample(rank + each, 5000), async_op=True)
    last = sample(rank, 10)
    dist.all_reduce(last)
    return last


@script(alone=True, ends_a_rank=True, limit_s=40)
def dead_rank(rank: int, size: int, backend: str) -> Any:
    """Lose a rank in mid-training: the others are told within seconds."""
    dist.all_reduce(torch.ones(2))
    if rank == size - 1:
        os._exit(ENDED)
    started = time.monotonic()
    answer = refusal(lambda: [dist.all_reduce(torch.ones(2)) for _ in range(3)])
    assert time.monotonic() - started < 15.0
    return answer
