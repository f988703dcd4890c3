"""Where a design crosses between clocks, found in its netlist: every register, not every name.

Yosys reads the Verilog and dissolves the hierarchy. Then each register and each memory that is
written has a clock, and for each of its inputs it is known by which clocks what is before it
changes: other registers, memories, and the ports of the design, whose clocks are given.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from afflux_hdl.synthesis.netlist import Cell, Netlist
from afflux_hdl.synthesis.tools import run_yosys

__all__ = ["Crossing", "find_all_crossings", "netlist_of", "paths_of"]

_ASYNCHRONOUS = ("ARST", "ALOAD", "SET", "CLR")
_CONTROLS = ("SRST", "EN")
_MEMORY = "$mem_v2"

Source = tuple[str, str]
"""A clock, and what changes with it: a register, a memory, or a port."""


@dataclass(frozen=True)
class Crossing:
    """An input of a register, or of a memory that is written, and what changes it.

    Attributes:
        to: Name of the register, or of the memory.
        clock: Its clock.
        source: A signal that changes by another clock, or by none; one of them, if there are
        several.
        source_clock: That clock; "" is that of no clock.
        asynchronous: The input works without a clock, as a reset may.
        direct: There is no logic between, and nothing else.
        from_memory: The source is a memory.
    """

    to: str
    clock: str
    source: str
    source_clock: str
    asynchronous: bool
    direct: bool
    from_memory: bool


def netlist_of(verilog: str, top: str, folder: Path) -> Netlist:
    """Return the flat netlist of a design."""
    (folder / "design.v").write_text(verilog)
    script = [
        "read_verilog design.v",
        f"hierarchy -top {top}",
        "proc",
        "flatten",
        "opt_expr",
        "opt_clean",
        "memory_collect",
        "opt_clean",
        "write_json design.json",
    ]
    run_yosys("\n".join(script), folder, "design", lambda line: None)
    return Netlist.load(folder / "design.json", top)


def paths_of(crossings: Iterable[Crossing]) -> tuple[set[str], set[str], set[str]]:
    """Return instances: of synchronisers, of those of resets, and of memories with two clocks.

    Raises:
        AssertionError: If a crossing is none of these, or has logic before its synchroniser.
    """
    synchronisers, resets, memories = set(), set(), set()
    for each in crossings:
        instance, _, register = each.to.replace(".", "/").rpartition("/")
        if each.from_memory:
            memories.add(each.source.replace(".", "/").rpartition("/")[0])
        elif each.asynchronous:
            # Both registers are set; the second has a name of what it resets.
            assert each.direct, each
            if register == "stage0":
                resets.add(instance)
        else:
            assert register == "stage0" and each.direct, each
            synchronisers.add(instance)
    return synchronisers, resets, memories


def find_all_crossings(netlist: Netlist, clocks: Mapping[str, str]) -> list[Crossing]:
    """Return every crossing.

    Args:
        netlist: The design.
        clocks: For each input that is not a clock the one that it belongs to; "" is none.

    Raises:
        KeyError: If an input has no clock.
    """
    return list(_Finder(netlist, clocks).crossings())


class _Finder:
    def __init__(self, netlist: Netlist, clocks: Mapping[str, str]) -> None:
        self._names = netlist.names
        self._drivers = {
            bit: cell for cell in netlist.cells for bits in cell.outputs.values() for bit in bits
        }
        self._cells = netlist.cells
        self._clock_names: dict[int | None, str] = {}
        used = {
            bits[0]
            for cell in netlist.cells
            for port, bits in cell.inputs.items()
            if _is_register(cell) and port == "CLK"
        }
        self._ports: dict[int | None, Source] = {}
        for name, bits in netlist.inputs.items():
            if bits[0] in used:
                self._clock_names[bits[0]] = name
                continue
            for bit in bits:
                self._ports[bit] = clocks[name], name
        self._seen: dict[str, frozenset[Source]] = {}

    def crossings(self) -> Iterator[Crossing]:
        for cell in self._cells:
            if _is_register(cell):
                yield from self._of_register(cell)
            elif cell.type == _MEMORY:
                yield from self._of_memory(cell)

    def _of_register(self, cell: Cell) -> Iterator[Crossing]:
        clock, to = self._clock(cell.inputs["CLK"][0]), self._name(cell)
        for port, bits in cell.inputs.items():
            if port == "CLK":
                continue
            yield from self._at(to, clock, bits, port in _ASYNCHRONOUS)

    def _of_memory(self, cell: Cell) -> Iterator[Crossing]:
        clocks = {self._clock(bit) for bit in cell.inputs["WR_CLK"]}
        if not clocks:
            return
        (clock,) = clocks
        for port in ("WR_DATA", "WR_ADDR", "WR_EN"):
            yield from self._at(cell.name, clock, cell.inputs[port], False)

    def _at(
        self, to: str, clock: str, bits: tuple[int | None, ...], asynchronous: bool
    ) -> Iterator[Crossing]:
        found: dict[Source, bool] = {}
        for bit in bits:
            direct = bit in self._ports or self._is_held(self._drivers.get(bit))
            for source in self._sources(bit):
                if source[0] != clock:
                    found[source] = found.get(source, True) and direct
        for (source_clock, name), direct in sorted(found.items()):
            yield Crossing(
                *(to, clock, name.removeprefix("memory "), source_clock),
                *(asynchronous, direct, name.startswith("memory ")),
            )

    def _sources(self, bit: int | None) -> frozenset[Source]:
        """Return by what a net changes."""
        if bit in self._ports:
            return frozenset({self._ports[bit]})
        cell = self._drivers.get(bit)
        if cell is None:
            return frozenset()
        return self._of_cell(cell)

    def _of_cell(self, start: Cell) -> frozenset[Source]:
        # Without recursion: a carry chain is longer than Python's stack.
        stack = [start]
        while stack:
            cell = stack[-1]
            if cell.name in self._seen:
                stack.pop()
                continue
            if _is_register(cell):
                clock = self._clock(cell.inputs["CLK"][0])
                self._seen[cell.name] = frozenset({(clock, self._name(cell))})
                continue
            before = self._inputs(cell)
            missing = [
                driver
                for bit in before
                if bit not in self._ports
                and (driver := self._drivers.get(bit)) is not None
                and driver.name not in self._seen
            ]
            if missing:
                stack += missing
                continue
            found: set[Source] = set()
            for bit in before:
                found |= self._sources(bit)
            if cell.type == _MEMORY:
                for bit in cell.inputs["WR_CLK"]:
                    found.add((self._clock(bit), f"memory {cell.name}"))
            # One of each clock is enough to say where it comes from.
            kept: dict[tuple[str, bool], Source] = {}
            for source in sorted(found):
                kept.setdefault((source[0], source[1].startswith("memory ")), source)
            self._seen[cell.name] = frozenset(kept.values())
        return self._seen[start.name]

    def _inputs(self, cell: Cell) -> list[int | None]:
        ports = ("RD_ADDR", "RD_EN") if cell.type == _MEMORY else tuple(cell.inputs)
        return [bit for port in ports for bit in cell.inputs[port]]

    def _is_held(self, cell: Cell | None) -> bool:
        return cell is None or _is_register(cell)

    def _clock(self, bit: int | None) -> str:
        if bit not in self._clock_names:
            self._clock_names[bit] = self._names[bit][0] if bit in self._names else str(bit)
        return self._clock_names[bit]

    def _name(self, cell: Cell) -> str:
        names = {
            name.partition("[")[0]
            for bit in cell.outputs["Q"]
            if bit is not None
            for name in self._names.get(bit, ())[:1]
        }
        return min(names, key=lambda name: (name.count("."), len(name), name), default=cell.name)


def _is_register(cell: Cell) -> bool:
    return "CLK" in cell.inputs and "Q" in cell.outputs
