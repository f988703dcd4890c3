"""`python -m benchmarks.ranks.compressors`: what compressors send, and what they cost, as tables.

The bytes sent are counted in packets through a software aggregator. Time is that of ranks that
share memory: there nothing is gained by fewer bytes but what copying them takes.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from afflux.torchrun import run_module

__all__ = ["WORDS", "main"]

WORDS = (
    "float32",
    "fp16",
    "bf16",
    "int12",
    "int8",
    "int4",
    "topk:density=0.01",
    "gtopk:density=0.01",
    "randomk:density=0.01",
    "randomk:density=0.01 + int8",
    "threshold:bound=2.576",
    "blocktopk:density=0.01",
    "blocktopk:density=0.01,blocks=3 + int8",
)
"""Each at a hundredth of the elements, if it has a density; the tensor is of normal numbers."""

_MB = 1 << 20
_FLOAT_BYTES = 4


def _ranks(
    words: Sequence[str], ranks: int, megabytes: int, rounds: int, aggregator: str
) -> list[list[dict[str, Any]]]:
    arguments = ["--words", json.dumps(list(words))]
    arguments += ["--elements", str(megabytes * _MB // _FLOAT_BYTES), "--rounds", str(rounds)]
    variables = {"AFFLUX_AGGREGATOR": aggregator}
    written, _ = run_module("benchmarks.ranks.compressor_rank", ranks, arguments, variables)
    return written


def volumes(words: Sequence[str], ranks: int, megabytes: int) -> str:
    """Return a table of the bytes that a rank says that it sends, and those that it has sent."""
    lines = ["| scheme | biased | KB said | KB sent, mean |", "|---|---|---|---|"]
    for rows in zip(*_ranks(words, ranks, megabytes, 0, "soft://"), strict=True):
        first = rows[0]
        mean = sum(each["sent"] for each in rows) / ranks
        biased = "yes" if first["biased"] else "no"
        kilobytes = f"{first['said'] / 1024:.1f} | {mean / 1024:.1f}"
        lines.append(f"| `{first['word']}` | {biased} | {kilobytes} |")
    return "\n".join(lines)


def times(words: Sequence[str], ranks: int, megabytes: int, rounds: int) -> str:
    """Return a table of the time that each takes, and of the first one's as a multiple of it."""
    first, *_ = _ranks(words, ranks, megabytes, rounds, "shm://")
    lines = [
        "| scheme | ms | times as fast as the first | CPU ms/MB of a rank | without the sum |",
        "|---|---|---|---|---|",
    ]
    for row in first:
        ratio = first[0]["seconds"] / row["seconds"]
        busy, own = (1000 * row[name] / megabytes for name in ("busy_seconds", "own_seconds"))
        lines.append(
            f"| `{row['word']}` | {row['seconds'] * 1000:.2f} | {ratio:.2f} | {busy:.3f} "
            f"| {own:.3f} |"
        )
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ranks.compressors")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--megabytes", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=0, help="of timing; 0: count bytes")
    parser.add_argument("--words", nargs="+", default=list(WORDS), metavar="SCHEME")
    given = parser.parse_args(argv)
    if given.rounds:
        print(times(given.words, given.ranks, given.megabytes, given.rounds))
    else:
        print(volumes(given.words, given.ranks, given.megabytes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
