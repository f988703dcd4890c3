"""The documents name real files, and every module has its place in them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PATH = re.compile(r"`((?:hdl|sim|drivers|host|tests|docs|tools)/[\w./-]+)`")
LINK = re.compile(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)")


def test_every_file_that_is_named_exists() -> None:
    named = 0
    for document in DOCUMENTS:
        for name in PATH.findall(document.read_text()):
            named += 1
            assert (ROOT / name).exists(), f"{document.name} names {name}"
    assert named > 20


def test_every_link_leads_somewhere() -> None:
    for document in DOCUMENTS:
        for target in LINK.findall(document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_the_architecture_shows_every_stage_of_the_engine() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    engine = (ROOT / "hdl/afflux_hdl/engine/engine.py").read_text()
    stages = re.findall(r"^from afflux_hdl\.(\w+) import", engine, re.MULTILINE)
    assert len(stages) > 8
    # Layouts, parameters and counters are what the stages are made of, not stages.
    for stage in set(stages) - {"layouts", "parameters", "counters"}:
        assert f"{stage}.py" in text, f"docs/architecture.md does not show {stage}.py"
