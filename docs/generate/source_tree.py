"""The sources' own structure: their rooms, their first sentences, and the imports between them.

A room is a folder of modules. Read from the text, not by importing: imports inside functions and
type-checking blocks count.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

__all__ = ["NATIVE", "PACKAGES", "ROOT", "Module", "arrows", "native_modules", "python_modules"]

ROOT = Path(__file__).resolve().parents[2]

PACKAGES = {
    "afflux_hdl": "hdl",
    "afflux_drivers": "drivers",
    "afflux_sim": "sim",
    "afflux": "host",
    "benchmarks": ".",
    "docs": ".",
    "tests": ".",
}
"""Import packages, and where each begins."""

NATIVE = "native"
"""Names of the rooms of the C++: `native.arithmetic` is the folder drivers/native/arithmetic."""

_INCLUDE = re.compile(r'^#include "([\w/]+\.hpp)"', re.MULTILINE)


@dataclass(frozen=True)
class Module:
    """One source file.

    Attributes:
        name: Dotted; of a package's `__init__` the package's.
        path: From the root of the checkout.
        room: The folder, dotted. A package's top `__main__` is a room of its own: it stands above
            the commands, as the package stands below them.
        about: Its first sentence.
        imports: Names of the modules, and packages, that it imports.
    """

    name: str
    path: Path
    room: str
    about: str
    imports: frozenset[str] = field(default_factory=frozenset)


@cache
def python_modules() -> dict[str, Module]:
    """Return all modules of the packages, by name."""
    paths = dict(_python_paths())
    known = set(paths) | {name.rpartition(".")[0] for name in paths}
    modules = {}
    for name, path in paths.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        is_room = path.name == "__init__.py" or name in (f"{top}.__main__" for top in PACKAGES)
        modules[name] = Module(
            name,
            path.relative_to(ROOT),
            name if is_room else name.rpartition(".")[0],
            " ".join((ast.get_docstring(tree) or "").partition("\n\n")[0].split()),
            frozenset(_imported(tree, known)),
        )
    return modules


def _python_paths() -> Iterator[tuple[str, Path]]:
    for top, root in PACKAGES.items():
        for path in sorted((ROOT / root / top).rglob("*.py")):
            parts = path.relative_to(ROOT / root).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def _imported(tree: ast.AST, known: set[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                if whole in known or node.module in known:
                    yield whole if whole in known else node.module


@cache
def native_modules() -> dict[str, Module]:
    """Return all headers and sources of the C++, by their path below drivers/native."""
    folder = ROOT / "drivers" / "native"
    modules = {}
    for path in sorted(folder.rglob("*.[ch]pp")):
        text = path.read_text(encoding="utf-8")
        inner = path.relative_to(folder)
        lead = " ".join(" ".join(_first_paragraph(text)).split())
        about = re.sub(r":$", ".", re.split(r"(?<=\.)\s", lead)[0])
        name = inner.as_posix()
        room = f"{NATIVE}.{inner.parts[0]}"
        modules[name] = Module(
            name, path.relative_to(ROOT), room, about, frozenset(_INCLUDE.findall(text))
        )
    return modules


def _first_paragraph(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if not line.startswith("// "):
            return
        yield line[3:]


def arrows(modules: dict[str, Module]) -> dict[tuple[str, str], list[str]]:
    """Return which rooms import from which others, and the imports that do so."""
    found: dict[tuple[str, str], list[str]] = {}
    for module in modules.values():
        for name in sorted(module.imports):
            room = modules[name].room if name in modules else name
            if room != module.room:
                found.setdefault((module.room, room), []).append(f"{module.name} imports {name}")
    return found
