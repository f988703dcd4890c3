"""`python -m benchmarks.network.decode`: the small calls of inference between hosts, beside others.

Runs `afflux bench --replay decode` on hosts of a network, beside Gloo, and Intel MPI over TCP where
it is installed. The rows go into build/bench/network.json.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from afflux.commands.bench.interruption import terminated_as_interrupted
from afflux.commands.bench.registry import Row
from benchmarks.network import mpi
from benchmarks.network.launch import RanksEnded, run_ranks
from benchmarks.network.namespaces import Network, NotPermitted, missing
from benchmarks.report import document
from benchmarks.report.columns import aligned
from benchmarks.report.figures import merge_rows

__all__ = ["NAME", "main", "table"]

NAME = "decode"
"""Value of its rows' "bench"."""

_NETWORKS = ((2, 10.0, 1.0), (2, 25.0, 1.0), (4, 10.0, 0.2))
"""Hosts, Gbit/s of each, and the share of the tokens: with four on two cores others take long."""

_COLUMNS = ("afflux", "gloo", "mpi")
_HEADER = ["where", "bytes", *(f"{name}: p50, p99" for name in _COLUMNS), "p50, p99 by Gloo's"]
_LIMIT_S = 300.0


def _measure(hosts: int, gbit: float, tokens: int) -> list[Row]:
    with_mpi = not mpi.missing()
    compare = "gloo,mpi" if with_mpi else "gloo"
    with (
        tempfile.TemporaryDirectory(prefix="afflux-decode-") as folder,
        Network(hosts, gbit=gbit, aggregators=0) as network,
    ):
        path = Path(folder) / "rows.json"
        program = ["-m", "afflux.commands.cli", "bench", "--replay", "decode", "-n", str(tokens)]
        arguments = ["--compare", compare, "--json", str(path)]
        run_ranks(
            network,
            1,
            arguments,
            lambda line: not print(f"  {line.rstrip()}", flush=True),
            limit_s=_LIMIT_S,
            with_mpi=with_mpi,
            program=program,
        )
        found: list[Row] = json.loads(path.read_text(encoding="utf-8"))["rows"]
    where = f"{hosts} hosts, {gbit:g} Gbit/s"
    about: Row = {"hosts": hosts, "rate_gbit": gbit, "where": where}
    return [row | about | {"bench": NAME, "case": f"{where}, {row['bytes']}"} for row in found]


def _cells(rows: list[Row]) -> list[list[str]]:
    cells = []
    for row in rows:
        times = [
            f"{row[f'{name}_p50_s'] * 1e3:.2f}, {row[f'{name}_p99_s'] * 1e3:.2f} ms"
            if f"{name}_p50_s" in row
            else "–"
            for name in _COLUMNS
        ]
        shares = (row[f"afflux_{part}_s"] / row[f"gloo_{part}_s"] for part in ("p50", "p99"))
        cells.append(
            [row["where"], str(row["bytes"]), *times, ", ".join(f"{each:.2f}" for each in shares)]
        )
    return cells


def table(rows: list[Row]) -> str:
    """Return the table for the documents."""
    return document.markdown(_HEADER, _cells(rows))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.network.decode", description=__doc__
    )
    parser.add_argument(
        "--output", type=Path, default=Path("build/bench/network.json"), help="file (%(default)s)"
    )
    parser.add_argument("--tokens", type=int, default=200, help="of each size (%(default)s)")
    given = parser.parse_args(argv)
    reason = missing()
    rows: list[Row] = []
    try:
        with terminated_as_interrupted():
            for hosts, gbit, share in [] if reason else _NETWORKS:
                rows += _measure(hosts, gbit, max(1, round(share * given.tokens)))
                # Kept even if what follows fails.
                merge_rows(given.output, [NAME], rows)
    except (NotPermitted, RanksEnded, OSError) as error:
        reason = str(error)
    except KeyboardInterrupt:
        return 130
    if reason:
        print(f"python -m benchmarks.network.decode: {reason}", file=sys.stderr)
        return 1
    print(aligned("96 all-reduces of a token, one after the other", _HEADER, _cells(rows)))
    print(f"\nwritten to {given.output}")
    return 1 if any(row["wrong"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
