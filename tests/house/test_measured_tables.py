"""The tables of what was placed and synthesised are those of their records."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from docs.generate import measured_tables as tables
from tests.support.checkout import ROOT

PAGES = pytest.mark.parametrize(
    ("record", "render"),
    [
        (tables.BOARDS_RECORD, tables.render_boards),
        (tables.COST_RECORD, tables.render_cost),
    ],
    ids=["boards", "cost"],
)


@PAGES
def test_a_page_has_the_tables_of_its_record(record: str, render: Callable[..., str]) -> None:
    path = ROOT / "docs" / record
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    page = path.with_suffix(".md").read_text(encoding="utf-8")
    assert render(page, found) == page, "make docs writes it again"
    # Another gateware, or another figure, is another page.
    for part in found.values():
        if isinstance(part, dict) and "gateware" in part:
            part["gateware"] = "0123456789ab"
    assert "`0123456789ab`" in render(page, found)


def test_a_page_without_a_place_for_its_table_is_an_error() -> None:
    with pytest.raises(ValueError, match="there are 0 places <!-- figures -->, not one"):
        tables.render_boards("# Boards\n", {})
