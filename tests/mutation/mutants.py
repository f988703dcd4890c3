"""Mutants of engine and node: one Verilog text in which a register chooses which of them it is.

::

    Amaranth ─► RTLIL ─► yosys: proc, opt ─► mutate -list, for each stage ─► mutate -ctrl, for each
                                             mutant ─► Verilog ─► wrapper with the selector

A mutant is one bit of one cell's port that is inverted, stuck, or mixed with another bit (``help
mutate`` in yosys). Mutant 0 is the engine as it is. All others are in the same netlist, each behind
a comparison of the selector with its number, so that one build serves for all.

Mutants of a node are those of what is around its engine, which has its own.
"""

import json
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from amaranth.back import rtlil

from afflux_hdl.contract import registers
from afflux_hdl.engine.control import REGISTER_ADDRESS_BITS
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.engine.verilog import MODULE, Top
from afflux_hdl.lib.ram import RAM_VERILOG, REGISTERED_RAM_VERILOG, VERILOG
from afflux_hdl.lib.top_level import TopLevel
from afflux_hdl.node.parameters import NodeParameters
from afflux_hdl.node.verilog import NODE_MODULE, NodeTop
from tests.mutation.cell_bits import CellBits
from tests.support.counter_starts import counters_that_start_late
from tests.support.rtlil_text import inputs_of
from tests.support.yosys import run_script

__all__ = [
    "SELECTOR",
    "SELECTOR_NAME",
    "Mutant",
    "Netlist",
    "Place",
    "allot",
    "changes",
    "controlled",
    "stage_of",
]

SELECTOR = 2**REGISTER_ADDRESS_BITS - 4
"""Address of the register that chooses the mutant: the last one, which engine and node leave free.

A node answers a write of it with an error; it is written all the same.
"""

_SIMPLIFY = ("opt_expr", "opt_merge", "opt_muxtree", "opt_reduce", "opt_clean -purge")
SELECTOR_NAME = "mutant"
"""Of the input that the netlist with all mutants has for it."""

FLIP_NAME = "flip"
"""Of the input that chooses a bit that is wrong in this cycle."""

_FLIP_BITS = 12
_WRITES = {
    MODULE: ("reg_write", "reg_address", "reg_write_data"),
    NODE_MODULE: ("s_axil_awvalid && s_axil_wvalid", "s_axil_awaddr", "s_axil_wdata"),
}
"""By module: when something is written, to which address, and what."""
_OPTION = re.compile(r"-(\w+) (\S+)")
_SOURCE = re.compile(r".*?((?:afflux_hdl|amaranth)/\S+)")
# A selector on a clock's way makes a clock of it, and its effect then is the simulator's affair. Of
# memories, yosys takes only those with constants at the others.
_NEVER = {"CLK", "RD_CLK", "WR_CLK", "RD_EN", "RD_ARST", "RD_SRST"}


@dataclass(frozen=True)
class Mutant:
    """One change of the netlist.

    Attributes:
        number: Value of the selector that brings it about, from 1 on.
        stage: Part of the engine that it lies in.
        mode: `inv`, `const0`, `const1`, `cnot0` or `cnot1`.
        cell, port, bit: Place in the netlist; the cell's name is its place in the hierarchy.
        control_bit: The port's other bit that has a part in it, if there is one.
        wire: Name and bit of the signal there, if it has a name.
        sources: Lines of the sources that the cell comes from, innermost first.
        command: As yosys applies it: a line for each port that it changes.
    """

    number: int
    stage: str
    mode: str
    cell: str
    port: str
    bit: int
    control_bit: int | None
    wire: str
    sources: tuple[str, ...]
    command: str

    def __str__(self) -> str:
        mixed = "" if self.control_bit is None else f" with [{self.control_bit}]"
        where = f"{self.cell} {self.port}[{self.bit}]{mixed}"
        return f"{self.number}: {self.mode} {where} {self.wire} {' '.join(self.sources[:2])}"


@dataclass(frozen=True)
class Place:
    """One bit of a cell's port.

    Attributes:
        name, port, bit: As RTLIL has it.
        other: Another bit of the port, if there is one.
        wire, wire_bit: The signal there, if it has a name.
        sources: Lines of the sources that the cell comes from, outermost first.
    """

    name: str
    port: str
    bit: int
    other: int | None
    wire: str
    wire_bit: int
    sources: tuple[str, ...]

    @property
    def cell(self) -> str:
        """The cell's name without the backslash of names of ours."""
        return self.name.removeprefix("\\")


def path_of(cell: str) -> str:
    """Place of a cell in the engine's hierarchy, from its name in the flat netlist."""
    return cell.removeprefix("$flatten").replace("\\", "")


def stage_of(cell: str, text: str = "", whole: str = "engine") -> str:
    """Return the part of the engine, or of the node, that a cell of the flat netlist belongs to.

    Args:
        cell: Its name.
        text: Its connections as RTLIL. Cells that yosys has made anew have lost their name, but
            not those of their signals.
        whole: `engine` or `node`.
    """
    if cell.startswith("$auto"):
        outputs = re.findall(r"connect \\[QY] (.*)", text)
        found = re.search(rf"\\{whole}\.(\w+)\.", " ".join([*outputs, text]))
        return found[1] if found else whole
    parts = path_of(cell).split(".")
    return parts[1] if parts[0] == whole and len(parts) > 2 else whole


def allot(sizes: Mapping[str, int], count: int) -> dict[str, int]:
    """Return how many of `count` mutants each stage gets: as the square root of its cells."""
    weights = {stage: size**0.5 for stage, size in sizes.items() if size}
    whole = sum(weights.values())
    least = max(1, count // 80)
    return {stage: max(least, round(count * weight / whole)) for stage, weight in weights.items()}


class Netlist:
    """The netlist of an engine or of a node, in a folder with what becomes of it.

    Its counters start late, so that mutants of their upper bits are not beyond every check.

    Args:
        folder: Where to put everything; it must exist.
        parameters: Of the engine, or of the node.

    Raises:
        YosysError: From all methods, if yosys fails.
    """

    def __init__(self, folder: Path, parameters: Parameters | NodeParameters) -> None:
        self._folder = folder
        if isinstance(parameters, Parameters):
            self._top: TopLevel = Top(parameters)
            self._module, self._whole = MODULE, "engine"
        else:
            self._top = NodeTop(parameters)
            self._module, self._whole = NODE_MODULE, "node"
        self._inner = f"{self._module}_mutated"
        with counters_that_start_late():
            text = rtlil.convert(
                self._top, name=self._inner, platform=VERILOG, ports=self._top.ports
            )
        self._inputs = inputs_of(text, self._inner)
        (folder / "engine.il").write_text(text, encoding="utf-8")
        registered = isinstance(parameters, Parameters) and parameters.ram_output_register
        memories = RAM_VERILOG + (REGISTERED_RAM_VERILOG if registered else "")
        (folder / "ram.v").write_text(memories, encoding="utf-8")
        run_script(
            folder,
            "netlist",
            "read_rtlil engine.il",
            "read_verilog ram.v",
            f"hierarchy -top {self._inner}",
            # Unlike what Amaranth writes for simulators: decisions become cells, which mutate.
            "proc",
            # Flat, without logic that is dead or constant: a mutant there would be nobody's loss.
            "flatten",
            # Of several inputs chosen at once a parallel multiplexer makes nothing certain.
            "pmuxtree",
            *(*_SIMPLIFY, "wreduce -keepdc", "opt_dff") * 2,
            *_SIMPLIFY,
            "memory_collect",
            "write_rtlil netlist.il",
        )

    def cells(self) -> dict[str, list[str]]:
        """Return the names of the cells of each stage."""
        stages: dict[str, list[str]] = {}
        text = (self._folder / "netlist.il").read_text(encoding="utf-8")
        # Names of our own begin with a backslash, which yosys shows in RTLIL only.
        for name, body in re.findall(r"^  cell \S+ \\?(\S+)$(.*?)^  end$", text, re.M | re.S):
            stages.setdefault(stage_of(name, body, self._whole), []).append(name)
        if self._whole == "node":
            # It is mutated by itself, and its checks judge it better.
            del stages["engine"]
        return stages

    def draw(self, count: int, seed: int) -> list[Mutant]:
        """About `count` mutants, spread over the stages, and within each by yosys."""
        cells = self.cells()
        wanted = allot({stage: len(names) for stage, names in cells.items()}, count)
        commands = ["read_rtlil netlist.il"]
        for stage, number in wanted.items():
            chosen = "".join(f"{self._inner}/{name}\n" for name in cells[stage])
            (self._folder / f"{stage}.cells").write_text(chosen, encoding="utf-8")
            # Some more, for those that are left out.
            drawn = 2 * number + 8
            commands += [
                f"select -read {stage}.cells",
                f"mutate -list {drawn} -seed {seed} -o {stage}.list",
                "select -clear",
            ]
        run_script(self._folder, "draw", *commands)
        bits = CellBits((self._folder / "netlist.il").read_text(encoding="utf-8"))
        mutants: list[Mutant] = []
        choose = random.Random(seed)
        for stage, number in wanted.items():
            lines = (self._folder / f"{stage}.list").read_text(encoding="utf-8").splitlines()
            possible = [line for line in lines if _port(line) not in _NEVER]
            possible = [line for line in possible if changes(line, bits)]
            for line in choose.sample(possible, min(number, len(possible))):
                mutants.append(_parse(len(mutants) + 1, stage, line))
        return mutants

    def draw_at(self, places: Mapping[str, Sequence[Place]], count: int, seed: int) -> list[Mutant]:
        """About `count` mutants at some bits only: as many of each cell of a stage, as far as so.

        Args:
            places: Of each stage.
            count: Mutants.
            seed: Of what is drawn.
        """
        choose = random.Random(seed)
        bits = CellBits((self._folder / "netlist.il").read_text(encoding="utf-8"))
        cells = {stage: sorted({each.cell for each in found}) for stage, found in places.items()}
        wanted = allot({stage: len(names) for stage, names in cells.items()}, count)
        mutants: list[Mutant] = []
        for stage, number in wanted.items():
            lines = [
                (place.cell, line)
                for place in places[stage]
                if place.port.removeprefix("\\") not in _NEVER
                for line in self._lines(place)
                if changes(line, bits)
            ]
            choose.shuffle(lines)
            # One of each cell before any has two; no bit has more than one.
            taken: Counter[str] = Counter()
            for _ in range(number):
                if not lines:
                    break
                cell, line = lines.pop(min(range(len(lines)), key=lambda n: taken[lines[n][0]]))
                taken[cell] += 1
                bit = re.search(r"-cell \S+ -port \S+ -portbit \d+", line)
                assert bit
                lines = [each for each in lines if bit[0] + " " not in each[1] + " "]
                mutants.append(_parse(len(mutants) + 1, stage, line))
        return mutants

    def _lines(self, place: Place) -> list[str]:
        """Return what may be done to a bit, as `mutate -list` writes it."""
        where = f"-module {self._inner} -cell {place.name} -port {place.port}"
        where += f" -portbit {place.bit}"
        wire = f" -wire {place.wire} -wirebit {place.wire_bit}" if place.wire else ""
        sources = "".join(f" -src {source}" for source in place.sources)
        mixed = [
            f"mutate -mode {mode} {where} -ctrlbit {place.other}"
            for mode in ("cnot0", "cnot1")
            if place.other is not None
        ]
        plain = [f"mutate -mode {mode} {where}" for mode in ("inv", "const0", "const1")]
        return [line + wire + sources for line in (*plain, *mixed)]

    def mutant(self, number: int, mode: str, cell: str, port: str, bit: int) -> Mutant:
        """Return a requested one, at a cell of that name."""
        line = f"mutate -mode {mode} -module {self._inner} -cell {cell}"
        line += f" -port {port} -portbit {bit}"
        return _parse(number, stage_of(cell, whole=self._whole), line)

    def aliased(self, number: int, cell: str, bit: int, ports: Sequence[tuple[str, int]]) -> Mutant:
        """Return the mutant of which no port of a memory has a bit of the address.

        So words that are 2**`bit` apart are one: a single port without it is not like that, as
        words written by another are not found.

        Args:
            number: Value of the selector.
            cell: The memory.
            bit: Of the address.
            ports: Where each of its ports has that bit.
        """
        lines = [self.mutant(number, "const0", cell, *place).command for place in ports]
        whole = self.mutant(number, "const0", cell, "ADDR", bit)
        return replace(whole, command="\n".join(lines))

    def verilog(self, mutants: Sequence[Mutant], flips: Sequence[Mutant] = ()) -> str:
        """Return the engine that is any of `mutants`, and itself, as :data:`SELECTOR` says.

        A value that is written there with the uppermost bit set chooses one of `flips` instead: the
        upper half is its number, the lower half says in how many cycles it happens.
        """
        numbers = [mutant.number for mutant in mutants]
        assert numbers == list(range(1, len(numbers) + 1)), "mutants are numbered from 1 on"
        width = len(mutants).bit_length()
        commands = json.dumps([mutant.command for mutant in mutants], indent=1)
        (self._folder / "drawn.json").write_text(commands + "\n", encoding="utf-8")
        run_script(
            self._folder,
            "apply",
            "read_rtlil netlist.il",
            *(
                line
                for m in mutants
                for line in controlled(m.command, SELECTOR_NAME, width, m.number)
            ),
            *(
                line
                for m in flips
                for line in controlled(m.command, FLIP_NAME, _FLIP_BITS, m.number)
            ),
            "opt_clean",
            "write_verilog -norename -noattr mutated.v",
        )
        inner = (self._folder / "mutated.v").read_text(encoding="utf-8")
        write, address, data = _WRITES[self._module]
        # The selector outlives a reset, so that the mutant can be chosen before it.
        state = f"""
  reg [{width - 1}:0] {SELECTOR_NAME} = 0;
  reg [{_FLIP_BITS - 1}:0] which = 0;
  reg [15:0] delay = 0;
  wire [{_FLIP_BITS - 1}:0] {FLIP_NAME} = delay == 1 ? which : 0;
  always @(posedge clk) begin
    if (delay != 0) delay <= delay - 1;
    if ({write} && {address} == {SELECTOR})
      if ({data}[31]) {{which, delay}} <= {data}[{_FLIP_BITS + 15}:0];
      else {SELECTOR_NAME} <= {data}[{width - 1}:0];
  end"""
        return inner + self.wrapper(state, [SELECTOR_NAME, *([FLIP_NAME] if flips else [])])

    def wrapper(self, state: str, controls: Sequence[str]) -> str:
        """Return the module that everyone expects, around the one with the mutants.

        Args:
            state: Verilog of what drives the controls.
            controls: Inputs that the mutants have added.
        """
        assert SELECTOR not in _used_addresses(), "the selector's address is used"
        ports = []
        for port in self._top.ports:
            direction = "input" if port.name in self._inputs else "output"
            ports.append(f"{direction} [{len(port) - 1}:0] {port.name}")
        names = [*(port.name for port in self._top.ports), *controls]
        connections = [f".{name}({name})" for name in names]
        return f"""
module {self._module}({", ".join(ports)});{state}
  {self._inner} inner ({", ".join(connections)});
endmodule
"""


def controlled(command: str, name: str, width: int, number: int) -> list[str]:
    """Return yosys' commands for a mutant that is there while an input has a value.

    Args:
        command: The mutant's.
        name: The input.
        width: Its bits.
        number: The value.
    """
    return [f"{line} -ctrl {name} {width} {number}" for line in command.splitlines()]


def _port(line: str) -> str:
    return dict(_OPTION.findall(line)).get("port", "")


def changes(line: str, bits: CellBits) -> bool:
    """Return whether the mutant changes anything in the netlist: yosys does not look."""
    options = dict(_OPTION.findall(line))
    cell, port = options["cell"].removeprefix("\\"), options["port"].removeprefix("\\")
    before = bits.bit(cell, port, int(options["portbit"]))
    if options["mode"] in ("cnot0", "cnot1"):
        control = bits.bit(cell, port, int(options["ctrlbit"]))
        return before != "x" and control in ("s", options["mode"][-1])
    # Of a bit that is undefined anything may be made.
    return before != "x" and f"const{before}" != options["mode"]


def _parse(number: int, stage: str, line: str) -> Mutant:
    options = dict(_OPTION.findall(line))
    sources = re.findall(r"-src (\S+)", line)
    control = options.get("ctrlbit")
    wire = options.get("wire", "").removeprefix("\\")
    return Mutant(
        number=number,
        stage=stage,
        mode=options["mode"],
        cell=path_of(options["cell"]),
        port=options["port"].removeprefix("\\"),
        bit=int(options["portbit"]),
        control_bit=int(control) if control is not None else None,
        wire=f"{wire}[{options['wirebit']}]" if wire else "",
        sources=tuple(_SOURCE.sub(r"\1", source) for source in reversed(sources)),
        command=re.sub(r" -(?:wire|wirebit|src) \S+", "", line),
    )


def _used_addresses() -> set[int]:
    every = (*registers.REGISTERS, *registers.NODE_REGISTERS)
    counters = [registers.counter_address(each.name) for each in registers.COUNTERS]
    counters += [registers.node_counter_address(each.name) for each in registers.NODE_COUNTERS]
    return {each.address for each in every} | {at + half for at in counters for half in (0, 4)}
