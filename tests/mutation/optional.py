"""The bits that the engine's options add to its netlist: their mutants are drawn there.

Three kinds of places: cells that come from lines of the sources which an option adds; the registers
of memories with an output register; and the bits that carry a network port, from where it comes in
to where it leaves, in registers, queues and tables that all engines have, but less wide.
"""

import ast
import random
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import afflux_hdl
from tests.mutation.cell_bits import CELL, MEMORY, SOURCES, CellBits, reached, through_memory
from tests.mutation.mutants import Place, stage_of

__all__ = ["option_lines", "optional_places", "port_bits"]

_OPTIONS = {"ports", "ram_output_register", "registered"}
"""Names of what a condition on an option looks at."""

_CLASSES = {"PortTable", "JobPorts"}
"""Logic that is there for an option only."""

_BITWISE = {"$and", "$or", "$xor", "$xnor", "$not", "$mux", "$pos"}
_REGISTERED = "afflux_ram_registered"


@cache
def option_lines() -> frozenset[str]:
    """Return the lines of the engine's sources that an option adds, such as `seal.py:209`."""
    found: set[str] = set()
    for path in sorted((Path(afflux_hdl.__file__).parent / "engine").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            body: list[ast.stmt] = []
            if isinstance(node, ast.If):
                looks_at = {
                    getattr(each, "attr", getattr(each, "id", None)) for each in ast.walk(node.test)
                }
                # Its other work is there without it.
                body = node.body if looks_at & _OPTIONS and not _refuses(node) else []
            elif isinstance(node, ast.ClassDef) and node.name in _CLASSES:
                body = node.body
            for statement in body:
                last = statement.end_lineno or statement.lineno
                found |= {f"{path.name}:{n}" for n in range(statement.lineno, last + 1)}
    return frozenset(found)


def _refuses(node: ast.If) -> bool:
    return any(isinstance(each, ast.Raise) for each in node.body)


def port_bits(text: str, bits: CellBits, start: str = "\\rx_net_ports") -> set[str]:
    """Return the bits that depend on the network ports of frames that come in.

    Args:
        text: The flat netlist as RTLIL.
        bits: Of the same.
        start: The input.
    """
    followers: dict[str, set[str]] = defaultdict(set)
    for cell in CELL.finditer(text):
        for source, target in _flows(cell["kind"], bits.ports(cell["name"].removeprefix("\\"))):
            followers[source].add(target)
    for target, source in bits.connected(text):
        followers[source].add(target)
    return reached(bits.names(start), followers)


def _flows(kind: str, ports: Mapping[str, list[str]]) -> Iterator[tuple[str, str]]:
    """Return which bits of a cell's outputs depend on which bits of its inputs."""
    outputs = [name for name in ports if name in ("Y", "Q", "RD_DATA")]
    if kind == MEMORY:
        yield from through_memory(ports)
        return
    for output in outputs:
        for name, has in ports.items():
            if name in ("Y", "Q", "CLK"):
                continue
            straight = (kind in _BITWISE and name in "AB") or name == "D"
            if straight and len(has) == len(ports[output]):
                yield from zip(has, ports[output], strict=True)
            elif kind == "$pmux" and name == "B":
                width = len(ports[output])
                yield from ((bit, ports[output][n % width]) for n, bit in enumerate(has))
            elif kind == "$pmux" and name == "A":
                yield from zip(has, ports[output], strict=True)
            else:
                yield from ((bit, each) for bit in has for each in ports[output])


def optional_places(text: str, ram: str, seed: int = 1) -> dict[str, list[Place]]:
    """Return the places by stage.

    Args:
        text: The flat netlist of an engine with all options.
        ram: The Verilog of its memories, which the netlist names as `ram.v`.
        seed: Of which other bit of a port is mixed into one.
    """
    choose = random.Random(seed)
    bits = CellBits(text)
    carried = port_bits(text, bits)
    before, mark, _ = ram.partition(f"module {_REGISTERED}")
    assert mark, "no memory with an output register"
    registers_from = before.count("\n")
    stages: dict[str, list[Place]] = defaultdict(list)
    for cell in CELL.finditer(text):
        found = SOURCES.search(cell["attributes"])
        sources = tuple(found[1].split("|")) if found else ()
        ours = any(
            "/".join(source.rsplit("/", 1)[-1:]) in option_lines()
            if ".py:" in source
            else source.startswith("ram.v:")
            and int(re.split(r"[:.]", source)[2]) > registers_from
            and "dff" in cell["kind"]
            for source in sources
        )
        ports = bits.ports(cell["name"].removeprefix("\\"))
        for port, has in ports.items():
            for n, bit in enumerate(has):
                if not ours and bit not in carried:
                    continue
                wire, _, at = bit.partition(" ")
                others = [other for other in range(len(has)) if other != n]
                stages[stage_of(cell["name"].removeprefix("\\"), cell["body"])].append(
                    Place(
                        name=cell["name"],
                        port=f"\\{port}",
                        bit=n,
                        other=choose.choice(others) if others else None,
                        wire=wire if at and wire.startswith("\\") else "",
                        wire_bit=int(at or 0),
                        sources=sources,
                    )
                )
    return dict(stages)
