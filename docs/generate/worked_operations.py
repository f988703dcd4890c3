"""Worked examples: small tensors side by side, blocks that are not summed, and MAX."""

import zlib

import numpy as np

from afflux_sim.golden.frames import parse_packet
from afflux_sim.golden.reductions import all_reduce
from docs.generate.example_job import FIRST_ROUND, LANES, exchange, joined_job
from docs.generate.packet_text import show

__all__ = ["maximum", "not_summed", "side_by_side"]


def _table(title: str, columns: dict[str, list[str]]) -> str:
    lines = [
        f"| {title} | {' | '.join(columns)} |",
        "|---" * (1 + len(columns)) + "|",
    ]
    for number, cells in enumerate(zip(*columns.values(), strict=True)):
        lines.append(f"| {number} | {' | '.join(cells)} |")
    return "\n".join(lines)


def side_by_side() -> list[str]:
    """Return the example of a sum in one round trip, in Markdown."""
    tensors = [
        np.array([1.0, -2.5, np.inf, -0.0], dtype=np.float32),
        np.array([2.0**-24 + 2.0**-40, 2.5, -1.0, -0.0], dtype=np.float32),
    ]
    count = tensors[0].size
    assert 2 * count <= (LANES - 1) * 64
    engine, workers = joined_job(tensors, "float32", "sum")
    frames, results = exchange(engine, workers)
    assert all(worker.done for worker in workers)
    sums = workers[0].result()
    expected = np.array([1 + 2.0**-23, 0.0, np.inf, -0.0], dtype=np.float32)
    assert sums.tobytes() == expected.tobytes() == workers[1].result().tobytes()
    return [
        "### 12.2 A small tensor side by side",
        f"The same job; both workers sum a float32 tensor of {count} elements. N·W = 2·{count} "
        f"words fit into F − 1 = {LANES - 1} lane, so the operation is direct: in the opening "
        "round, lane 1 holds the words of worker 0 and then those of worker 1, as they are, and "
        "all look-ahead words are absent.",
        _table(
            "element",
            {
                "worker 0": ["1", "−2.5", "+Inf", "−0"],
                "worker 1": ["2^−24 + 2^−40", "2.5", "−1", "−0"],
                "result": ["1 + 2^−23", "+0", "+Inf", "−0"],
            },
        ),
        *(show(frame, shown=2 * count) for frame in frames),
        "Each worker now has both tensors, and sums them for itself. 1 + 2^−24 + 2^−40 is nearer "
        "to 1 + 2^−23 than to 1.",
        show(results[0], shown=2 * count),
    ]


def not_summed() -> list[str]:
    """Return the example of a block that the aggregator cannot sum, in Markdown."""
    pairs = [[(1.0, 2.0), (3.0, 0.5)], [(2.0**-100, -0.5), (1.0, 0.25)]]
    tensors = [
        np.concatenate([np.tile(np.array(pair, dtype=np.float32), 32) for pair in worker])
        for worker in pairs
    ]
    engine, workers = joined_job(tensors, "float32", "sum", window=57)
    exchange(engine, workers)
    summing, summed = exchange(engine, workers)
    assert all(worker.go_on() for worker in workers)
    opening, opened = exchange(engine, workers)
    bringing, brought = exchange(engine, workers)
    assert not any(worker.go_on() for worker in workers)
    result = workers[0].result()
    assert result.tobytes() == workers[1].result().tobytes()
    assert result.tobytes() == all_reduce(tensors, "float32", "sum").tobytes()
    assert result[[0, 1, 64, 65]].tolist() == [1, 1.5, 4, 0.75]
    crc = int(parse_packet(opened[0]).blocks[0][0]) & 0xFFFFFFFF
    return [
        "### 12.3 A block that is not summed",
        f"The same job; a float32 tensor of {tensors[0].size} elements, two blocks in row 0, at an "
        "aggregator that keeps a window of 57 bits. Pairs of values repeat within a block:",
        "| block | lane | worker 0 | worker 1 | result |\n|---|---|---|---|---|\n"
        "| 0 | 0 | 1, 2, … | 2^−100, −0.5, … | 1, 1.5, … |\n"
        "| 1 | 1 | 3, 0.5, … | 1, 0.25, … | 4, 0.75, … |",
        f"**Round {FIRST_ROUND + 1:#x}**, after an opening round as in 12.1. The agreed exponent "
        "is 128 in both lanes, so that the window of lane 0 ends at 2^(2 − 57) = 2^−55. 2^−100 "
        "lies below it: the block comes back with all bits set.",
        *map(show, summing),
        show(summed[0]),
        f"**Round {FIRST_ROUND + 2:#x}** opens operation 1, which brings block 0 again. It has "
        f"n·N = 2 blocks, and the fingerprint is the CRC-32 of `1:again:int32:1x{_list_crc()}`, "
        f"{crc:#010x}. Each worker names the one of the two that is its own.",
        *map(show, opening),
        show(opened[0]),
        f"**Round {FIRST_ROUND + 3:#x}.** Each sends its own block 0, in a SUM of int32; both get "
        "both, and sum them.",
        *map(show, bringing),
        show(brought[0]),
    ]


def _list_crc() -> int:
    """Return the CRC-32 of the list of blocks that come again: that of block 0 alone."""
    return zlib.crc32(b"0")


def maximum() -> list[str]:
    """Return the example of a maximum, in Markdown."""
    tensors = [np.full(70, 1.0, dtype=np.float32), np.full(70, 1.5, dtype=np.float32)]
    tensors[0][:4] = [1.0, -2.0, -0.0, np.nan]
    tensors[1][:4] = [1.5, -3.0, 0.0, 7.0]
    engine, workers = joined_job(tensors, "float32", "max")
    opening, _ = exchange(engine, workers)
    frames, results = exchange(engine, workers)
    assert all(worker.done for worker in workers)
    result = workers[0].result()[:4].view(np.uint32).tolist()
    assert result == [0x3FC00000, 0xC0000000, 0, 0x7FC00000]
    return [
        "### 12.4 MAX",
        "The same job; the maximum of a float32 tensor of 70 elements, too many for one round "
        "trip. The first four, which the packets show:",
        _table(
            "element",
            {
                "worker 0": ["1", "−2", "−0", "NaN"],
                "worker 1": ["1.5", "−3", "+0", "7"],
                "result": ["1.5", "−2", "+0", "NaN"],
            },
        ),
        "The opening round is one of SUM, like all. It names both blocks, with exponent 0:",
        show(opening[0]),
        f"**Round {FIRST_ROUND + 1:#x}.** The opcode is NUMBER_MAX, so the second byte is 0x41, "
        "and the numbers travel as they are.",
        *map(show, frames),
        show(results[0]),
    ]
