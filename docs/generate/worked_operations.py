"""Worked examples of operations in one round trip, and of elements that are not finite."""

import numpy as np

from afflux_sim.golden.frames import parse_packet
from docs.generate.example_job import FIRST_ROUND, LANES, exchange, joined_job
from docs.generate.packet_text import show

__all__ = ["exact_mode", "maximum", "non_finite"]

_LIMB_BITS = 25
_EXACT_WORDS = 13


def _table(title: str, columns: dict[str, list[str]]) -> str:
    lines = [
        f"| {title} | {' | '.join(columns)} |",
        "|---" * (1 + len(columns)) + "|",
    ]
    for number, cells in enumerate(zip(*columns.values(), strict=True)):
        lines.append(f"| {number} | {' | '.join(cells)} |")
    return "\n".join(lines)


def exact_mode() -> list[str]:
    """Return the example of a sum in exact mode, in Markdown."""
    greatest = float(np.finfo(np.float32).max)
    tensors = [
        np.array([1.0, -2.5, greatest, np.inf], dtype=np.float32),
        np.array([2.0**-24 + 2.0**-40, 2.5, greatest, -1.0], dtype=np.float32),
    ]
    count = tensors[0].size
    assert _EXACT_WORDS * count <= (LANES - 1) * 64
    engine, workers = joined_job(tensors, "float32", "sum")
    frames, results = exchange(engine, workers)
    assert all(worker.done for worker in workers)
    sums = workers[0].result()
    expected = np.array([1 + 2.0**-23, 0.0, np.inf, np.inf], dtype=np.float32)
    assert sums.tobytes() == expected.tobytes() == workers[1].result().tobytes()
    assert 5 * _LIMB_BITS + 24 == 149
    return [
        "### 12.2 Exact mode",
        f"The same job; both workers sum a float32 tensor of {count} elements. 13·{count} = "
        f"{_EXACT_WORDS * count} words fit into F − 1 = {LANES - 1} lane, so the operation is "
        "direct: the opening round carries them in lane 1, and all look-ahead words are absent.",
        _table(
            "element",
            {
                "worker 0": ["1", "−2.5", "greatest float32", "+Inf"],
                "worker 1": ["2^−24 + 2^−40", "2.5", "greatest float32", "−1"],
                "result": ["1 + 2^−23", "+0", "+Inf", "+Inf"],
            },
        ),
        "Of lane 1 the words that are not 0 are shown, by element. 1.0 is the integer X = 2^149, "
        "and 149 = 5·25 + 24, so its limb 5 is 2^24 = 0x01000000. The limbs of a negative number "
        "are negative. Word 12 is the class count: 1 << 10 for +Inf, whose limbs are 0.",
        *(show(frame, _EXACT_WORDS) for frame in frames),
        "The result has the sums of the words. In element 0 they stand for 1 + 2^−24 + 2^−40, "
        "which is nearer to 1 + 2^−23 than to 1. The sum of element 2 is rounded to infinity. "
        "Element 3 is +Inf because its class count is.",
        show(results[0], _EXACT_WORDS),
    ]


def non_finite() -> list[str]:
    """Return the example of blocks with NaN and infinities, in Markdown."""
    pairs = [[(np.inf, 1.0), (np.nan, 0.0)], [(2.0, 0.5), (0.0, 0.0)]]
    tensors = [
        np.concatenate([np.tile(np.array(pair, dtype=np.float32), 32) for pair in worker])
        for worker in pairs
    ]
    engine, workers = joined_job(tensors, "float32", "sum")
    opening, opened = exchange(engine, workers)
    counting, counted = exchange(engine, workers)
    summing, summed = exchange(engine, workers)
    assert all(worker.done for worker in workers)
    result = workers[0].result()
    assert result[0] == np.inf and result[1] == 1.5 and np.isnan(result[64]) and result[65] == 0
    assert result.tobytes() == workers[1].result().tobytes()
    assert parse_packet(counting[0]).present == 3 and parse_packet(counting[1]).present == 0
    return [
        "### 12.3 NaN and infinities",
        "The same job; a float32 tensor of 128 elements, two blocks in row 0, too large for exact "
        "mode. Pairs of values repeat within a block:",
        "| block | lane | worker 0 | worker 1 | result |\n|---|---|---|---|---|\n"
        "| 0 | 0 | +Inf, 1, … | 2, 0.5, … | +Inf, 1.5, … |\n"
        "| 1 | 1 | NaN, 0, … | 0, 0, … | NaN, 0, … |",
        "**Opening round.** Both blocks of worker 0 have exponent 255, so the low byte of its "
        "words is 0. Worker 1 has exponent 128 in lane 0, and nothing in lane 1.",
        *map(show, opening),
        "Agreed are row 0 and exponent 255 in both lanes:",
        show(opened[0]),
        f"**Round {FIRST_ROUND + 1:#x}.** Worker 0 sends class counts: 1 << 10 for +Inf, 1 for "
        "NaN. In lane 0 it names row 0 again, with the exponent of its greatest finite magnitude, "
        "1.0: 127. In lane 1 it has no finite element but zeros, so it goes on, to nothing. Worker "
        "1 has no class counts: it sends no block and repeats its words.",
        *map(show, counting),
        "Agreed are row 0 and exponent 128 in lane 0; lane 1 is over.",
        show(counted[0]),
        f"**Round {FIRST_ROUND + 2:#x}.** Both workers send their finite elements, multiplied by "
        "2^28; for +Inf worker 0 sends 0.",
        *map(show, summing),
        "The sums are 2.0, which does not count because the element's class is +Inf, and 1.5.",
        show(summed[0]),
    ]


def maximum() -> list[str]:
    """Return the example of a maximum, in Markdown."""
    tensors = [
        np.array([1.0, -2.0, -0.0, np.nan], dtype=np.float32),
        np.array([1.5, -3.0, 0.0, 7.0], dtype=np.float32),
    ]
    engine, workers = joined_job(tensors, "float32", "max")
    frames, results = exchange(engine, workers)
    assert all(worker.done for worker in workers)
    result = workers[0].result().view(np.uint32).tolist()
    assert result == [0x3FC00000, 0xC0000000, 0, 0x7FC00000]
    return [
        "### 12.4 MAX",
        "The same job; the maximum of a float32 tensor of 4 elements, direct.",
        _table(
            "element",
            {
                "worker 0": ["1", "−2", "−0", "NaN"],
                "worker 1": ["1.5", "−3", "+0", "7"],
                "result": ["1.5", "−2", "+0", "NaN"],
            },
        ),
        "A number that is not negative travels as its bits: 1.0 is 0x3f800000. Of a negative one "
        "all bits but the sign are inverted: −2.0, 0xc0000000, becomes 0xbfffffff; −0 becomes "
        "0xffffffff, which is −1, just below +0. NaN is 0x7fffffff. The opcode is MAX, so the "
        "second byte is 0x11, and those words of lane 0 that are not the worker's fingerprint are "
        "−2³¹.",
        *map(show, frames),
        show(results[0]),
    ]
