"""One rank of a network's benchmark: measures case by case; rank 0 prints each as it is known."""

import argparse
import faulthandler
import json
import sys
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist

from afflux.commands.bench import contenders
from afflux.commands.bench.catalogue import COLLECTIVES
from afflux.commands.bench.collectives import prepare
from afflux.commands.bench.expected import wrong_elements
from afflux.commands.bench.inputs import Inputs
from afflux.commands.bench.mpi_launch import launched_by_mpi
from afflux.torchrun import end_with_parent
from benchmarks.network.cases import Case
from benchmarks.network.default_buffers import keep
from benchmarks.network.embedding import alone_side, step_side
from benchmarks.network.mpi import place_from_mpi
from benchmarks.network.topologies import ROUNDINGS, TOPOLOGIES, NetworkSession
from benchmarks.network.turns import Measured, Pace, all_same, take_turns
from benchmarks.network.workloads import WORKLOADS
from benchmarks.report.sides import Side

__all__ = ["ALONE", "BUDGET_S", "CASE_LIMIT_S", "ROW_MARK", "main"]

ROW_MARK = "row: "
"""Begins the line of what a case took: what is known outlives a rank that dies later."""

ALONE = "alone"
"""A contender of a step of training, in which nothing is sent."""

CASE_LIMIT_S = 240.0
"""A rank that is in a case for longer ends itself."""

BUDGET_S = 40.0
"""For all runs of a case, unless another is asked for."""

_QUICK = Pace(run_s=0.0, budget_s=0.0, repeats=2, calls=1)


@dataclass(frozen=True)
class _Share(Inputs):
    """The same tensors, of which one rank checks every so many pieces.

    Attributes:
        first, step: Numbers of the pieces that are its own.
    """

    first: int = 0
    step: int = 1

    def pieces(self) -> Iterator[slice]:
        """Yield the slices of these pieces."""
        for number, where in enumerate(super().pieces()):
            if number % self.step == self.first:
                yield where


def _side(session: NetworkSession, case: Case, name: str) -> Side:
    if name == ALONE:
        return alone_side(session.group("gloo"), case.bytes, case.density, session.rank)
    place = case.bytes, case.density, session.rank, session.ranks
    if case.kind == "step":
        return step_side(session.group(name), *place)
    if case.kind == "sharded_step":
        # It loads much of torch that other cases do without.
        from benchmarks.network.sharded import sharded_side

        return sharded_side(session.group(name), case.bytes, session.rank, session.ranks)
    if case.kind in WORKLOADS:
        return WORKLOADS[case.kind].side(session, case, name)
    dtype = getattr(torch, case.dtype)
    contender: contenders.Contender
    if name == "mpi":
        contender = contenders.Mpi(session.ranks, dtype)
    elif name == "gloo":
        contender = contenders.Gloo(session.group(name))
    else:
        contender = contenders.Afflux(session.group(name), reachable=False)
    full = case.overlap == "full"
    count = max(1, case.bytes // dtype.itemsize)
    numbers = (count, dtype, session.ranks, case.density, 0, full)
    trial = prepare(
        COLLECTIVES["all_reduce"], contender, Inputs(*numbers), "sum", session.rank, in_place=True
    )
    # Each rank checks a share of the elements; all have the same bits.
    share = _Share(*numbers, first=session.rank, step=session.ranks)
    if count <= 1 << 20:
        share = _Share(*numbers)

    figures: dict[str, float] = {}

    def wrong() -> int:
        trial.restore()
        before = session.gloo_calls(name)
        moved = _port_bytes()
        trial.call()
        figures["port_bytes"] = float(_port_bytes() - moved)
        rounded_once = contender.of_engine and name not in ROUNDINGS
        # With AFFLUX_AGGREGATOR=auto the sum may be Gloo's.
        of_engine = rounded_once and session.gloo_calls(name) == before
        found = wrong_elements(trial.result, share, "sum", of_engine)
        mark = zlib.crc32(trial.result.view(torch.uint8).numpy().data)
        return found if all_same(session, mark) else max(found, 1)

    return Side(trial.call, wrong, trial.restore, trial.batch, figures=lambda: figures)


def _port_bytes() -> int:
    """Return the bytes that have passed this host's interfaces, both ways."""
    lines = Path("/proc/net/dev").read_text(encoding="ascii").splitlines()[2:]
    counts = {
        name.strip(): text.split() for name, _, text in (each.partition(":") for each in lines)
    }
    return sum(int(each[0]) + int(each[8]) for name, each in counts.items() if name != "lo")


def _as_json(session: NetworkSession, found: dict[str, Measured]) -> dict[str, object]:
    result: dict[str, object] = {}
    for name, measured in found.items():
        values = {key: value for key, value in vars(measured).items() if value or key == "wrong"}
        if measured.runs_s:
            values["seconds"] = measured.seconds
        if name in TOPOLOGIES and not measured.failed:
            values["engine"] = session.engine(name)
        result[name] = values
    return result


def main() -> int:
    """Run one rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=json.loads, required=True, help="cases, as JSON")
    parser.add_argument("--contenders", nargs="+", required=True, help="in this order")
    parser.add_argument("--aggregator", default="", help="address and port of one of packets")
    parser.add_argument("--streams", default="", help="address and port of one of streams")
    parser.add_argument("--watched", action="append", default=[], help="processes of aggregators")
    parser.add_argument("--default-buffers", action="store_true")
    parser.add_argument("--budget", type=float, default=BUDGET_S, help="seconds for runs of a case")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    end_with_parent()
    if given.default_buffers:
        keep()
    if launched_by_mpi():
        place_from_mpi()
    # Some of what users call has a newer name in a newer torch.
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    faulthandler.enable()
    dist.init_process_group("gloo", timeout=timedelta(seconds=2 * CASE_LIMIT_S))
    session = NetworkSession({"aggregator": given.aggregator, "streams": given.streams})
    for values in given.cases:
        case = Case(**values)
        # A case that hangs, and that no timeout ends, ends here, and is named as failed.
        faulthandler.dump_traceback_later(CASE_LIMIT_S, exit=True)
        names = [*given.contenders, *([ALONE] if case.kind == "step" else [])]
        makes = {name: partial(_side, session, case, name) for name in names}
        pace = _QUICK if given.quick else Pace(budget_s=given.budget)
        found = take_turns(session, makes, pace, given.watched)
        faulthandler.cancel_dump_traceback_later()
        if session.rank == 0:
            print(ROW_MARK + json.dumps([case.name, _as_json(session, found)]), flush=True)
    dist.barrier()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
