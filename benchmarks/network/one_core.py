"""What one core moves: a worker alone on its core, and its aggregator on another, without rates.

Rank 0 has a core of its own. The aggregator, and a second rank where one is needed, have another.
Two kinds of all-reduces tell sending from receiving: of a job of this rank alone, which sends all
and receives all; and of two ranks, where the tensor of rank 0 is zero, so that it only receives.
"""

import json
import os
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from afflux.commands.bench.registry import Row
from benchmarks.network.launch import RanksEnded, aggregator, run_ranks
from benchmarks.network.namespaces import Network

__all__ = ["NAME", "PATHS", "ROW_MARK", "Path", "brief", "failed", "paths_for", "run_path"]

NAME = "one_core"
"""Value of its rows' "bench"."""

ROW_MARK = "row: "
"""Begins the line of what rank 0 has measured."""

_LIMIT_S = 90.0
_BYTES = 32 << 20
_QUICK_BYTES = 1 << 20
_REPEATS = 9


@dataclass(frozen=True)
class Path:
    """A way from the worker to its aggregator.

    Attributes:
        name: Value of "case" in rows.
        title: Its name in tables.
        lanes: Blocks of a packet.
        mtu: Of the interfaces of the hosts.
        loopback: Whether both are on one host, else on two, at the ports of a switch.
        slots: Packets that may be in flight: 32 unless AFFLUX_SLOTS says otherwise.
    """

    name: str
    title: str
    lanes: int
    mtu: int
    loopback: bool
    slots: int = 32


PATHS = (
    Path("loopback_5", "loopback, 5 blocks", 5, 9000, True),
    Path("loopback_13", "loopback, 13 blocks", 13, 9000, True),
    Path("loopback_16", "loopback, 16 blocks", 16, 9000, True),
    Path("loopback_5_wide", "loopback, 5 blocks, 256 slots", 5, 9000, True, 256),
    Path("loopback_16_wide", "loopback, 16 blocks, 128 slots", 16, 9000, True, 128),
    Path("veth_5", "veth, MTU 1,500, 5 blocks", 5, 1500, False),
    Path("veth_13", "veth, MTU 9,000, 13 blocks", 13, 9000, False),
    Path("veth_16", "veth, MTU 9,000, 16 blocks", 16, 9000, False),
    Path("veth_5_wide", "veth, MTU 1,500, 5 blocks, 256 slots", 5, 1500, False, 256),
)


def paths_for(wanted: Sequence[str]) -> list[Path]:
    """Return the paths of these names; all if there are none.

    Raises:
        ValueError: There is no such path.
    """
    known = {path.name: path for path in PATHS}
    for name in wanted:
        if name not in known:
            raise ValueError(f"{name!r}: the cases of {NAME} are {', '.join(known)}")
    return [path for path in PATHS if not wanted or path.name in wanted]


def run_path(path: Path, quick: bool) -> Row:
    """Measure one path; if that fails, the row says why."""
    row: Row = {
        "bench": NAME,
        "case": path.name,
        "title": path.title,
        "quick": quick,
        "lanes": path.lanes,
        "mtu": path.mtu,
        "loopback": path.loopback,
        "bytes": _QUICK_BYTES if quick else _BYTES,
        "failed": "",
    }
    found: list[dict[str, Any]] = []

    def on_line(line: str) -> bool:
        if line.startswith(ROW_MARK):
            found.append(json.loads(line.removeprefix(ROW_MARK)))
            return True
        return False

    try:
        _run(path, row["bytes"], 2 if quick else _REPEATS, on_line)
    except RanksEnded as error:
        return row | {"failed": str(error)}
    return row | found[-1]


def _run(path: Path, size: int, repeats: int, on_line: Any) -> None:
    cores = sorted(os.sched_getaffinity(0))
    own, other = cores[0], cores[-1]
    pin = [shutil.which("taskset") or "taskset", "--cpu-list", str(other)]
    with ExitStack() as held:
        network = held.enter_context(
            Network(2, gbit=None, aggregator_gbit=None, mtu=path.mtu, aggregators=1)
        )
        host = network.hosts[0] if path.loopback else network.aggregator
        address, _ = held.enter_context(aggregator(host, before=pin))
        arguments = ["--aggregator", address, "--lanes", str(path.lanes), "--bytes", str(size)]
        arguments += ["--slots", str(path.slots)]
        arguments += ["--repeats", str(repeats), "--cores", str(own), str(other)]
        run_ranks(
            network,
            1,
            arguments,
            on_line,
            limit_s=_LIMIT_S,
            program=["-m", "benchmarks.network.one_core_rank"],
        )


def failed(row: Row) -> bool:
    """Return whether a row shows what must not be: an error, or wrong elements."""
    return bool(row["failed"] or row.get("wrong"))


def brief(row: Row) -> str:
    """Return a row in a line."""
    if row["failed"]:
        return f"{row['title']}: {row['failed']}"
    return (
        f"{row['title']}: {8e-9 / row['both_s_per_byte']:.1f} Gbit/s each way for a core, "
        f"{row['both_calls_per_mb']:.0f} system calls for a MB"
    )
