"""Stock torch and NCCL on one GPU, with NCCL's plugin: each rank is made a node by NCCL_HOSTID.

    python -m tests.gpu.nccl_on_one_gpu [--ranks 2]

It starts a software aggregator and the ranks, and prints what it has seen: whether NCCL's log names
CollNet of Afflux, whether the results have the golden model's bits, whether blocks came through the
engine, and how long all-reduces took. Ranks that share a card take turns on it, so the times say
little. It ends with 1 if anything is wrong.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy.typing as npt
import torch
import torch.distributed as dist

from afflux.commands.nccl_env import library_path
from afflux_drivers.control.client import read_counters
from afflux_sim.golden.reductions import all_reduce
from tests.support.host import serving

__all__ = ["main", "missing"]

DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "int32": torch.int32,
}
OPS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}
COUNTS = (1, 2, 63, 64, 65, 1000, 4097)
"""Elements of tensors that the golden model checks; it is slow."""

LARGE = (8, 1 << 15, 1 << 20, 25 << 20)
"""Bytes of tensors that are timed."""

LIMIT_S = 240.0


def missing() -> str:
    """Return why this cannot run here; empty if it can."""
    if not torch.cuda.is_available():
        return "torch sees no CUDA device here"
    if not dist.is_nccl_available():
        return "this torch has no NCCL"
    if not library_path().is_file():
        return f"{library_path()} is not there: make native"
    return ""


def drawn(rank: int, dtype: str, count: int) -> torch.Tensor:
    """Return a rank's elements, on the CPU."""
    generator = torch.Generator().manual_seed(1000 * rank + count)
    values = 100 * torch.randn(count, generator=generator)
    return values.to(DTYPES[dtype])


def as_numpy(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """Return the elements as the golden model takes them."""
    held = tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor
    found: npt.NDArray[Any] = held.numpy()
    return found


def check_bits(rank: int, size: int) -> list[str]:
    """Return the all-reduces whose results have other bits than the golden model's."""
    wrong = []
    for dtype in DTYPES:
        for name, op in OPS.items():
            for count in COUNTS:
                tensor = drawn(rank, dtype, count).cuda()
                dist.all_reduce(tensor, op=op)
                tensors = [as_numpy(drawn(each, dtype, count)) for each in range(size)]
                expected = all_reduce(tensors, dtype, name)
                if as_numpy(tensor.cpu()).tobytes() != expected.tobytes():
                    wrong.append(f"{name} of {count} {dtype}")
    return wrong


def check_training(rank: int) -> list[str]:
    """Take a step with DistributedDataParallel; return what differs between the ranks."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 8))
    wrapped = torch.nn.parallel.DistributedDataParallel(model.cuda())
    optimiser = torch.optim.SGD(wrapped.parameters(), 0.1)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(3):
        optimiser.zero_grad()
        wrapped(torch.randn(32, 512, generator=generator).cuda()).square().mean().backward()
        optimiser.step()
    weights = torch.cat([each.detach().flatten() for each in wrapped.parameters()])
    least, most = weights.clone(), weights.clone()
    dist.all_reduce(least, op=dist.ReduceOp.MIN)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    return [] if torch.equal(least, most) else ["weights differ between ranks after three steps"]


def timed(size_bytes: int) -> float:
    """Return the seconds of an all-reduce, the median of several."""
    tensor = torch.ones(max(1, size_bytes // 4), device="cuda")
    found = []
    for _ in range(9):
        dist.barrier()
        torch.cuda.synchronize()
        began = time.perf_counter()
        dist.all_reduce(tensor)
        torch.cuda.synchronize()
        found.append(time.perf_counter() - began)
    return sorted(found)[len(found) // 2]


def rank_main(rank: int, size: int, store: str) -> int:
    """Run one rank; return its exit status."""
    torch.cuda.set_device(0)
    dist.init_process_group(
        "nccl",
        store=dist.FileStore(store, size),
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=60),
    )
    wrong = check_bits(rank, size) + check_training(rank)
    for each in wrong:
        print(f"rank {rank}: WRONG: {each}", flush=True)
    for length in LARGE:
        seconds = timed(length)
        if rank == 0:
            print(f"{length} bytes: {1e6 * seconds:.0f} µs", flush=True)
    dist.destroy_process_group()
    return 1 if wrong else 0


def environment_of(rank: int, url: str) -> dict[str, str]:
    """Return the variables of a rank, which make it a node of its own."""
    return {
        **os.environ,
        "AFFLUX_AGGREGATOR": url,
        "NCCL_NET_PLUGIN": str(library_path()),
        "NCCL_COLLNET_ENABLE": "1",
        "NCCL_ALGO": "allreduce:collnetchain",
        # The check for two ranks on one card compares host and card.
        "NCCL_HOSTID": f"node{rank}",
        "NCCL_MNNVL_ENABLE": "0",
        "NCCL_SOCKET_IFNAME": "lo",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,NET,TUNING",
    }


def main(ranks: int) -> int:
    """Run everything; return the exit status."""
    if reason := missing():
        print(f"skipped: {reason}")
        return 0
    process, line = serving.start("--port", "0")
    url = next(word for word in line.split() if word.startswith("udp://")).rstrip(",.;")
    host, _, port = url.removeprefix("udp://").rpartition(":")
    try:
        with tempfile.TemporaryDirectory() as folder:
            logs = [Path(folder) / f"rank{rank}" for rank in range(ranks)]
            started = []
            for rank, log in enumerate(logs):
                words = "--rank", str(rank), "--ranks", str(ranks), "--store", f"{folder}/store"
                with log.open("w") as out:
                    command = [sys.executable, "-m", "tests.gpu.nccl_on_one_gpu", *words]
                    variables = environment_of(rank, url)
                    started.append(subprocess.Popen(command, env=variables, stdout=out, stderr=out))
            until = time.monotonic() + LIMIT_S
            statuses = []
            for each in started:
                try:
                    statuses.append(each.wait(max(1.0, until - time.monotonic())))
                except subprocess.TimeoutExpired:
                    each.kill()
                    statuses.append(-1)
            texts = [log.read_text(errors="replace") for log in logs]
        counters = read_counters((host, int(port)), 5.0)
    finally:
        process.terminate()
        serving.finish(process)
    print(texts[0][-6000:])
    named = all("COLLNET/Afflux" in text for text in texts)
    print(f"ranks ended with {statuses}")
    print(f"NCCL's log {'names' if named else 'DOES NOT NAME'} COLLNET/Afflux")
    print(f"the engine has accepted {counters['blocks_accepted']} blocks")
    return 0 if named and not any(statuses) and counters["blocks_accepted"] else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rank", type=int)
    parser.add_argument("--store", default="")
    given = parser.parse_args()
    if given.rank is None:
        sys.exit(main(given.ranks))
    sys.exit(rank_main(given.rank, given.ranks, given.store))
