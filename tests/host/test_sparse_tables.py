"""The documents' tables of placement and of indices are true, and so are bounds."""

import numpy as np
import pytest

from benchmarks.report.drawn_rows import ELEMENTS, PATTERNS, ZEN, random_rows, zipf_rows
from benchmarks.rows.__main__ import DENSITIES, TABLES, format_sizes, render
from benchmarks.rows.formats import ENCODED, FORMULAS, rice_decoded, rice_encoded
from benchmarks.rows.placement import Grid, balance, contiguous_share
from tests.support.checkout import ROOT

ROWS = ELEMENTS // 512
SHUFFLED = "grid, shuffled union"


def test_tables_are_up_to_date():
    pages = sorted((ROOT / "docs" / "schemes").glob("*.md"))
    texts = [page.read_text(encoding="utf-8") for page in pages]
    for name in TABLES:
        assert any(f"<!-- rows: {name} -->" in text for text in texts), f"no page has {name}"
    for page, text in zip(pages, texts, strict=True):
        assert render(text) == text, f"{page.name}: python -m benchmarks.rows docs/schemes"


@pytest.mark.parametrize("grid", [Grid(4), Grid(8, lanes=16), Grid(4, slots=512, lanes=16)])
@pytest.mark.parametrize("density", ZEN.values())
def test_a_shuffled_union_loads_all_parts_evenly(density, grid):
    for name, draw in PATTERNS.items():
        of_ranks = [draw(ROWS, density, rank) for rank in range(grid.shards)]
        found = balance(SHUFFLED, of_ranks, ROWS, 512, grid)
        assert max(found.offers, found.results, found.ports) < 1.1, (name, found)


def test_without_a_hash_parts_are_loaded_unevenly():
    """The target would be reached without a shuffle, too, if rows were even."""
    grid = Grid(8, lanes=16)
    of_ranks = [zipf_rows(ROWS, ZEN["LSTM"], rank) for rank in range(8)]
    assert contiguous_share(of_ranks[0], ROWS, 8) > 0.6
    assert balance("partitions", of_ranks, ROWS, 512, grid).offers > 3
    assert balance("grid, union", of_ranks, ROWS, 512, grid).offers > 1.3


@pytest.mark.parametrize("form", ENCODED)
def test_lists_have_the_bytes_that_the_formulas_say(form):
    rows = 20_000
    for draw in (random_rows, zipf_rows):
        for density in DENSITIES:
            numbers = draw(rows, density, 1)
            low, high = FORMULAS[form](len(numbers), rows)
            assert low <= ENCODED[form](numbers, rows) <= high


def test_rice_codes_are_read_as_written():
    rows = random_rows(5000, 0.05, 0)
    for parameter in (0, 1, 4, 9):
        bits = rice_encoded(rows, parameter)
        assert np.array_equal(rice_decoded(bits, len(rows), parameter), rows)


def test_lists_are_the_least_form_or_nearly():
    """No other form of the table is much smaller at any density up to four fifths."""
    for (_, density), sizes in format_sizes().items():
        others = [size for name, size in sizes.items() if name not in ("lists", "entropy")]
        if density <= 0.8:
            assert sizes["lists"] <= 1.2 * min(others)
