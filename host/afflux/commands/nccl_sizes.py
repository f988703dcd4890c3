"""The sizes for which NCCL's plugin takes the aggregator, from times that somebody has measured.

They become lines of the table that AFFLUX_NCCL_TABLE names (docs/nccl.md). The times are those of
two outputs of `all_reduce_perf` of nccl-tests, or of the benchmark of the plugin's tables.

Tested: `tests/nccl/test_sizes.py`.
"""

from collections.abc import Mapping
from pathlib import Path

__all__ = ["MARGIN", "read_times", "table_line", "winning"]

MARGIN = 1.05
"""A size goes to the aggregator where a ring takes this many times as long, or longer."""

_SIZE, _TIME = 0, 5
_COLUMNS = 8
"""Of nccl-tests: size, count, type, redop, root, and then time, algbw, busbw out of place."""


def read_times(path: Path) -> dict[int, float]:
    """Return the microseconds of an all-reduce out of place, by bytes, from nccl-tests' output.

    Raises:
        OSError: The file cannot be read.
        ValueError: It has no such line.
    """
    found: dict[int, float] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        words = line.split()
        if len(words) < _COLUMNS or not words[_SIZE].isdigit():
            continue
        found[int(words[_SIZE])] = float(words[_TIME])
    if not found:
        raise ValueError(f"{path}: no line of it has the columns of all_reduce_perf")
    return found


def winning(ring: Mapping[int, float], aggregator: Mapping[int, float]) -> str:
    """Return the ranges of sizes for which the aggregator is faster, as the table has them.

    A range goes from the first to the last of neighbouring sizes that win. It begins with 0 if the
    smallest of all wins, and is open if the largest does: there the links decide.

    Args:
        ring: Times of a ring, by bytes.
        aggregator: Times through the aggregator; sizes that only one of them has do not count.
    """
    sizes = sorted(ring.keys() & aggregator.keys())
    ranges: list[tuple[int, int]] = []
    before = -1
    for place, size in enumerate(sizes):
        if ring[size] < MARGIN * aggregator[size]:
            continue
        first = ranges.pop()[0] if ranges and before == place - 1 else size
        ranges.append((first, size))
        before = place
    texts = [
        f"{0 if first == sizes[0] else first}:{'' if last == sizes[-1] else last}"
        for first, last in ranges
    ]
    return ",".join(texts) or "none"


def table_line(engine: str, gbit: float, nodes: int, ranges: str) -> str:
    """Return a line of the table.

    Args:
        engine: The kind that sums: that of `afflux info`, mesh, or streams.
        gbit: Rate of the nodes' links, in Gbit/s.
        nodes: How many there are.
        ranges: From `winning`.
    """
    return f"{engine:<8}  {gbit:<6g}  {nodes:<5}  {ranges}"
