"""The steps and checks of the demonstration."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from afflux.demo.launch import Run

__all__ = ["Check", "checks", "table"]


@dataclass(frozen=True)
class Check:
    """Something that must hold.

    Attributes:
        claim: The condition, in words.
        holds: Whether it does.
    """

    claim: str
    holds: bool


def _bits(run: Run) -> str:
    return str(run.ranks[0]["sha256"])


def _difference(run: Run, other: Run) -> float:
    return float(np.max(np.abs(run.weights.astype(np.float64) - other.weights)))


def checks(runs: list[Run]) -> list[Check]:
    """Return all that must hold of these runs, one of which is Gloo's."""
    found = []
    engines = [run for run in runs if run.url]
    for run in runs:
        found.append(Check(f"{run.name}: the same weights at all ranks", run.same_at_all_ranks))
    for run in engines[1:]:
        found.append(
            Check(
                f"{engines[0].name} and {run.name}: weights equal to the bit",
                _bits(run) == _bits(engines[0]),
            )
        )
    for run in engines:
        sent, accepted = run.total("blocks_sent"), run.counters["blocks_accepted"]
        found.append(
            Check(
                f"{run.name}: {accepted:,} blocks accepted by the engine = {sent:,} sent by the "
                "ranks, each once",
                sent == accepted,
            )
        )
    return found


def table(runs: list[Run]) -> str:
    """Show the runs side by side, one line for each quantity."""
    gloo = next(run for run in runs if not run.url)

    def engine(value: Callable[[Run], str]) -> Callable[[Run], str]:
        return lambda run: value(run) if run.url else "–"

    def count(statistic: str) -> Callable[[Run], str]:
        return engine(lambda run: f"{run.total(statistic):,}")

    def megabytes(statistic: str) -> Callable[[Run], str]:
        return engine(lambda run: f"{run.total(statistic) / 1e6:,.2f}")

    def cycles(run: Run) -> str:
        cycles = run.ranks[0].get("cycles")
        return "–" if cycles is None else f"{cycles:,}"

    rows: list[tuple[str, Callable[[Run], str]]] = [
        ("accuracy on held-out digits", lambda run: f"{run.ranks[0]['accuracy']:.2%}"),
        ("mean loss of the last epoch", lambda run: f"{run.ranks[0]['loss']:.6f}"),
        ("weights: SHA-256", lambda run: _bits(run)[:12]),
        ("weights: largest difference to gloo", lambda run: f"{_difference(run, gloo):.2g}"),
        ("bytes up, all ranks [MB]", megabytes("frame_bytes_sent")),
        ("bytes down, all ranks [MB]", megabytes("frame_bytes_received")),
        ("packets up", count("packets_sent")),
        ("packets down", count("packets_received")),
        ("packets lost on purpose, up", count("dropped_sent")),
        ("packets lost on purpose, down", count("dropped_received")),
        ("contributions sent again", count("retransmissions")),
        ("rounds completed by the engine", engine(lambda run: f"{run.counters['rounds']:,}")),
        ("blocks sent by the ranks, each once", count("blocks_sent")),
        (
            "blocks accepted by the engine",
            engine(lambda run: f"{run.counters['blocks_accepted']:,}"),
        ),
        ("engine cycles simulated", engine(cycles)),
        ("training time [s]", lambda run: f"{run.ranks[0]['seconds']:.1f}"),
    ]
    cells = [["", *(run.name for run in runs)]]
    cells += [[label, *(value(run) for run in runs)] for label, value in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    lines = []
    for row in cells:
        rest = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        lines.append("   ".join([row[0].ljust(widths[0]), *rest]).rstrip())
    lines.insert(1, "─" * max(map(len, lines)))
    return "\n".join(lines)
