"""Rows that ranks have, drawn by rules: synthetic, of published sizes and densities."""

import functools
import math
from collections.abc import Callable

import numpy as np

__all__ = ["ELEMENTS", "PATTERNS", "ZEN", "random_rows", "zipf_rows"]

ELEMENTS = 26_214_400
"""Of the tensors, as OmniReduce has them."""

ZEN = {"LSTM": 0.0113, "NMT": 0.0247, "DeepFM": 0.0280}
"""Densities of the embeddings' gradients, by model (Z. Wang et al., OSDI 2025)."""

Draw = Callable[[int, float, int], np.ndarray]
"""Rows of the tensor, density and rank to ascending row numbers."""


def zipf_rows(rows: int, density: float, rank: int, exponent: float = 1.1) -> np.ndarray:
    """Return the rows of a rank's batch whose words follow Zipf's law, most frequent first.

    Row i is drawn with a probability that falls with i ** -exponent, as often as it takes for the
    rank to have the density's share of rows on average.

    Args:
        rows: Of the tensor.
        density: Share of them that a rank has.
        rank: Ranks draw independently.
        exponent: Of Zipf's law.
    """
    source = np.random.default_rng([rank, rows])
    return np.flatnonzero(source.random(rows) < _met(rows, density, exponent))


@functools.lru_cache(maxsize=8)
def _met(rows: int, density: float, exponent: float) -> np.ndarray:
    """Return with what probability each row is met in a batch of the right size."""
    frequency = np.arange(1, rows + 1, dtype=np.float64) ** -exponent
    low, high = 1.0, 1e12
    while high / low > 1 + 1e-6:
        draws = math.sqrt(low * high)
        few = -np.expm1(-draws * frequency).sum() < density * rows
        low, high = (draws, high) if few else (low, draws)
    return -np.expm1(-high * frequency)


def random_rows(rows: int, density: float, rank: int) -> np.ndarray:
    """Return rows at random places."""
    source = np.random.default_rng([rank, rows, 1])
    return np.flatnonzero(source.random(rows) < density)


def _renumbered(rows: int, density: float, rank: int) -> np.ndarray:
    """Return Zipf's rows where a row's number says nothing of its frequency."""
    order = np.random.default_rng(rows).permutation(rows)
    return np.sort(order[zipf_rows(rows, density, rank)])


def _multiples(factor: int) -> Draw:
    def draw(rows: int, density: float, rank: int) -> np.ndarray:
        among = rows // factor
        return factor * random_rows(among, min(1.0, density * factor), rank)

    return draw


def _runs(rows: int, density: float, rank: int) -> np.ndarray:
    """Return rows of which every fourth run of 20 is shared, and of the others each has a quarter.

    Runs of 20 rows of 512 elements are as long as what a shard has in a row of the default grid.
    """
    first = np.arange(min(rows, round(2 * density * rows)))
    return first[(first % 80 < 20) | (first % 4 == rank % 4)]


PATTERNS: dict[str, Draw] = {
    "Zipf, frequent first": zipf_rows,
    "Zipf, renumbered": _renumbered,
    "multiples of 640": _multiples(640),
    "shared runs": _runs,
}
"""Rows by rules, of which the last two are made to load parts unevenly."""
