"""Primitives of the UltraScale+ netlist: their number of LUTs, and the paths through them.

The primitives are those of AMD's UltraScale Architecture Libraries Guide (UG974) that Yosys emits.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from afflux_hdl.synthesis.netlist import Cell

__all__ = [
    "BLOCKS",
    "LUTRAM",
    "REGISTERS",
    "SHIFT_REGISTERS",
    "Arc",
    "arcs",
    "is_sequential",
    "luts",
]

LUTS = {f"LUT{n}": 1 for n in range(1, 7)} | {"INV": 1}
"""An inverter that nothing has absorbed takes a LUT."""

LUTRAM = {
    "RAM32X1S": 1,
    "RAM64X1S": 1,
    "RAM128X1S": 2,
    "RAM256X1S": 4,
    "RAM512X1S": 8,
    "RAM32X1D": 2,
    "RAM64X1D": 2,
    "RAM128X1D": 4,
    "RAM256X1D": 8,
    "RAM32M": 4,
    "RAM64M": 4,
    "RAM32M16": 8,
    "RAM64M8": 8,
}
"""LUTs in each memory that is made of LUTs: written by the clock, read at once."""

SHIFT_REGISTERS = {"SRL16E": 1, "SRLC32E": 1}
"""LUTs in each shift register: the tap is chosen at once."""

REGISTERS = frozenset({"FDRE", "FDSE", "FDCE", "FDPE"})

BLOCKS = frozenset({"RAMB18E2", "RAMB36E2", "URAM288"})
"""Memories whose inputs and outputs are all clocked."""

JOINED = frozenset({"MUXF7", "MUXF8", "MUXF9"})
"""Multiplexers beside the LUTs that feed them, without wiring between: part of the LUT's level."""


@dataclass(frozen=True)
class Arc:
    """A path through a cell without a clock.

    Attributes:
        start, end: Nets.
        levels: 1 or, where it goes on within what has been counted already, 0.
    """

    start: int
    end: int
    levels: int


def luts(cell: Cell) -> int:
    """Return the number of LUTs that a cell takes."""
    for table in (LUTS, LUTRAM, SHIFT_REGISTERS):
        if cell.type in table:
            return table[cell.type]
    return 0


def is_sequential(cell: Cell) -> bool:
    """Return whether the clock decides about a cell's outputs: paths start and end there.

    Memories and shift registers made of LUTs are both: they are written by the clock, and what is
    read follows its address at once.
    """
    return cell.type in REGISTERS | BLOCKS or cell.type in LUTRAM or cell.type in SHIFT_REGISTERS


def arcs(cell: Cell, chained: frozenset[int]) -> Iterator[Arc]:
    """Yield the paths through a cell.

    Args:
        cell: Any primitive of this file.
        chained: All nets that are a carry output of a `CARRY4` or `CARRY8`.

    Raises:
        ValueError: If the primitive is not known here.
    """
    if cell.type in LUTS or cell.type in JOINED:
        levels = 1 if cell.type in LUTS else 0
        for end in cell.outputs["O"]:
            for start in _nets(cell, *cell.inputs):
                if end is not None:
                    yield Arc(start, end, levels)
    elif cell.type in ("CARRY4", "CARRY8"):
        yield from _carry(cell, chained)
    elif cell.type in LUTRAM:
        yield from _lutram(cell)
    elif cell.type in SHIFT_REGISTERS:
        addresses = [port for port in cell.inputs if port.startswith("A")]
        for end in _outputs(cell):
            for start in _nets(cell, *addresses):
                yield Arc(start, end, 1)
    elif cell.type not in REGISTERS | BLOCKS:
        raise ValueError(f"no levels are known for {cell.type} ({cell.name})")


def read_addresses(cell: Cell) -> frozenset[str]:
    """Return the ports of a memory or shift register of LUTs that only choose what is read.

    The last of several address ports, and the only one, is where the clock writes, too.
    """
    if cell.type in SHIFT_REGISTERS:
        return frozenset(port for port in cell.inputs if port.startswith("A"))
    if cell.type in LUTRAM:
        banks = sorted(port for port in cell.inputs if port.startswith("ADDR"))
        return frozenset(banks[:-1]) | {port for port in cell.inputs if port.startswith("DPRA")}
    return frozenset()


def _nets(cell: Cell, *ports: str) -> Iterator[int]:
    for port in ports:
        for net in cell.inputs.get(port, ()):
            if net is not None:
                yield net


def _outputs(cell: Cell) -> Iterator[int]:
    for nets in cell.outputs.values():
        for net in nets:
            if net is not None:
                yield net


def _carry(cell: Cell, chained: frozenset[int]) -> Iterator[Arc]:
    """Yield the arcs of a carry chain: O[n] = S[n] xor carry, CO[n] = S[n] ? carry : DI[n].

    Where the carry comes from the chain's earlier part, its level has been counted.
    """
    sums, carries = cell.outputs["O"], cell.outputs["CO"]
    for top in range(len(sums)):
        for port in ("CI", "CI_TOP", "CYINIT"):
            for start in _nets(cell, port):
                levels = 0 if port == "CI" and start in chained else 1
                for end in (sums[top], carries[top]):
                    if end is not None:
                        yield Arc(start, end, levels)
        for port in ("S", "DI"):
            for stage, net in enumerate(cell.inputs[port][: top + 1]):
                if net is None:
                    continue
                carry, total = carries[top], sums[top]
                if carry is not None:
                    yield Arc(net, carry, 1)
                if total is not None and (stage < top or port == "S"):
                    yield Arc(net, total, 1)


def _lutram(cell: Cell) -> Iterator[Arc]:
    """Yield the arcs of a memory of LUTs: each output follows the address of its own port."""
    for port, nets in cell.outputs.items():
        if port in ("DPO", "SPO"):
            prefix = "DPRA" if port == "DPO" else "A"
            addresses = [name for name in cell.inputs if name.rstrip("0123456789") == prefix]
        elif port == "O":
            addresses = [name for name in cell.inputs if name.rstrip("0123456789") == "A"]
        else:
            addresses = [f"ADDR{port[-1]}"]
            if addresses[0] not in cell.inputs:
                raise ValueError(f"{cell.type} has no address for {port} ({cell.name})")
        for end in nets:
            for start in _nets(cell, *addresses):
                if end is not None:
                    yield Arc(start, end, 1)
