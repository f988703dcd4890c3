"""A flat netlist, as Yosys writes it with `write_json`."""

import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["SOURCE_LINES", "Cell", "Netlist", "Scope"]

SOURCE_LINES = re.compile(r"([^|]+?):(\d+)\.\d+-(\d+)\.\d+")
"""A place in a source file: file, first and last line."""

Bit = int
"""Number of a net. Constants are not nets: they are left out of all lists here."""


@dataclass(frozen=True)
class Cell:
    """One primitive.

    Attributes:
        name: Its name, with the path of instances before the last dot if the tool kept one.
        type: Primitive, such as `LUT6`.
        inputs, outputs: For each port its nets by index; `None` is a constant or open.
        source: Places in source files that it comes from, as `file:line.column-…`, with `|`
            between them; empty if the tool kept none.
    """

    name: str
    type: str
    inputs: dict[str, tuple[Bit | None, ...]]
    outputs: dict[str, tuple[Bit | None, ...]]
    source: str = ""


@dataclass(frozen=True)
class Scope:
    """An instance of the source that has been flattened away.

    Attributes:
        path: Names of the instances that lead to it, with dots between.
        module: Name of its module; with parameters, as Yosys makes it.
        file, first, last: The lines of its module.
    """

    path: str
    module: str
    file: str
    first: int
    last: int


@dataclass(frozen=True)
class Netlist:
    """One module.

    Attributes:
        cells: All primitives.
        scopes: The instances of the source.
        names: For each net its names in the source, with the path of instances, the shortest first.
        inputs, outputs: For each port of the module its nets.
    """

    cells: tuple[Cell, ...]
    scopes: tuple[Scope, ...]
    names: dict[Bit, tuple[str, ...]]
    inputs: dict[str, tuple[Bit | None, ...]]
    outputs: dict[str, tuple[Bit | None, ...]]

    @classmethod
    def load(cls, path: Path, module: str) -> "Netlist":
        """Read `module` from a file.

        Raises:
            ValueError: If the file has no such module.
        """
        return cls.parse(json.loads(path.read_text()), module)

    @classmethod
    def parse(cls, document: dict[str, Any], module: str) -> "Netlist":
        """Take `module` out of a document that has been read.

        Raises:
            ValueError: If there is no such module.
        """
        modules = document["modules"]
        if module not in modules:
            raise ValueError(f"no module {module} in the netlist")
        content = modules[module]
        cells, scopes = [], []
        for name, cell in content["cells"].items():
            attributes = cell["attributes"]
            if cell["type"] == "$scopeinfo":
                if place := SOURCE_LINES.match(attributes.get("module_src", "")):
                    lines = int(place[2]), int(place[3])
                    scopes.append(Scope(name, attributes["module"], place[1], *lines))
                continue
            sides: dict[str, dict[str, tuple[Bit | None, ...]]] = {"input": {}, "output": {}}
            for port, bits in cell["connections"].items():
                direction = cell["port_directions"][port]
                if direction not in sides:
                    raise ValueError(f"port {port} of {name} is neither input nor output")
                sides[direction][port] = _nets(bits)
            cells.append(
                Cell(name, cell["type"], sides["input"], sides["output"], attributes.get("src", ""))
            )
        names: dict[Bit, list[str]] = {}
        for name, net in content["netnames"].items():
            if net.get("hide_name"):
                continue
            for index, bit in enumerate(_nets(net["bits"])):
                if bit is not None:
                    suffix = f"[{index}]" if len(net["bits"]) > 1 else ""
                    names.setdefault(bit, []).append(f"{name}{suffix}")
        ports = content["ports"]
        return cls(
            cells=tuple(cells),
            scopes=tuple(scopes),
            names={
                bit: tuple(sorted(found, key=lambda name: (name.count("."), len(name), name)))
                for bit, found in names.items()
            },
            inputs={n: _nets(p["bits"]) for n, p in ports.items() if p["direction"] == "input"},
            outputs={n: _nets(p["bits"]) for n, p in ports.items() if p["direction"] == "output"},
        )

    def count(self) -> Counter[str]:
        """Return how many cells there are of each type."""
        return Counter(cell.type for cell in self.cells)


def _nets(bits: list[int | str]) -> tuple[Bit | None, ...]:
    return tuple(bit if isinstance(bit, int) else None for bit in bits)
