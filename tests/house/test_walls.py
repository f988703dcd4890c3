"""Walls between the rooms of the house: the allowed imports, and that documents show all of it.

`docs/architecture.md` lists all rooms from the bottom up. That list is the rule: an import that
does not lead down fails here, and so does a room that is not listed.
"""

import re
from collections.abc import Iterable, Mapping

import pytest

from docs.generate import rooms
from docs.generate.source_tree import (
    NATIVE,
    ROOT,
    Module,
    arrows,
    native_modules,
    python_modules,
)

ARCHITECTURE = ROOT / "docs" / "architecture.md"
MODULES = ROOT / "docs" / "modules.md"
PRODUCT = ("afflux_hdl", "afflux_drivers", "afflux_sim", "afflux")
FLOOR = re.compile(r"^\d+\. (.+(?:\n   .+)*)", re.MULTILINE)

# Of the tests: a room imports only from rooms that stand before it here, or from itself.
TEST_FLOORS = (
    ("tests.support", "tests.models"),
    ("tests.scenarios",),
    (
        "tests.chaos",
        "tests.explorer",
        "tests.checks",
        "tests.conformance",
        "tests.formal",
        "tests.fuzz",
        "tests.testbench",
    ),
    ("tests.compat", "tests.gpu", "tests.nightly", "tests.wheels"),
    ("tests.mutation",),
    ("tests.coverage", "tests.second_simulator"),
    ("tests.hdl", "tests.drivers", "tests.sim", "tests.host", "tests.house", "tests.nccl", "tests"),
)

Arrow = tuple[str, str]


def top(name: str) -> str:
    return name.partition(".")[0]


def floors_in(text: str) -> dict[str, int]:
    """Read the floor of each room from the list between the markers."""
    listed = text.partition("<!-- floors -->")[2].partition("<!-- end -->")[0]
    floors = FLOOR.findall(listed)
    rooms = [(room, n) for n, each in enumerate(floors) for room in re.findall(r"`([\w.]+)`", each)]
    assert len(dict(rooms)) == len(rooms), "a room stands twice"
    return dict(rooms)


def not_down(floors: Mapping[str, int], drawn: Mapping[Arrow, list[str]]) -> list[str]:
    """List imports that do not lead from a room that is listed to one on a lower floor."""
    return [
        each
        for (start, end), imports in drawn.items()
        if floors.get(start, -1) <= floors.get(end, len(floors))
        for each in imports
    ]


def drawn() -> dict[Arrow, list[str]]:
    """Read the arrows of the product: Python's four packages, and the C++."""
    python = {
        (start, end): imports
        for (start, end), imports in arrows(python_modules()).items()
        if top(start) in PRODUCT
    }
    return python | arrows({k: v for k, v in native_modules().items() if v.room != TESTS_OF_CPP})


TESTS_OF_CPP = f"{NATIVE}.tests"


def circle(pairs: Iterable[Arrow]) -> list[str]:
    """Find rooms that lead back to themselves, in order; empty if there are none."""
    following: dict[str, set[str]] = {}
    for start, end in pairs:
        following.setdefault(start, set()).add(end)
    done: set[str] = set()

    def visit(room: str, way: list[str]) -> list[str]:
        if room in way:
            return way[way.index(room) :]
        if room in done:
            return []
        for end in sorted(following.get(room, ())):
            if found := visit(end, [*way, room]):
                return found
        done.add(room)
        return []

    return next((found for room in sorted(following) if (found := visit(room, []))), [])


def floor_of(room: str) -> int:
    """Return the floor of a room of the tests; -1 for what is tested."""
    for number, names in enumerate(TEST_FLOORS):
        if any(room == name or room.startswith(f"{name}.") for name in names if name != "tests"):
            return number
    return len(TEST_FLOORS) - 1 if top(room) == "tests" else -1


def upward_among_tests(modules: Mapping[str, Module]) -> list[str]:
    """List imports among the tests that lead to a room that does not stand below."""
    return [
        f"{module.name} imports {name}"
        for module in modules.values()
        if top(module.name) == "tests"
        for name in sorted(module.imports)
        if (end := modules[name].room if name in modules else name) != module.room
        and not end.startswith(f"{module.room}.")
        and not module.room.startswith(f"{end}.")
        and floor_of(end) >= floor_of(module.room)
    ]


def imported_tests(modules: Mapping[str, Module]) -> list[str]:
    """List imports of test modules: what two of them need belongs to the support."""
    return [
        f"{module.name} imports {name}"
        for module in modules.values()
        for name in sorted(module.imports)
        if name.rpartition(".")[2].startswith(("test_", "conftest"))
    ]


def test_imports_lead_down_the_list_of_rooms():
    assert not_down(floors_in(ARCHITECTURE.read_text()), drawn()) == []


def test_every_listed_room_exists():
    rooms = {each.room for each in [*python_modules().values(), *native_modules().values()]}
    assert floors_in(ARCHITECTURE.read_text()).keys() - rooms == set()


def test_the_lists_of_modules_are_up_to_date():
    text = MODULES.read_text()
    assert rooms.render(text) == text, "run: make docs"


def test_every_module_is_named():
    """Also those that no list of rooms shows, if there were any."""
    text = MODULES.read_text()
    modules = {**python_modules(), **native_modules()}
    unnamed = [
        str(module.path)
        for module in modules.values()
        if not module.path.name.startswith(("__init__", "test_", "conftest"))
        and f"`{module.path.name}`" not in text
    ]
    assert unnamed == []


def test_every_module_says_what_it_is():
    headers = {name: each for name, each in native_modules().items() if name.endswith(".hpp")}
    modules = {**python_modules(), **headers}
    silent = [name for name, each in modules.items() if not each.about]
    assert [name for name in silent if "test_" not in name] == []


def test_the_product_needs_neither_benchmarks_nor_documents_nor_tests():
    beyond = [pair for pair in drawn() if top(pair[1]) in ("benchmarks", "docs", "tests")]
    assert beyond == []


def test_benchmarks_share_only_their_report():
    among = {
        (start, end)
        for start, end in arrows(python_modules())
        if top(start) == top(end) == "benchmarks"
    }
    assert {end for _, end in among} == {"benchmarks.report"}


def test_imports_among_tests_lead_to_their_support():
    assert upward_among_tests(python_modules()) == []
    assert imported_tests(python_modules()) == []


def test_modules_of_tests_are_in_no_circle():
    pairs = [
        (module.name, name)
        for module in python_modules().values()
        if top(module.name) == "tests"
        for name in module.imports
        if top(name) == "tests"
    ]
    assert circle(pairs) == []


# The checks themselves must be able to fail.


def planted(name: str, room: str, *imports: str) -> Module:
    return Module(name, ROOT, room, "", frozenset(imports))


def test_sees_a_circle():
    assert circle([("a", "b"), ("b", "c"), ("c", "b")]) == ["b", "c"]
    assert circle([("a", "b"), ("a", "c"), ("b", "c")]) == []


@pytest.mark.parametrize(
    ("room", "name", "wrong"),
    [
        ("tests.support.host", "tests.scenarios.cases", True),
        ("tests.fuzz", "tests.checks.engine_checks", True),
        ("tests.scenarios", "tests.support.host.ranks", False),
        ("tests.support.host", "tests.support.checkout", False),
        ("tests.mutation", "tests.fuzz.fuzzer", False),
        ("tests.host", "tests.drivers.virtual_job", True),
    ],
)
def test_sees_an_import_that_leads_up(room: str, name: str, wrong: bool):
    module = planted(f"{room}.new", room, name)
    there = planted(name, name.rpartition(".")[0])
    assert bool(upward_among_tests({module.name: module, name: there})) is wrong


def test_sees_a_test_that_is_imported():
    module = planted("tests.host.test_a", "tests.host", "tests.host.test_b")
    assert imported_tests({module.name: module}) == ["tests.host.test_a imports tests.host.test_b"]


def test_sees_an_import_that_leads_sideways_up_or_beyond_the_list():
    lines = ["<!-- floors -->", "1. `a.b`, `c`", "2. `d`,", "   `e`", "<!-- end -->"]
    floors = floors_in("\n".join(lines))
    assert floors == {"a.b": 0, "c": 0, "d": 1, "e": 1}
    for start, end, wrong in [
        ("d", "c", False), ("c", "d", True), ("d", "e", True), ("d", "f", True), ("f", "c", True),
    ]:  # fmt: skip
        assert bool(not_down(floors, {(start, end): ["an import"]})) is wrong
