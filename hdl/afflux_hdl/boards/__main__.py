"""`python -m afflux_hdl.boards BOARD`: a bitstream, from nothing or with new settings.

Into build/boards/BOARD go BOARD.bit and BOARD.svf, which have the board's key in them (mode 600),
BOARD.key unless a key file is named, BOARD.json for `afflux flash`, and report.txt. While a clock
is missed, three further placements are tried; if it still is, the files are called BOARD-missed.
Figures go into build/boards.json, where each board has an entry. A build for two ports is called
BOARD-2-ports in both. The placed design is kept, so new settings take seconds, as a new build time
and commit do. The same options and key give the same bits.
"""

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from afflux_hdl.boards.board import Board
from afflux_hdl.boards.flow import MISSED_NAME, Flow
from afflux_hdl.boards.options import add_options, settings_of
from afflux_hdl.boards.report import MARGIN, missed, report, spare
from afflux_hdl.boards.table import BOARDS, board_of
from afflux_hdl.contract.management import Settings
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.node.parameters import NodeParameters
from afflux_hdl.progress_line import ProgressLine
from afflux_hdl.synthesis.tools import ToolError, versions

__all__ = ["main"]

FURTHER_SEEDS = 3
"""Placements that are tried beyond those asked for, while none meets all clocks."""

SIZES = ("workers", "lanes", "jobs", "slots", "link_timeout", "ports")


def node_of(board: Board, options: argparse.Namespace) -> NodeParameters:
    """Return the board's node, with the sizes and the build that are given.

    Raises:
        ValueError: If a size cannot be.
    """
    given = {name: getattr(options, name) for name in SIZES if getattr(options, name) is not None}
    given |= {"build_time": options.build_time, "build_commit": options.build_commit}
    return replace(board.node, engine=board.engine_at(given.pop("ports", 1), **given))


def name_of(board: Board, node: NodeParameters) -> str:
    """Return the name of a build's folder and figures: the board's, if it is for one port."""
    ports = node.engine.ports
    return board.name if ports == 1 else f"{board.name}-{ports}-ports"


def make(board: Board, options: argparse.Namespace) -> dict[str, Any]:
    """Make what is asked for; return the board's entry for build/boards.json.

    Raises:
        ToolError: If a tool fails.
        ValueError: If an option cannot be.
    """
    started = time.monotonic()
    node = node_of(board, options)
    # A board that has not so many ports is refused before there is a folder.
    board.clock_mhz(node.engine.ports)
    folder: Path = options.output / name_of(board, node)
    settings, key_file = settings_of(options, board.name, folder)

    with ProgressLine(board.name) as line:
        flow = Flow(
            board=board,
            node=node,
            folder=folder,
            progress=line.tell,
            limit_s=60 * options.minutes,
        )

        with flow.alone():
            return _made(flow, options.seeds, settings, key_file, started, line.show)


def _made(
    flow: Flow,
    seeds: int,
    settings: Settings,
    key_file: Path,
    started: float,
    show: Callable[[str], None],
) -> dict[str, Any]:
    board, folder = flow.board, flow.folder
    known = flow.synthesise()
    show(f"  synthesis took {known['synthesis_s']:.0f} s")
    # Those that are asked for, of all that are kept: the same command gives the same bits.
    tried: dict[str, Any] = {}
    for seed in range(1, seeds + FURTHER_SEEDS + 1):
        # Further ones only while none of those so far meets all clocks.
        if seed > seeds:
            missing = missed({"seeds": tried, "seed_in_bitstream": _best(tried)})
            if not missing:
                break
            show(f"  seeds so far miss {', '.join(missing)}: seed {seed} is tried")
        tried[str(seed)] = placed = flow.place(seed)
        clocks = ", ".join(
            f"{name} {clock['fmax_mhz']} of {clock['clock_mhz']} MHz"
            for name, clock in sorted(placed["clocks"].items())
        )
        show(f"  seed {seed}, {placed['place_and_route_s']:.0f} s: {clocks}")
    best = _best(tried)
    missing = missed({"seeds": tried, "seed_in_bitstream": best})
    bit, svf = flow.pack(best, settings, f"{board.name}{MISSED_NAME if missing else ''}")
    entry = {
        "board": board.title,
        "device": f"{board.device}-{board.speed}{board.package}",
        "gateware": flow.gateware(),
        "parameters": asdict(flow.node),
        "clocks_mhz": {
            "engine": float(board.clock_mhz(flow.node.engine.ports)),
            "ethernet": 125.0,
        },
        "margin": MARGIN,
        "seeds": tried,
        "seed_in_bitstream": best,
        "synthesis_s": known["synthesis_s"],
        "seconds_of_this_run": round(time.monotonic() - started, 1),
        "bitstream": {
            path.name: {
                "bytes": path.stat().st_size,
                "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            }
            for path in (bit, svf)
        },
        # The file is different for every key; this is not.
        "placed_sha256": flow.placed_digest(best),
        "versions": versions(),
    }
    entry["parts"] = flow.use_by_part()
    # The fields by which `afflux flash` compares a file and a board.
    about = {
        "board": board.name,
        "part": f"{board.device}-{board.package}",
        "sha256": entry["bitstream"][bit.name]["sha256"],
        "build_time": flow.node.engine.build_time,
        "build_commit": flow.node.engine.build_commit,
        "missed": missing,
    }
    bit.with_suffix(".json").write_text(json.dumps(about, indent=1, sort_keys=True) + "\n")
    (folder / "report.txt").write_text(report(board, flow.node, settings, entry))
    show(f"{bit}\n{svf}\nkey: {key_file} (mode 600; so are the files above, which contain it)")
    return entry


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 1 if a tool fails, 2 for a wrong option, 3 for a missed clock."""
    parser = argparse.ArgumentParser(
        prog="python -m afflux_hdl.boards",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("board", metavar="BOARD", help=", ".join(BOARDS))
    parser.add_argument("--seeds", type=int, default=1, help="placements to try (%(default)s)")
    parser.add_argument("--minutes", type=float, default=60, help="limit of each (%(default)s)")
    parser.add_argument("--output", type=Path, default=Path("build/boards"), help="(%(default)s)")
    parser.add_argument(
        "--figures", type=Path, default=Path("build/boards.json"), help="(%(default)s)"
    )
    group = parser.add_argument_group("sizes of the engine, instead of the board's own")
    for each in fields(Parameters):
        if each.name in SIZES:
            group.add_argument(f"--{each.name.replace('_', '-')}", type=int)
    add_options(parser)
    options = parser.parse_args(arguments)
    try:
        if options.seeds < 1:
            raise ValueError(f"--seeds must be at least 1, not {options.seeds}")
        board = board_of(options.board)
        # An output that cannot be extended is reported now, not in a quarter of an hour.
        _figures(options.figures)
        entry = make(board, options)
        name = name_of(board, node_of(board, options))
        figures = _figures(options.figures) | {name: entry}
        options.figures.parent.mkdir(parents=True, exist_ok=True)
        options.figures.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n")
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (ToolError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print((options.output / name / "report.txt").read_text(), end="")
    if missing := missed(entry):
        print(
            f"error: {', '.join(missing)} missed in all {len(entry['seeds'])} placements, so there "
            f"is no {board.name}.bit, and {board.name}{MISSED_NAME}.bit must not be loaded: try "
            f"--seeds {len(entry['seeds']) + FURTHER_SEEDS}, or an engine of smaller sizes "
            "(--workers, --lanes, --jobs, --slots)",
            file=sys.stderr,
        )
        return 3
    return 0


def _figures(path: Path) -> dict[str, Any]:
    """Return the entries of all boards so far.

    Raises:
        ValueError: If the file has something else.
    """
    try:
        found = json.loads(path.read_text()) if path.exists() else {}
    except ValueError as error:
        raise ValueError(f"{path} is no JSON, so no board can be added: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} has no entries of boards, so none can be added")
    return found


def _best(seeds: dict[str, Any]) -> int:
    """Return the seed whose worst clock or crossing has most to spare; of equals the lowest."""
    return max(map(int, seeds), key=lambda seed: (min(spare(seeds[str(seed)]).values()), -seed))


if __name__ == "__main__":
    sys.exit(main())
