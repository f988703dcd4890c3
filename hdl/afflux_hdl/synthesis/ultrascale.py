"""The engine in UltraScale+: resources, and their shares of an Alveo U50."""

import re
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from afflux_hdl.engine import verilog
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.synthesis.levels import Levels
from afflux_hdl.synthesis.levels import Path as LongPath
from afflux_hdl.synthesis.netlist import Netlist
from afflux_hdl.synthesis.primitives import BLOCKS, LUTRAM, REGISTERS, SHIFT_REGISTERS, luts
from afflux_hdl.synthesis.tools import Progress, run_yosys

__all__ = [
    "PARAMETERS",
    "U50",
    "Device",
    "count",
    "memories",
    "misplaced",
    "report",
    "script",
    "synthesise",
]

PARAMETERS = Parameters(ram_output_register=1)
"""The engine that Alveo cards get: `afflux_hdl.vivado.cmac`, `afflux_hdl.opennic`."""


@dataclass(frozen=True)
class Device:
    """The resources of a device. Block RAMs are those of 36 kbit."""

    lut: int
    ff: int
    bram: int
    uram: int
    dsp: int


U50 = Device(lut=871_680, ff=1_743_360, bram=1_344, uram=640, dsp=5_952)
"""XCU50 of the Alveo U50: AMD's data sheet DS965."""

WIRE_PS = 1000
"""The cost of a wire when LUTs are chosen, in the unit of Yosys' table, the 7 series' picoseconds.

Its own 300 belongs to LUTs of the 7 series, which take up to 640. In UltraScale+ LUTs have become
several times faster and wires have not, so levels count for more.
"""

RAM_MODULE = "afflux_ram"

MEMORY = re.compile(r"(?P<name>.+?)\.(?P<copy>\d+)\.\d+(?:\.genblk.*)?")
"""Names that Yosys gives to a memory's primitives: memory, copy, part."""


def script(source: str, top: str, output: str) -> str:
    """Return the script: Verilog to flat primitives, without pads and clock buffers."""
    return f"""
read_verilog {source}
scratchpad -set synth_xilinx.abc9.W {WIRE_PS}
synth_xilinx -family xcup -flatten -uram -noiopad -noclkbuf -top {top}
write_json {output}
"""


def synthesise(parameters: Parameters, folder: Path, progress: Progress) -> Netlist:
    """Return the engine as primitives of UltraScale+.

    Raises:
        ToolError: If Yosys fails.
    """
    name = "ultrascale"
    (folder / f"{name}.v").write_text(verilog.generate(parameters))
    run_yosys(script(f"{name}.v", verilog.MODULE, f"{name}.json"), folder, name, progress)
    return Netlist.load(folder / f"{name}.json", verilog.MODULE)


def count(netlist: Netlist) -> dict[str, int | float]:
    """Return a netlist's resources. `lut` includes those that are memories or shift registers."""
    cells = netlist.count()
    return {
        "lut": sum(luts(cell) for cell in netlist.cells),
        "lut_memory": sum(size * cells[name] for name, size in LUTRAM.items()),
        "lut_shift": sum(size * cells[name] for name, size in SHIFT_REGISTERS.items()),
        "ff": sum(cells[name] for name in REGISTERS),
        "bram": cells["RAMB36E2"] + cells["RAMB18E2"] / 2,
        "uram": cells["URAM288"],
        "dsp": cells["DSP48E2"],
        "carry": cells["CARRY4"] + 2 * cells["CARRY8"],
    }


def memories(netlist: Netlist) -> dict[str, dict[str, Any]]:
    """Return the primitives of each memory, and in how many copies it is stored."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    copies: dict[str, int] = {}
    for cell in netlist.cells:
        name = MEMORY.fullmatch(cell.name)
        if name and not cell.name.startswith("$"):
            found[name["name"]][cell.type] += 1
            copies[name["name"]] = max(copies.get(name["name"], 0), int(name["copy"]) + 1)
    return {
        name: {"copies": copies[name], "primitives": dict(sorted(found[name].items()))}
        for name in sorted(found)
    }


def misplaced(netlist: Netlist) -> list[str]:
    """Return the large memories that are not in block or ultra RAM, or are stored twice."""
    known = memories(netlist)
    wrong = []
    for scope in netlist.scopes:
        if RAM_MODULE not in scope.module:
            continue
        memory = known.get(f"{scope.path}.content", {"copies": 0, "primitives": {}})
        blocks = set(memory["primitives"]) <= BLOCKS
        if memory["copies"] != 1 or not blocks:
            wrong.append(scope.path)
    return wrong


def report(netlist: Netlist) -> dict[str, Any]:
    """Return everything that `synth.json` reports about the netlist."""
    counted = count(netlist)
    levels = Levels(netlist, within="engine")
    stages = levels.stages()
    longest = levels.paths(least=levels.worst)
    return {
        **counted,
        **{
            f"{name}_share_u50": round(counted[name] / have, 5)
            for name, have in asdict(U50).items()
        },
        "logic_levels": levels.worst,
        "longest_path": _as_dict(longest[0]) if longest else None,
        "levels_histogram": {str(level): n for level, n in levels.histogram().items()},
        "levels_by_stage": {stage: _as_dict(path) for stage, path in stages.items()},
        "memories": memories(netlist),
        "memories_misplaced": misplaced(netlist),
        "primitives": dict(sorted(netlist.count().items())),
    }


def _as_dict(path: LongPath) -> dict[str, Any]:
    return {
        "levels": path.levels,
        "stage": path.stage,
        "start": path.start,
        "end": path.end,
        "through": " ".join(path.through),
    }
