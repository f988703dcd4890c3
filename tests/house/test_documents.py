"""The documents name real files and commands, and show every stage of the engine."""

import re
from pathlib import Path

from docs.generate.source_tree import ROOT, python_modules

DOCUMENTS = [
    *sorted(ROOT.glob("*.md")),
    ROOT / "examples" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
ENGINE_PAGE = "engine/index.html"
FOLDERS = "(?:hdl|sim|drivers|host|benchmarks|examples|tests|docs|tools)"
PATH = re.compile(rf"`({FOLDERS}/[\w./-]+)`")
FILE = re.compile(rf"`({FOLDERS}/[\w./-]+\.\w+)`")
COMMAND = re.compile(r"python(?:3)? -m ((?:afflux|benchmarks|docs|tests)[\w.]*)")
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
LISTING = re.compile(r"```.*?```", re.DOTALL)
SOURCES = {".py", ".cpp", ".hpp", ".v"}


def test_every_file_that_is_named_exists() -> None:
    named = 0
    for document in DOCUMENTS:
        for name in PATH.findall(document.read_text()):
            named += 1
            assert (ROOT / name).exists(), f"{document.name} names {name}"
    assert named > 20


def test_every_file_that_sources_name_exists() -> None:
    named = 0
    for folder in ("hdl", "drivers", "sim", "host", "tests", "benchmarks", "tools"):
        for source in (ROOT / folder).rglob("*"):
            if source.suffix in SOURCES and source.is_file():
                for name in FILE.findall(source.read_text(encoding="utf-8")):
                    named += 1
                    assert (ROOT / name).exists(), f"{source.relative_to(ROOT)} names {name}"
    assert named > 100


def test_every_module_that_is_run_exists() -> None:
    named = {name for document in DOCUMENTS for name in COMMAND.findall(document.read_text())}
    runnable = {name.removesuffix(".__main__") for name in python_modules()}
    assert len(named) > 5
    assert {name.rstrip(".") for name in named} - runnable == set()


def test_every_link_leads_somewhere() -> None:
    for document in DOCUMENTS:
        for target, anchor in LINK.findall(document.read_text()):
            page = document.parent / target if target else document
            # The simulation makes that one page for the site.
            assert page.exists() or target == ENGINE_PAGE, f"{document.name} links to {target}"
            if anchor:
                assert anchor in anchors_of(page), f"{document.name} links to {target}#{anchor}"


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in HEADING.findall(LISTING.sub("", page.read_text()))
    }


def test_the_architecture_shows_every_stage_of_the_engine() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    engine = (ROOT / "hdl/afflux_hdl/engine/engine.py").read_text()
    stages = re.findall(r"^from afflux_hdl\.engine\.(\w+) import", engine, re.MULTILINE)
    assert len(stages) > 8
    # Layouts, parameters and counters are what the stages are made of, not stages.
    for stage in set(stages) - {"layouts", "parameters", "counters"}:
        assert f"{stage}.py" in text, f"docs/architecture.md does not show {stage}.py"
