"""`afflux bench`: collectives measured and printed as nccl-tests does.

Under torchrun or an MPI launcher each process is one rank; alone it starts its ranks itself.
"""

import argparse
import importlib.util
import json
import os
import re
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from afflux.commands.bench import size_plot
from afflux.commands.bench.interruption import terminated_as_interrupted
from afflux.commands.bench.machine import describe_machine
from afflux.commands.bench.mpi_launch import (
    NotAvailable,
    launched_by_mpi,
    meet_through_mpi,
    mpi_missing,
)
from afflux.commands.bench.options import TO_OUTPUT, BenchOptions, read_options
from afflux.commands.bench.rank import CAUSE, join, measure
from afflux.commands.bench.registry import SCHEMA, Row
from afflux.torchrun import RanksFailed, run_module
from afflux_hdl.progress_line import ProgressLine

__all__ = ["failed", "run"]

_TORCHRUN_ENDS = ("failed (exitcode:", "closing signal SIGTERM")
"""Torchrun reports the end of a rank so."""


def run(parser: argparse.ArgumentParser, arguments: argparse.Namespace, own: list[str]) -> int:
    """Return the exit status: 1 if an element was wrong, or something did not work.

    Args:
        parser: Reports errors in the options.
        arguments: The parsed command line.
        own: The same as words, for ranks that are started here.
    """
    options = read_options(parser, arguments)
    if arguments.plot and importlib.util.find_spec("matplotlib") is None:
        parser.error("--plot needs matplotlib: pip install 'afflux[plot]'")
    for path in (arguments.output_file, arguments.plot):
        if path and path != TO_OUTPUT and not path.absolute().parent.is_dir():
            parser.error(f"{path}: its folder does not exist")
    if launched_by_mpi() and "RANK" not in os.environ:
        try:
            meet_through_mpi()
        except NotAvailable as error:
            parser.error(str(error))
    under_launcher = "RANK" in os.environ and "WORLD_SIZE" in os.environ
    if under_launcher and arguments.ranks:
        parser.error(f"--ranks: this process is already one of {os.environ['WORLD_SIZE']} ranks")
    ranks = int(os.environ["WORLD_SIZE"]) if under_launcher else arguments.ranks or _default_ranks()
    if "mpi" in options.compare and (missing := mpi_missing(ranks)):
        parser.error(missing)
    try:
        rows = _as_rank(options) if under_launcher else _start(ranks, own, options)
    except (NotAvailable, RanksFailed) as error:
        print(f"afflux bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    if rows is None:
        return 0
    save(rows, arguments.output_file, arguments.plot)
    return 1 if failed(rows) else 0


def save(rows: list[Row], json_path: Path | None, plot_path: Path | None) -> None:
    """Write the files that were asked for."""
    if json_path:
        result = {"schema": SCHEMA, "machine": describe_machine(), "rows": rows}
        text = json.dumps(result, indent=1)
        if json_path == TO_OUTPUT:
            print(text)
        else:
            json_path.write_text(f"{text}\n", encoding="utf-8")
    if plot_path:
        size_plot.draw(rows, plot_path)


def failed(rows: list[Row]) -> bool:
    """Return whether an element was wrong, or ranks or runs did not get the same bits."""
    return any(
        row["wrong"] or row["out_of_place_wrong"] or row["same_bits"] is False
        or row.get("out_of_place_same_bits") is False
        for row in rows
    )  # fmt: skip


def _default_ranks() -> int:
    return max(2, min(8, len(os.sched_getaffinity(0))))


def _as_rank(options: BenchOptions) -> list[Row] | None:
    """Return the rows at rank 0; at the others None, unless something was wrong."""
    torch.set_num_threads(1)
    groups = join(options.timeout_s, "gloo" in options.compare)
    try:
        rows = measure(options, groups)
    finally:
        dist.destroy_process_group()
    return rows if groups.rank == 0 or failed(rows) else None


def _start(ranks: int, own: list[str], options: BenchOptions) -> list[Row]:
    variables = {key: value for key, value in os.environ.items() if key.startswith("AFFLUX_")}
    cases = ["--cases", json.dumps([own])]
    with terminated_as_interrupted(), ProgressLine(f"bench, {ranks} ranks") as line:
        show = _Shown(line, options.cycles * len(options.cases))
        try:
            written, _ = run_module("afflux.commands.bench.rank", ranks, cases, variables, show)
        except RanksFailed:
            if show.causes:
                raise RanksFailed("; ".join(show.causes)) from None
            raise
    result = written[0][0]
    if "reason" in result:
        raise NotAvailable(result["reason"])
    rows: list[Row] = result["rows"]
    return rows


class _Shown:
    """Passes on what ranks print, up to torchrun's own report of a failure.

    Args:
        line: Says how many rows have come.
        rows: How many there will be.

    Attributes:
        causes: Why ranks have given up, each reason once.
    """

    def __init__(self, line: ProgressLine, rows: int) -> None:
        self._on = True
        self._line, self._rows, self._done = line, rows, 0
        self.causes: list[str] = []

    def __call__(self, line: str) -> bool:
        _, mark, cause = line.partition(CAUSE)
        if mark:
            # A rank that raises it names itself.
            cause = re.sub(r"^rank \d+: ", "", cause.strip())
            self.causes += [cause] if cause not in self.causes else []
            return True
        self._on = self._on and not any(each in line for each in _TORCHRUN_ENDS)
        if self._on:
            # So a row begins: bytes and elements. A table of other figures may follow the last.
            if re.match(r" *\d+ +\d+ +[a-z]", line) and self._done < self._rows:
                self._done += 1
            self._line.tell(f"{self._done} of {self._rows} rows")
            self._line.show(line.removesuffix("\n"))
        return True
