"""`python -m benchmarks.rows.deep_reduce`: DeepReduce's two codecs beside the forms here.

H. Xu et al., "DeepReduce: A Sparse-tensor Communication Framework for Federated Deep Learning",
NeurIPS 2021. Its index codec is a Bloom filter with policy P0: values for all that the filter
takes for present, so that nothing is wrong. Its value codec fits polynomials to the sorted values,
and sends where each was. Both are counted on random numbers, without a network.
"""

import argparse
import math
import sys
from collections.abc import Sequence

import numpy as np

from afflux_drivers.narrow import NarrowForm
from afflux_drivers.rows import list_words

__all__ = ["bloom_positives", "bloom_words", "fit_polynomials", "main"]

_SEED = 3
_WORD_BYTES = 4
_VALUE_BITS = 32
_DEGREE = 5
_LEAST_SEGMENT = 16
_MIX = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9)
_HALF = np.uint64(32)


def bloom_words(present: int, rate: float) -> tuple[int, int]:
    """Return the words of a filter, and how many hashes it has.

    Args:
        present: Elements in it.
        rate: Share of the others that it takes for present, about.
    """
    bits = math.ceil(math.log2(1 / rate) * present / math.log(2))
    return -(-bits // _VALUE_BITS), max(1, math.ceil(math.log2(1 / rate)))


def _hashed(places: np.ndarray, number: int, bits: int) -> np.ndarray:
    mixed = (places.astype(np.uint64) + np.uint64(number * 0x1234567)) * np.uint64(_MIX[0])
    mixed = (mixed ^ (mixed >> _HALF)) * np.uint64(_MIX[1])
    return ((mixed >> _HALF) * np.uint64(bits)) >> _HALF


def bloom_positives(places: np.ndarray, elements: int, rate: float) -> tuple[int, np.ndarray]:
    """Return the words of the filter, and all places that it takes for present."""
    words, hashes = bloom_words(len(places), rate)
    bits = words * _VALUE_BITS
    filled = np.zeros(bits, np.bool_)
    for number in range(hashes):
        filled[_hashed(places, number, bits)] = True
    left = np.arange(elements)
    for number in range(hashes):
        left = left[filled[_hashed(left, number, bits)]]
    return words, left


def fit_polynomials(values: np.ndarray) -> tuple[int, np.ndarray]:
    """Return the bytes of the fit, the map of the places included, and the values that come back.

    Segments of the sorted values double in length, from the largest magnitudes of either sign.
    """
    order = np.argsort(-values, kind="stable")
    ranked = values[order].astype(np.float64)
    fitted = np.empty_like(ranked)
    positive = int((ranked >= 0).sum())
    coefficients = 0
    for part in (np.arange(positive), np.arange(len(ranked) - 1, positive - 1, -1)):
        first, size = 0, _LEAST_SEGMENT
        while first < len(part):
            segment = part[first : first + size]
            degree = min(_DEGREE, len(segment) - 1)
            at = np.linspace(-1, 1, len(segment)) if len(segment) > 1 else np.zeros(1)
            found = np.polynomial.polynomial.polyfit(at, ranked[segment], degree)
            fitted[segment] = np.polynomial.polynomial.polyval(at, found.astype(np.float32))
            coefficients += degree + 1
            first, size = first + size, 2 * size
    back = np.empty_like(values)
    back[order] = fitted
    map_bits = len(values) * math.ceil(math.log2(max(2, len(values))))
    return _WORD_BYTES * (coefficients + 1) + -(-map_bits // 8), back


def _fixed_point(values: np.ndarray, bits: int) -> tuple[int, np.ndarray]:
    form = NarrowForm.of(bits, 4)
    left, average = values.copy(), np.empty_like(values)
    magnitudes = form.magnitudes(values)
    words = np.empty(form.words(len(values)), np.int32)
    form.pack(values, magnitudes, words)
    form.unpack(words, magnitudes, left, average)
    return words.nbytes + magnitudes.nbytes, values - left


def _index_table(elements: int, densities: Sequence[float]) -> str:
    lines = [
        "| density | list of numbers | bitmap | Bloom, paper's rate | Bloom, best rate | "
        "Afflux's lists | entropy |",
        "|---|---|---|---|---|---|---|",
    ]
    source = np.random.default_rng(_SEED)
    for density in densities:
        count = round(elements * density)
        places = np.sort(source.choice(elements, count, replace=False))

        def bloom(rate: float, places: np.ndarray = places, count: int = count) -> float:
            words, taken = bloom_positives(places, elements, rate)
            assert np.isin(places, taken).all()
            return (words * _VALUE_BITS + (len(taken) - count) * _VALUE_BITS) / count

        best = min(bloom(density * factor) for factor in (0.02, 0.04, 0.065, 0.1, 0.2, 0.5))
        entropy = -(
            density * math.log2(density) + (1 - density) * math.log2(1 - density)
        ) / density  # fmt: skip
        lists = list_words(count, elements) * _VALUE_BITS / count
        lines.append(
            f"| {density:.1%} | 32 | {1 / density:.1f} | {bloom(0.1 * density):.1f} | {best:.1f} "
            f"| {lists:.1f} | {entropy:.1f} |"
        )
    return "\n".join(lines)


def _value_table(counts: Sequence[int]) -> str:
    lines = [
        "| values | Fit-Poly, bits each | its error | int8, bits each | its error "
        "| int12, bits each | its error |",
        "|---|---|---|---|---|---|---|",
    ]
    for count in counts:
        # The largest hundredth of normal numbers, in the order of their places.
        drawn = np.random.default_rng(_SEED).standard_normal(100 * count).astype(np.float32)
        places = np.sort(np.argpartition(-np.abs(drawn), count)[:count])
        values = drawn[places]
        cells = []
        for size, back in (
            fit_polynomials(values),
            _fixed_point(values, 8),
            _fixed_point(values, 12),
        ):
            error = np.linalg.norm(back - values) / np.linalg.norm(values)
            cells.append(f"{8 * size / count:.1f} | {error:.2%}")
        lines.append(f"| {count:,} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rows.deep_reduce")
    parser.add_argument("--elements", type=int, default=1 << 20)
    given = parser.parse_args(argv)
    print("Bits for each element that is present: its place, and values sent for others:\n")
    print(_index_table(given.elements, (0.001, 0.003, 0.01, 0.03, 0.1)))
    print("\nValues of the largest hundredth of normal numbers, error relative to their norm:\n")
    print(_value_table((369, 2_000, 20_000, 200_000)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
