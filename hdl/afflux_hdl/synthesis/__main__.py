"""`python -m afflux_hdl.synthesis`: what the engine costs, into `build/synth.json`.

UltraScale+ at 512 bits, then ECP5 at 32 bits. With `--compare OTHER.json` the differences from an
earlier result are printed; with `--only none` too, without a new run. OTHER.json may also be a
commit, which stands for its `docs/cost.json`.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from afflux_hdl.engine import verilog
from afflux_hdl.progress_line import ProgressLine
from afflux_hdl.synthesis import comparison, ecp5, ultrascale
from afflux_hdl.synthesis.gateware import name_of
from afflux_hdl.synthesis.tools import ToolError, versions

__all__ = ["TARGETS", "main", "table", "targets"]

TOP_KEYS = ("lut", "lut_share_u50", "ff", "bram", "uram", "dsp", "logic_levels")
"""Figures of the UltraScale+ netlist that stand at the top of the result."""

LUT_SHARE_MAX = 0.10
LEVELS_MAX = 8

TARGETS = {
    "lut_share_u50": f"< {LUT_SHARE_MAX}",
    "logic_levels": f"<= {LEVELS_MAX}",
    "memories_misplaced": "none",
    "fmax_mhz": f">= {ecp5.TARGET_MHZ}",
}
"""The targets, as text."""


def targets(result: dict[str, Any]) -> dict[str, bool]:
    """Return for each target that was measured whether `result` meets it."""
    met: dict[str, bool] = {}
    if "ultrascale" in result:
        met["lut_share_u50"] = result["lut_share_u50"] < LUT_SHARE_MAX
        met["logic_levels"] = result["logic_levels"] <= LEVELS_MAX
        met["memories_misplaced"] = not result["ultrascale"]["memories_misplaced"]
    if "ecp5" in result:
        met["fmax_mhz"] = (result["fmax_mhz"] or 0) >= ecp5.TARGET_MHZ
    return met


def table(result: dict[str, Any]) -> str:
    """Return the figures as text for people to read."""
    lines = []
    if "ultrascale" in result:
        detail = result["ultrascale"]
        lines += [
            "UltraScale+ (xcup), share of an Alveo U50",
            *(
                f"  {name.upper():5} {detail[name]:>9,}  {detail[f'{name}_share_u50']:7.2%}"
                for name in ("lut", "ff", "bram", "uram", "dsp")
            ),
            f"  of the LUTs {detail['lut_memory']:,} are memory, {detail['lut_shift']:,} shift",
            f"  {detail['logic_levels']} levels, longest path into each stage:",
            *(
                f"  {path['levels']:5}  {stage:16} {path['start']} -> {path['end']}"
                for stage, path in sorted(
                    detail["levels_by_stage"].items(), key=lambda item: -item[1]["levels"]
                )
            ),
        ]
    if "ecp5" in result:
        detail = result["ecp5"]
        seeds = ", ".join(f"{mhz or 'not routed'}" for mhz in detail["fmax_mhz_by_seed"].values())
        lines += [
            f"ECP5 ({ecp5.DEVICE})",
            f"  {detail['lut4']:,} LUT4, {detail['ff']:,} FF, {detail['ebr']} EBR",
            f"  {result['fmax_mhz'] or 'not routed'}, the lowest of {seeds} (MHz); "
            f"{detail['fmax_mhz_placed']} estimated after placement",
        ]
    for name, met in targets(result).items():
        lines.append(f"{'met ' if met else 'MISSED'}  {name} {TARGETS[name]}")
    return "\n".join(lines) + "\n"


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run what the command line asks for."""
    with ProgressLine("synthesis") as line:
        return _measured(arguments, line)


def _measured(arguments: argparse.Namespace, line: ProgressLine) -> dict[str, Any]:
    folder: Path = arguments.work
    folder.mkdir(parents=True, exist_ok=True)
    result: dict[str, Any] = {"versions": versions()}

    if arguments.only in (None, "ultrascale"):
        parameters = ultrascale.PARAMETERS
        line.show(f"UltraScale+: {parameters}")
        netlist = ultrascale.synthesise(parameters, folder, line.tell)
        detail = ultrascale.report(netlist)
        gateware = name_of(verilog.generate(parameters))
        result["ultrascale"] = {
            "gateware": gateware,
            "parameters": asdict(parameters),
            **detail,
        }
        result |= {key: detail[key] for key in TOP_KEYS}
        longest = detail["longest_path"]
        result["longest_path_stage"] = longest["stage"] if longest else None
    if arguments.only in (None, "ecp5"):
        line.show(f"ECP5: {ecp5.PARAMETERS}")
        ecp5.synthesise(ecp5.PARAMETERS, folder, line.tell)
        routed = {}
        for seed in range(1, arguments.seeds + 1):
            routed[seed] = ecp5.place_and_route(
                seed, folder, line.tell, 60 * arguments.routing_minutes
            )
            line.show(f"  seed {seed}: {routed[seed]['fmax_mhz'] or 'not routed'} (MHz)")
        # One that was not routed is slower than any.
        slowest = min(routed.values(), key=lambda one: one["fmax_mhz"] or 0)
        result["ecp5"] = {
            "device": ecp5.DEVICE,
            "gateware": name_of(verilog.generate(ecp5.PARAMETERS)),
            "parameters": asdict(ecp5.PARAMETERS),
            "fmax_mhz_by_seed": {str(seed): one["fmax_mhz"] for seed, one in routed.items()},
            **slowest,
        }
        result["fmax_mhz"] = slowest["fmax_mhz"]
    result["targets"] = targets(result)
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit status: 1 if a tool fails or `--check` finds a target missed."""
    parser = argparse.ArgumentParser(prog="python -m afflux_hdl.synthesis", description=__doc__)
    parser.add_argument(
        "--output", type=Path, default=Path("build/synth.json"), help="(%(default)s)"
    )
    parser.add_argument(
        "--work", type=Path, default=Path("build/synth"), help="folder of the tools' files"
    )
    parser.add_argument("--only", choices=["ultrascale", "ecp5", "none"], help="only this part")
    parser.add_argument("--seeds", type=int, default=1, help="placements for ECP5 (%(default)s)")
    parser.add_argument(
        "--routing-minutes", type=float, default=30, help="limit for ECP5 (%(default)s)"
    )
    parser.add_argument("--check", action="store_true", help="fail if a target is missed")
    parser.add_argument(
        "--compare", metavar="OTHER.json", help="print what differs from this file or commit"
    )
    arguments = parser.parse_args(argv)
    if arguments.seeds < 1:
        parser.error("--seeds must be at least 1")
    # Read first: it may be the file that is written.
    try:
        before = comparison.read(arguments.compare) if arguments.compare else None
    except ValueError as error:
        parser.error(str(error))
    started = time.monotonic()
    if arguments.only == "none":
        result = json.loads(arguments.output.read_text())
    else:
        try:
            result = measure(arguments)
        except ToolError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")
        print(f"{time.monotonic() - started:.0f} s, written to {arguments.output}")
    print(table(result), end="")
    if before is not None:
        print(comparison.compare(before, result), end="")
    return 1 if arguments.check and not all(targets(result).values()) else 0


if __name__ == "__main__":
    sys.exit(main())
