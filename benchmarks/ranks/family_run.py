"""Starts the ranks of a family and collects their rows, also of cases that end them."""

import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from afflux.commands.bench.registry import Row
from afflux.torchrun import RanksFailed, run_module
from benchmarks.ranks.family import Family
from benchmarks.ranks.family_rank import ROW_MARK

__all__ = ["mpi_launcher", "run_family"]

_TOLD = ("Fatal Python error", "Timeout (", "Error: ", "error: ")


def run_family(
    family: Family,
    ranks: int,
    patterns: list[str],
    quick: bool,
    keep: Callable[[Row], None],
) -> None:
    """Measure a family with a number of ranks.

    Args:
        family: The family to measure.
        ranks: How many there are.
        patterns: Beginnings of names of cases; empty: all.
        quick: Only show that it works.
        keep: Called with each row when it is known.
    """
    names = [case.name for case in family.cases_of(ranks, patterns)]
    launcher: list[str] | None = None
    if family.with_mpi:
        launcher, missing = mpi_launcher(ranks)
        if missing:
            for name in names:
                keep(_row(family, quick, {"case": name, "ranks": ranks, "not_measured": missing}))
            return
    while names:
        left = list(names)

        def on_line(line: str, left: list[str] = left) -> bool:
            if line.startswith(ROW_MARK):
                row = json.loads(line.removeprefix(ROW_MARK))
                left.remove(row["case"])
                keep(_row(family, quick, row))
                return True
            return False

        arguments = ["--family", family.name, "--cases", json.dumps(names)]
        arguments += ["--quick"] if quick else []
        own = {key: value for key, value in os.environ.items() if key.startswith("AFFLUX_")}
        if launcher:
            # mpirun looks for its own programs there.
            folders = [str(Path(launcher[0]).parent), os.environ.get("PATH", "")]
            own["PATH"] = os.pathsep.join(folders)
        try:
            run_module(
                "benchmarks.ranks.family_rank", ranks, arguments, own, on_line, launcher=launcher
            )
        except RanksFailed as error:
            if not left:
                raise
            failed, *left = left
            reason = f"the ranks ended: {_told(str(error))}"
            keep(_row(family, quick, {"case": failed, "ranks": ranks, "failed": reason}))
        names = left


def _row(family: Family, quick: bool, row: Row) -> Row:
    return {"bench": family.bench, "quick": quick, **row}


def _told(text: str) -> str:
    """Return the line that says most about how ranks ended."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for mark in _TOLD:
        for line in lines:
            if mark in line:
                return line[:240]
    return lines[-1][:240] if lines else "nothing was said"


def mpi_launcher(ranks: int) -> tuple[list[str], str]:
    """Return what starts ranks with MPI, or why that cannot be."""
    if importlib.util.find_spec("mpi4py") is None:
        return [], "the package mpi4py is not installed"
    beside = Path(sys.executable).with_name("mpirun")
    found = str(beside) if beside.exists() else shutil.which("mpirun")
    if not found:
        return [], "there is no mpirun (package impi-rt)"
    return [found, "-n", str(ranks)], ""
