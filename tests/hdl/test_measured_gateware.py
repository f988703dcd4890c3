"""Figures in the documents are of the gateware that the sources make, or are called earlier."""

import json
from typing import Any

import pytest

from afflux_hdl.boards.table import BOARDS
from docs.generate.measured_tables import BOARDS_RECORD, COST_RECORD, gateware_now
from tests.support.checkout import ROOT


def record() -> dict[str, Any]:
    """Return what both records have, by the name of a board's build or a part."""
    boards, cost = (
        json.loads((ROOT / "docs" / name).read_text()) for name in (BOARDS_RECORD, COST_RECORD)
    )
    return boards | {part: cost[part] for part in ("ultrascale", "ecp5")}


# The sources of one board change with every change of the others, but for their sizes.
@pytest.mark.parametrize(
    "name",
    [
        "colorlight-5a-75b",
        *(
            pytest.param(name, marks=pytest.mark.long)
            for name in sorted(record().keys() - {"colorlight-5a-75b"})
        ),
    ],
)
def test_figures_say_which_gateware_they_are_of(name: str) -> None:
    each = record()[name]
    differs = each["gateware"] != gateware_now(name)
    assert each["earlier"] == differs, (
        "the gateware is another one now: make docs marks its figures"
    )


def test_every_board_has_figures() -> None:
    assert record().keys() >= BOARDS.keys()
