"""One rank of a family's run: measures case by case; rank 0 prints each row as it is known."""

import argparse
import faulthandler
import json
import sys
import warnings
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from afflux.commands.bench.mpi_launch import launched_by_mpi, meet_through_mpi
from afflux.torchrun import end_with_parent
from benchmarks.ranks.families import FAMILIES
from benchmarks.ranks.session import Session

__all__ = ["ROW_MARK", "main"]

ROW_MARK = "row: "
"""Begins the line of a row: rows that are known outlive a rank that dies in a later case."""

_CASE_LIMIT_S = 120.0


def main() -> int:
    """Run one rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--family", choices=list(FAMILIES), required=True)
    parser.add_argument("--cases", type=json.loads, required=True, help="names, as JSON")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    end_with_parent()
    if launched_by_mpi():
        meet_through_mpi()
    # Some of what users call has a newer name in a newer torch.
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    faulthandler.enable()
    dist.init_process_group("gloo", timeout=timedelta(seconds=2 * _CASE_LIMIT_S))
    session = Session(given.folder, given.quick)
    by_name = {case.name: case for case in FAMILIES[given.family].cases}
    for name in given.cases:
        # A case that hangs, and that no timeout ends, ends here, and is named as failed.
        faulthandler.dump_traceback_later(_CASE_LIMIT_S, exit=True)
        row = {"case": name, **by_name[name].measure(session)}
        faulthandler.cancel_dump_traceback_later()
        if session.rank == 0:
            print(ROW_MARK + json.dumps(row), flush=True)
    (given.folder / f"rank{session.rank}.json").write_text("null", encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
