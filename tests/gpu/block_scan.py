"""The scan of blocks on a GPU: beside the scan in C++, and its speed; all-reduces that use it.

Called by `python -m tests.gpu`.
"""

import time
from typing import Any

import torch
import torch.distributed as dist

import afflux
from afflux.group.call.tensors import ENGINE_DTYPES, elements_of
from afflux.group.staging import blocks
from afflux.group.staging.blocks import Blocks, Scan, scan_by_torch
from afflux_drivers import _native
from tests.scenarios.staged import elements

__all__ = ["measure_scans", "measure_sums", "scans_are_right"]

SCANNED_BYTES = 256 << 20
SUMMED_BYTES = 100 << 20
SHARES = (0.001, 0.01, 0.1, 0.4)
"""Of blocks that are present, the same ones at all ranks."""


def _scans() -> dict[str, Scan]:
    """Return the scans by name; Triton's if the backend takes it here."""
    chosen = blocks._scan_on(torch.device("cuda", torch.cuda.current_device()))
    return {"torch": scan_by_torch} | ({} if chosen is scan_by_torch else {"triton": chosen})


def scans_are_right(rank: int, _size: int, device: str) -> list[str]:
    """Return the scans that find other blocks than the one in C++."""
    wrong = [] if "triton" in _scans() else ["the kernel in Triton is not used"]
    kept = blocks._scan_on
    try:
        for name, scan in _scans().items():
            blocks._scan_on = lambda _device, scan=scan: scan  # type: ignore[assignment]
            for dtype, number in ENGINE_DTYPES.items():
                for count, first in ((1 << 20, 0), (100_001, 1), (64, 0), (7, 3)):
                    host = elements(rank, count + first, dtype)
                    thirds = torch.arange(count + first) // 200 % 3 > 0
                    host[thirds] = 0
                    host[-1] = -0.0 if dtype.is_floating_point else 0
                    found = Blocks(host.to(device)[first:]).present()
                    cpp = _native.scan_blocks(int(number), elements_of(_padded(host[first:])))
                    if found.tolist() != [each > 0 for each in cpp]:
                        wrong.append(f"{name}, {count} {dtype} from {first}")
    finally:
        blocks._scan_on = kept
    return wrong


def _padded(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor with zeros behind it, to whole blocks."""
    width = 256 // tensor.element_size()
    return torch.cat([tensor, tensor.new_zeros(-tensor.numel() % width)])


def measure_scans(rank: int) -> None:
    """Print how fast blocks are found, at rank 0 while the others wait."""
    if rank == 0:
        rows = torch.zeros(SCANNED_BYTES // 256, 64, dtype=torch.int32, device="cuda")
        flags = torch.empty(len(rows), dtype=torch.bool, device="cuda")
        for name, scan in _scans().items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            scan(rows, flags)
            begin.record()
            for _ in range(10):
                scan(rows, flags)
            end.record()
            end.synchronize()
            seconds = begin.elapsed_time(end) / 1e3 / 10
            print(f"scan by {name}: {SCANNED_BYTES / seconds / 1e9:.0f} GB/s", flush=True)
    dist.barrier()


def measure_sums(rank: int) -> None:
    """Print the time of all-reduces that look at blocks, and of those that do not."""
    groups: dict[str, Any] = {
        setting: dist.new_group(
            backend="cpu:afflux,cuda:afflux", pg_options=afflux.Options(device_blocks=setting)
        )
        for setting in ("off", "on", "auto")
    }
    if rank == 0:
        print(f"{'present':>8}" + "".join(f"{each + ', ms':>10}" for each in groups) + "  off/on")
    for share in SHARES:
        host = torch.zeros(SUMMED_BYTES // 256, 64)
        generator = torch.Generator().manual_seed(1)
        present = torch.randperm(len(host), generator=generator)[: round(share * len(host))]
        host[present] = 1.0
        tensor = host.view(-1).cuda()
        times = {}
        for setting, group in groups.items():
            took = []
            for _ in range(6):
                torch.cuda.synchronize()
                dist.barrier()
                start = time.monotonic()
                # Of equal tensors, so that they stay as they are.
                dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=group)
                torch.cuda.synchronize()
                took.append(time.monotonic() - start)
            times[setting] = min(took[1:])
        if rank == 0:
            shown = "".join(f"{1e3 * each:>10.3f}" for each in times.values())
            print(f"{share:>8.1%}{shown}{times['off'] / times['on']:>8.1f}", flush=True)
