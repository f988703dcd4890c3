"""The narrow engine in a Lattice ECP5, placed and routed.

The engine has more ports than a small package has pins, and pins would limit its clock. So it
stands in a wrapper: its inputs come from one long shift register, and its outputs go through
registers into a tree of exclusive-ors, four to one, with a register at each node. All paths to and
from the engine are paths between registers, and nothing of it can be optimised away but its reset,
which the wrapper holds low: an ECP5 wakes up with every register at its reset value, and a net to
11,000 registers would be routed over the general wires.
"""

import json
import re
from pathlib import Path
from typing import Any

from afflux_hdl.engine import verilog
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.synthesis.tools import Progress, ToolTimeout, run_nextpnr, run_yosys

__all__ = [
    "DEVICE",
    "PARAMETERS",
    "parse_log",
    "parse_report",
    "place_and_route",
    "ports",
    "synthesise",
    "wrapper",
]

PARAMETERS = Parameters(bus_bits=32, workers=8, lanes=5, jobs=2, slots=16)
"""Largest frames of 1,408 bytes, so ordinary Ethernet; its memories fit into the device."""

DEVICE = "LFE5UM5G-45F-8CABGA381"
# The analytical placer "static" needs a fifth less wire than the default "heap", whose placements
# no router could finish. Nets that are late after that, router2 lays anew.
METHOD = ("--placer", "static", "--router", "router2", "--tmg-ripup")
ARGUMENTS = ("--um5g-45k", "--speed", "8", "--package", "CABGA381", *METHOD)

PINS = 'LOCATE COMP "clk" SITE "P3";'
"""The clock's pin: one that leads to the clock nets. nextpnr may choose one that does not, and then
finds no way. (P3 has the 100 MHz of Lattice's Versa board with this part.)"""

TARGET_MHZ = 125
"""A byte a cycle at 1 Gbit/s, and a beat of 4 bytes at 4 Gbit/s."""

DISTRIBUTED = ("operations.fifo.storage", "delivery_queue.entries", "counters.bank.shown")
"""Memories that are made of LUTs here. An ECP5 block RAM gives its data out late after the clock,
and data of these memories goes through logic at once. They are small.
"""

NEVER_BOTH = ("receive.summaries.fifo.storage",)
"""Queues in block RAM, in which no word is read while it is written: no choice behind them."""

WRAPPER = "afflux_pins"
NAME = "ecp5"

# The first is an estimate after placement; after routing there is another line of the kind.
_ESTIMATE = re.compile(r"^Info: Max frequency for clock .*: +([\d.]+) MHz", re.MULTILINE)
_USE = re.compile(r"^Info:\s+(\w+): +(\d+)/ *(\d+) +\d+%$", re.MULTILINE)
_CELLS = {"lut4": "TRELLIS_COMB", "ff": "TRELLIS_FF", "ebr": "DP16KD"}

_PORT = re.compile(r"^  (input|output)\s+(?:\[(\d+):0\] )?(\w+);", re.MULTILINE)


def ports(text: str, module: str) -> list[tuple[str, str, int]]:
    """Return direction, name and width of each port of a module in a Verilog text.

    Raises:
        ValueError: If the text has no such module.
    """
    head = re.search(rf"^module {module}\s*\(.*?^endmodule", text, re.MULTILINE | re.DOTALL)
    if head is None:
        raise ValueError(f"no module {module}")
    return [(kind, name, int(high or 0) + 1) for kind, high, name in _PORT.findall(head[0])]


def wrapper(text: str, module: str) -> str:
    """Return the Verilog of a module with three pins around `module`; see the top of this file."""
    found = [port for port in ports(text, module) if port[1] not in ("clk", "rst")]
    inputs = [(name, width) for kind, name, width in found if kind == "input"]
    outputs = [(name, width) for kind, name, width in found if kind == "output"]
    total_in, total_out = (sum(width for _, width in side) for side in (inputs, outputs))
    connections, at = [".clk(clk)", ".rst(1'b0)"], 0
    for name, width in inputs:
        connections.append(f".{name}(taken[{at + width - 1}:{at}])")
        at += width
    connections += [f".{name}(out_{name})" for name, _ in outputs]
    lines = [
        f"module {WRAPPER}(input clk, input serial_in, output serial_out);",
        f"  reg [{total_in - 1}:0] taken;",
        "  always @(posedge clk) taken <= {taken, serial_in};",
        *(f"  wire [{width - 1}:0] out_{name};" for name, width in outputs),
        f"  {module} engine({', '.join(connections)});",
        f"  reg [{total_out - 1}:0] given_0;",
        f"  always @(posedge clk) given_0 <= {{{', '.join(f'out_{n}' for n, _ in outputs)}}};",
    ]
    width, level = total_out, 0
    while width > 1:
        above = (width + 3) // 4
        lines.append(f"  reg [{above - 1}:0] given_{level + 1};")
        lines.append("  always @(posedge clk) begin")
        for n in range(above):
            high = min(4 * n + 3, width - 1)
            lines.append(f"    given_{level + 1}[{n}] <= ^given_{level}[{high}:{4 * n}];")
        lines.append("  end")
        width, level = above, level + 1
    return "\n".join([*lines, f"  assign serial_out = given_{level}[0];", "endmodule", ""])


def synthesise(parameters: Parameters, folder: Path, progress: Progress) -> None:
    """Write ecp5.json, the netlist for nextpnr, into `folder`.

    Raises:
        ToolError: If Yosys fails.
    """
    text = verilog.generate(parameters)
    (folder / f"{NAME}.v").write_text(f"{text}\n{wrapper(text, verilog.MODULE)}")
    marks = "\n".join(
        [
            # A name that is no longer that of a memory would be passed over without a word.
            *(f"select -assert-count 1 */m:*.{memory}" for memory in DISTRIBUTED + NEVER_BOTH),
            *(f'setattr -set ram_style "distributed" */m:*.{memory}' for memory in DISTRIBUTED),
            *(f"setattr -set no_rw_check 1 */m:*.{memory}" for memory in NEVER_BOTH),
        ]
    )
    script = f"""
read_verilog {NAME}.v
hierarchy -top {WRAPPER}
proc
flatten
{marks}
synth_ecp5 -top {WRAPPER}
write_json {NAME}.json
"""
    run_yosys(script, folder, NAME, progress)


def place_and_route(seed: int, folder: Path, progress: Progress, limit_s: float) -> dict[str, Any]:
    """Place and route what `synthesise` has left, and report on it.

    Args:
        seed: Seed of the placement.
        folder: Where `synthesise` has been.
        progress: Called with how far it has got.
        limit_s: Seconds after which routing is given up. Then `fmax_mhz` is None.

    Raises:
        ToolError: If nextpnr fails, for one because the device is too small.
    """
    name = f"{NAME}_seed{seed}"
    (folder / f"{NAME}.lpf").write_text(f"{PINS}\n")
    files = ["--json", f"{NAME}.json", "--lpf", f"{NAME}.lpf", "--report", f"{name}.json"]
    # The other two pins lie where nextpnr likes; a missed target is a result, not an error.
    goal = ["--freq", str(TARGET_MHZ), "--timing-allow-fail", "--lpf-allow-unconstrained"]
    arguments = [*ARGUMENTS, *files, *goal, "--seed", str(seed)]
    try:
        run_nextpnr(arguments, folder, name, progress, limit_s)
    except ToolTimeout:
        placed = parse_log((folder / f"{name}.log").read_text())
        if placed is None:
            raise
        return placed
    log = parse_log((folder / f"{name}.log").read_text())
    report = parse_report(json.loads((folder / f"{name}.json").read_text()))
    return {**(log or {}), **report}


def parse_log(text: str) -> dict[str, Any] | None:
    """Return what `synth.json` reports of a placement that was not routed; None without one."""
    estimate = _ESTIMATE.search(text)
    use = {name: (int(used), int(of)) for name, used, of in _USE.findall(text)}
    if estimate is None or not set(_CELLS.values()) <= use.keys():
        return None
    return {
        "fmax_mhz": None,
        "fmax_mhz_placed": float(estimate[1]),
        **{key: use[cell][0] for key, cell in _CELLS.items()},
        "available": {key: use[cell][1] for key, cell in _CELLS.items()},
    }


def parse_report(document: dict[str, Any]) -> dict[str, Any]:
    """Return what `synth.json` keeps of a report by nextpnr.

    Raises:
        ValueError: If there is not exactly one clock.
    """
    clocks = document["fmax"]
    if len(clocks) != 1:
        raise ValueError(f"one clock, not {sorted(clocks)}")
    (clock,) = clocks
    longest = next(
        path
        for path in document["critical_paths"]
        if path["from"] == path["to"] == f"posedge {clock}"
    )["path"]
    use = document["utilization"]
    return {
        "fmax_mhz": round(clocks[clock]["achieved"], 2),
        "lut4": use["TRELLIS_COMB"]["used"],
        "ff": use["TRELLIS_FF"]["used"],
        "ebr": use["DP16KD"]["used"],
        "available": {
            "lut4": use["TRELLIS_COMB"]["available"],
            "ff": use["TRELLIS_FF"]["available"],
            "ebr": use["DP16KD"]["available"],
        },
        "longest_path": {
            "start": longest[0]["from"]["cell"],
            "end": longest[-1]["to"]["cell"],
            "logic_ns": round(sum(s["delay"] for s in longest if s["type"] != "routing"), 2),
            "routing_ns": round(sum(s["delay"] for s in longest if s["type"] == "routing"), 2),
            "cells": sum(step["type"] == "logic" for step in longest),
        },
    }
