"""Imports between the four packages point down only, and some modules import almost nothing.

Read from the sources, not by importing: imports inside functions and type-checking blocks count.
"""

import ast
import re
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]

# Lowest floor first; a package may import itself and what stands before it.
ROOTS = {
    "afflux_hdl": "hdl",
    "afflux_drivers": "drivers",
    "afflux_sim": "sim",
    "afflux": "host",
}
FLOORS = list(ROOTS)


def top_name(module: str) -> str:
    return module.partition(".")[0]


def imported_names(source: str, package: str) -> set[str]:
    """Absolute dotted names that `source`, a module of `package`, imports.

    `from a import b` gives `a` and `a.b`, as b may be a module or not.
    """
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # One leading dot is `package`, each further one its parent.
            parents = package.split(".")
            above = parents[: len(parents) - node.level + 1] if node.level else []
            base = ".".join([*above, node.module] if node.module else above)
            names.add(base)
            names.update(f"{base}.{alias.name}" for alias in node.names)
    return names


def read_packages() -> dict[str, set[str]]:
    """Every module of the four packages, with what it imports."""
    imports = {}
    for top, root in ROOTS.items():
        for path in sorted((REPO / root / top).rglob("*.py")):
            parts = path.relative_to(REPO / root).with_suffix("").parts
            package = ".".join(parts[:-1])
            module = package if parts[-1] == "__init__" else ".".join(parts)
            imports[module] = imported_names(path.read_text(encoding="utf-8"), package)
    return imports


def upward_imports(imports: dict[str, set[str]]) -> list[str]:
    return [
        f"{module} imports {name}"
        for module, names in imports.items()
        for name in sorted(names)
        if top_name(name) in ROOTS and FLOORS.index(top_name(name)) > FLOORS.index(top_name(module))
    ]


def reachable(start: str, imports: dict[str, set[str]]) -> dict[str, str]:
    """Every name that importing `start` may import in the end, with the module that names it.

    Importing a.b.c also runs a and a.b, so their imports are among these.
    """
    found = {start: start}
    todo = [start]
    while todo:
        module = todo.pop()
        parents = {module.rpartition(".")[0]} - {""}
        for name in imports.get(module, set()) | parents:
            if name not in found:
                found[name] = module
                todo.append(name)
    return found


def forbidden_imports(start: str, forbidden: set[str], imports: dict[str, set[str]]) -> list[str]:
    return [
        f"{start} reaches {name} through {by}"
        for name, by in sorted(reachable(start, imports).items())
        if top_name(name) in forbidden
    ]


def foreign_golden_imports(imports: dict[str, set[str]]) -> list[str]:
    """Return what golden modules import beyond numpy, the standard library and one another."""
    return [
        f"{module} imports {name}"
        for module, names in imports.items()
        if f"{module}.".startswith("afflux_sim.golden.")
        for name in sorted(names)
        if top_name(name) not in sys.stdlib_module_names | {"numpy"}
        and not f"{name}.".startswith("afflux_sim.golden.")
    ]


@pytest.fixture(scope="module")
def imports() -> dict[str, set[str]]:
    return read_packages()


def test_every_package_is_read(imports):
    assert {top_name(module) for module in imports} == set(ROOTS)


def test_imports_point_down(imports):
    assert upward_imports(imports) == []


@pytest.mark.parametrize("module", ["afflux_hdl.contract.wire", "afflux_hdl.contract.registers"])
def test_contract_is_plain_python(module, imports):
    assert module in imports
    assert forbidden_imports(module, {"amaranth", "torch", "numpy"}, imports) == []


def test_drivers_need_neither_torch_nor_amaranth(imports):
    modules = [module for module in imports if top_name(module) == "afflux_drivers"]
    found = [forbidden_imports(module, {"amaranth", "torch"}, imports) for module in modules]
    assert [line for lines in found for line in lines] == []


def test_golden_model_stands_alone(imports):
    assert any(f"{module}.".startswith("afflux_sim.golden.") for module in imports)
    assert foreign_golden_imports(imports) == []


# The checks themselves must be able to fail.


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import a.b as c", {"a.b"}),
        ("from a import b", {"a", "a.b"}),
        ("from . import x", {"p.q", "p.q.x"}),
        ("from ..r import x", {"p.r", "p.r.x"}),
        ("def f():\n    import torch", {"torch"}),
    ],
)
def test_reads_every_form_of_import(source, expected):
    assert imported_names(source, "p.q") == expected


def test_sees_an_upward_import():
    assert upward_imports(
        {"afflux_drivers.worker.worker": {"afflux_sim.engine", "afflux_hdl.contract.wire"}}
    ) == ["afflux_drivers.worker.worker imports afflux_sim.engine"]


def test_sees_a_forbidden_import_through_the_package_and_other_modules():
    planted = {
        "afflux_hdl": {"afflux_hdl.engine.engine"},
        "afflux_hdl.engine.engine": {"amaranth.lib"},
        "afflux_hdl.contract.wire": set(),
    }
    assert (
        forbidden_imports("afflux_hdl.contract.wire", {"amaranth"}, planted)
        == [
            "afflux_hdl.contract.wire reaches amaranth.lib through afflux_hdl.engine.engine",
            # The parent of a dotted name is imported too.
            "afflux_hdl.contract.wire reaches amaranth through amaranth.lib",
        ][::-1]
    )


def test_sees_a_golden_model_that_leans_on_the_contract():
    planted = {
        "afflux_sim.golden.engine": {"numpy", "afflux_sim.golden.frames", "afflux_hdl.contract"},
        "afflux_sim.golden.frames": {"struct", "afflux_sim.golden", "afflux_sim.rtl"},
        "afflux_sim.golden_frames": {"afflux_hdl.contract"},
    }
    assert foreign_golden_imports(planted) == [
        "afflux_sim.golden.engine imports afflux_hdl.contract",
        "afflux_sim.golden.frames imports afflux_sim.rtl",
    ]


# NCCL opens the plugin by itself, so nobody could hand it settings; it reads them in this file.
READS_THE_ENVIRONMENT = {"drivers/native/nccl/environment.cpp"}
ENVIRONMENT = re.compile(r"\bos\.environ\b|\bgetenv\(")


def test_drivers_read_no_environment():
    """Settings come from above, in arguments, so that a test can have several at once."""
    sources = [
        path
        for path in sorted((REPO / "drivers").rglob("*"))
        if path.suffix in (".py", ".cpp", ".hpp") and "tests" not in path.parts
    ]
    found = {
        path.relative_to(REPO).as_posix()
        for path in sources
        if ENVIRONMENT.search(path.read_text(encoding="utf-8"))
    }
    assert found == READS_THE_ENVIRONMENT
