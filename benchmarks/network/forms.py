"""`python -m benchmarks.network.forms`: sparse sums between hosts, by form and density.

Each form of `afflux.sparse` is forced in turn, then the rule chooses. Shown are the milliseconds of
the slowest rank, the median of some calls: where the dense form becomes the fastest is SparCML's
switch, as measured.
"""

import argparse
import json
import statistics
import sys
import time
from datetime import timedelta
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

import afflux
from afflux.sparse.index_forms import Form, Rows, forms
from afflux.sparse.kinds import Kinds
from afflux.sparse.sums import Sums, Way
from afflux.torchrun import end_with_parent
from benchmarks.network.launch import run_ranks
from benchmarks.network.namespaces import Network

__all__ = ["main"]

_MARK = "row: "
_LIMIT_S = 50.0
_RULE = "rule"


def _measured(tensor: torch.Tensor, group: Any, calls: int) -> float:
    """Return the milliseconds of a call, the slowest rank's."""
    took = []
    for _ in range(calls + 1):
        own = tensor.clone()
        dist.barrier(group)
        began = time.perf_counter()
        dist.all_reduce(own, group=group)
        took.append(1e3 * (time.perf_counter() - began))
    slowest = torch.tensor(statistics.median(took[1:]), dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return float(slowest)


def _rank(rows: int, width: int, densities: list[float], names: list[str], calls: int) -> int:
    end_with_parent()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=_LIMIT_S))
    rank = dist.get_rank()
    shards = dist.new_group(backend="afflux", pg_options=afflux.Options(aggregator="shards://"))
    choose = Kinds.choose
    for density in densities:
        source = torch.Generator().manual_seed(rank)
        present = (torch.rand(rows, generator=source) < density).nonzero().view(-1)
        shape = (rows,) if width == 1 else (rows, width)
        tensor = torch.sparse_coo_tensor(
            present.view(1, -1),
            torch.ones(len(present), *shape[1:]),
            shape,
            is_coalesced=True,
            check_invariants=False,
        )
        found: dict[str, Any] = {"density": density}
        for name in names:

            def forced(
                self: Kinds, text: str, known: Rows, sums: Sums, *ways: Way, name: str = name
            ) -> Form:
                chosen = choose(self, text, known, sums, *ways)
                if name == _RULE:
                    return chosen
                return next(each for each in forms(known, *ways) if each.name == name)

            with mock.patch.object(Kinds, "choose", forced):
                group = dist.group.WORLD if name == "gloo" else shards
                found[name] = _measured(tensor, group, calls)
        (*_, latest) = afflux.statistics(shards)["sparse"].values()
        if rank == 0:
            print(_MARK + json.dumps(found | {"latest": latest}), flush=True)
    dist.barrier()
    dist.destroy_process_group()
    return 0


def _show(row: dict[str, Any], names: list[str]) -> None:
    latest = row["latest"]
    cells = " | ".join(f"{row[name]:.0f}" for name in names)
    expected = latest["expected_ms"]
    print(
        f"| {100 * row['density']:g} % | {100 * latest['union']:.0f} % | {cells} "
        f"| {latest['form']} | {expected:.0f} |",
        flush=True,
    )


def main() -> int:
    """Start the ranks on hosts of a network, and print a row for each density; or be a rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=1)
    parser.add_argument("--densities", type=float, nargs="+", metavar="SHARE",
                        default=[0.01, 0.1, 0.3, 0.4, 0.5, 0.6, 0.8])  # fmt: skip
    parser.add_argument("--forms", nargs="+", default=["lists", "counts", "dense", _RULE])
    parser.add_argument("--calls", type=int, default=5)
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank:
        return _rank(given.rows, given.width, given.densities, given.forms, given.calls)

    def on_line(line: str) -> bool:
        if not line.startswith(_MARK):
            return False
        _show(json.loads(line.removeprefix(_MARK)), given.forms)
        return True

    print(f"| density | union | {' | '.join(given.forms)} | chosen | expected |")
    print("|---|---|" + "---|" * (len(given.forms) + 2))
    with Network(4) as network:
        program = ["-m", "benchmarks.network.forms", "--rank"]
        run_ranks(network, 1, sys.argv[1:], on_line, limit_s=_LIMIT_S, program=program)
    return 0


if __name__ == "__main__":
    sys.exit(main())
