"""OmniReduce's microbenchmark: one tensor at many densities, with three overlaps between ranks.

26,214,400 numbers in blocks of 256, of which a share is not zero: at random places at each rank, at
the same places at all ranks, or at places of which no two ranks have one in common. A tensor that
is not zero anywhere has but one overlap, and with N ranks there is none without any beyond 1/N.

A contender's time is shown beside what the wire allows (`benchmarks.network.limits`), and both as
parts of Gloo's, which moves all blocks at every density and so is measured less often.
"""

import zlib
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import afflux
from afflux.commands.bench.registry import Row
from benchmarks.network.cases import MIB, Case, Plan, Setup
from benchmarks.network.tables import NAMES, in_order, times_the_limit
from benchmarks.network.topologies import NetworkSession
from benchmarks.network.turns import Pace, all_same
from benchmarks.network.workload import Workload
from benchmarks.report import document
from benchmarks.report.durations import duration
from benchmarks.report.sides import Side

__all__ = ["BLOCK", "DENSITIES", "OVERLAPS", "WORKLOAD", "Drawn"]

BLOCK = 256
"""Elements that are zero or not together: four blocks of the wire."""

DENSITIES = (1.0, 0.8, 0.4, 0.2, 0.1, 0.08, 0.04, 0.02, 0.01)

OVERLAPS = {"random": "random", "full": "the same", "none": "none in common"}
"""Of ranks' blocks, as tables call them."""

_WANTED = 1.25
"""Times the wire's limit."""

_BYTES = 100 * MIB
_PIECE = 1 << 20
"""Elements that are made at once: a whole number of blocks."""

_GLOO_EVERY = 10
"""Of so many rounds of runs Gloo has one, as it takes equally long at every density."""

_WARM_UP = 10
"""Most calls before those that are timed; two do unless a trial of who is faster goes on."""

_SPARSEST = 0.02
"""Densities at which two cores may be slower than the wire."""


@dataclass(frozen=True)
class Drawn:
    """The tensors of all ranks, of whole numbers with blocks of zeros.

    Whole, so that sums are the same in whichever order they are made: these are compared to the
    bit.

    Attributes:
        count: Elements.
        ranks: How many contribute.
        density: Share of the blocks that are not zero at a rank.
        overlap: One of OVERLAPS.
    """

    count: int
    ranks: int
    density: float
    overlap: str = "random"

    def pieces(self) -> list[slice]:
        """Return the slices that are made at once."""
        return [
            slice(start, min(start + _PIECE, self.count))
            for start in range(0, self.count, _PIECE)
        ]  # fmt: skip

    def piece(self, rank: int, where: slice) -> np.ndarray:
        """Return what `rank` has in one of `pieces`, of shape (its length,), float32."""
        length = where.stop - where.start
        blocks = -(-length // BLOCK)
        numbers = np.random.Generator(np.random.SFC64([1, rank, where.start]))
        values = np.zeros((blocks, BLOCK), np.float32)
        present = self.present(rank, where)
        drawn = numbers.integers(-127, 128, (int(present.sum()), BLOCK), dtype=np.int8)
        # None of them is zero as a whole.
        drawn[:, 0] |= 1
        values[present] = drawn
        return values.reshape(-1)[:length]

    def present(self, rank: int, where: slice) -> np.ndarray:
        """Return which blocks of a piece are not zero at a rank."""
        own = rank if self.overlap == "random" else self.ranks
        numbers = np.random.Generator(np.random.SFC64([2, own, where.start]))
        drawn = numbers.random(-(-(where.stop - where.start) // BLOCK))
        if self.overlap == "none":
            # Each rank has a part of the range in which a block's number may be.
            return (drawn >= rank * self.density) & (drawn < (rank + 1) * self.density)
        return drawn < self.density

    def wrong(self, result: np.ndarray, first: int, step: int) -> int:
        """Return how many elements of a sum are wrong in every so manieth piece."""
        wrong = 0
        for where in self.pieces()[first::step]:
            total = np.zeros(where.stop - where.start, np.float32)
            for rank in range(self.ranks):
                total += self.piece(rank, where)
            wrong += int(np.count_nonzero(total != result[where]))
        return wrong


def _cases(overlap: str, ranks: int) -> tuple[Case, ...]:
    """Return the cases of an overlap, but for those that there are not."""
    return tuple(
        Case(
            f"{overlap}_{density:g}",
            f"{100 * density:g} % of blocks, {OVERLAPS[overlap]}",
            _BYTES,
            density,
            overlap,
            "density",
            wanted_of_limit=_WANTED,
        )
        for density in DENSITIES
        if (density < 1 or overlap == "random")
        and (density <= 1 / ranks or overlap != "none")
    )  # fmt: skip


_SETUP = Setup("density", "1 Gbit/s, blocks of 256")

# A quarter of the rate: to the network, processors are four times as fast.
_SLOW = Setup(
    "density_slow", "0.25 Gbit/s, blocks of 256", gbit=0.25, aggregator_gbit=2.5,
    with_gloo=False,
)  # fmt: skip

_CASES = tuple(case for overlap in OVERLAPS for case in _cases(overlap, _SETUP.ranks))

_PLANS = (
    Plan(_SETUP, _CASES),
    Plan(
        _SLOW,
        tuple(each for each in _CASES if each.density <= _SPARSEST and each.overlap != "none"),
    ),
)


def _side(session: NetworkSession, case: Case, name: str) -> Side:
    drawn = Drawn(case.bytes // 4, session.ranks, case.density, case.overlap)
    source = torch.empty(drawn.count)
    for where in drawn.pieces():
        source[where] = torch.from_numpy(drawn.piece(session.rank, where))
    tensor = torch.empty_like(source)
    group = session.group(name)

    def restore() -> None:
        tensor.copy_(source)

    def call() -> None:
        dist.all_reduce(tensor, group=group)

    def wrong() -> int:
        restore()
        call()
        # Each rank checks a share of the elements; all have the same bits.
        found = drawn.wrong(tensor.numpy(), session.rank, session.ranks)
        mark = zlib.crc32(tensor.view(torch.uint8).numpy().data)
        return found if all_same(session, mark) else max(found, 1)

    if name == "gloo":
        # It is the measure, and has cases of its own where its elements are checked.
        return Side(call, lambda: 0, restore, batch=1, every=_GLOO_EVERY)
    for number in range(_WARM_UP):
        restore()
        call()
        if number > 0 and not _tries(group):
            break
    return Side(call, wrong, restore, batch=1)


def _tries(group: Any) -> bool:
    """Return whether a group without address is still finding out who sums a tensor faster.

    All ranks are told the same.
    """
    choices = afflux.statistics(group).get("choices", {})
    return any(each["reason"].startswith("trial") for each in choices.values())


def _table(plan: Plan, rows: list[Row]) -> str:
    """Return a sweep's table: for each density and overlap a line with both ways of summing."""
    header = ["density", "blocks of ranks", *(["Gloo"] if plan.setup.with_gloo else [])]
    for topology in plan.setup.topologies:
        header += [NAMES[topology], "wire's limit", "times the limit"]
        header += ["times as fast as Gloo"] if plan.setup.with_gloo else []
        header += ["CPU", *(["CPU of the aggregator"] if topology == "udp" else []), "cores' share"]
    lines = []
    found = in_order([row for row in rows if not row.get("quick")], [plan])
    for case in plan.cases:
        of_case = {row["topology"]: row for _, each, row in found if each == case}
        if not of_case:
            continue
        line = [f"{100 * case.density:g} %", OVERLAPS[case.overlap]]
        if plan.setup.with_gloo:
            line.append(_time(next(iter(of_case.values())).get("gloo_s")))
        for topology in plan.setup.topologies:
            line += _cells(plan.setup, of_case.get(topology, {}), topology)
        lines.append(line)
    return document.markdown(header, lines)


def _cells(setup: Setup, row: Row, topology: str) -> list[str]:
    share = times_the_limit(row)
    cells = [_time(row.get("afflux_s")), _time(row.get("limit_s"))]
    cells.append(f"{share:.2f}" if share else "–")
    if setup.with_gloo:
        cells.append(f"{row['ratio']:.1f}" if "ratio" in row else "–")
    cells.append(_time(row.get("afflux_cpu_s")))
    cells += [_time(row.get("aggregator_cpu_s"))] if topology == "udp" else []
    return [*cells, _time(_share_of_cores(row))]


def _share_of_cores(row: Row) -> float | None:
    """Return the processor time of all ranks and the aggregator by the cores that they share."""
    if "afflux_cpu_s" not in row or not row.get("cores"):
        return None
    all_s = row["ranks"] * row["afflux_cpu_s"] + row.get("aggregator_cpu_s", 0.0)
    return float(all_s / row["cores"])


def _time(seconds: float | None) -> str:
    return duration(seconds) if seconds else "–"


_COLOURS = {"auto": "#4292c6", "udp": "#f16913"}


def _draw(overlap: str, axes: Any, rows: list[Row]) -> None:
    """Draw times against densities, and the wire's limits, for one overlap."""
    rows = [
        row
        for row in rows
        if row["setup"] == _SETUP.name
        and not row["quick"]
        # Of a dense tensor all blocks are the same ones.
        and (row["overlap"] == overlap or (overlap == "full" and row["density"] == 1))
    ]
    rows.sort(key=lambda row: row["density"])
    for topology, colour in _COLOURS.items():
        found = [row for row in rows if row["topology"] == topology and "afflux_s" in row]
        at = [100 * row["density"] for row in found]
        times = [1e3 * row["afflux_s"] for row in found]
        limits = [1e3 * row["limit_s"] for row in found]
        axes.plot(at, times, "o-", color=colour, label=NAMES[topology])
        axes.plot(at, limits, "--", color=colour, label=f"{NAMES[topology]}: the wire's limit")
    gloo = {row["density"]: 1e3 * row["gloo_s"] for row in rows if "gloo_s" in row}
    axes.plot([100 * each for each in gloo], list(gloo.values()), "k:", label="Gloo")
    if rows:
        # Without data there is no such scale.
        axes.set(xscale="log", yscale="log")
    axes.set(xlabel="blocks that are not zero at a rank, %")
    axes.set(ylabel="ms", title=f"26,214,400 numbers, blocks of 256: {OVERLAPS[overlap]}")


WORKLOAD = Workload(
    "density",
    _PLANS,
    _side,
    Pace(run_s=0.0, budget_s=12.0, repeats=10, calls=1),
    tables={plan.setup.name: partial(_table, plan) for plan in _PLANS},
    plots={f"density_{overlap}": ("network", partial(_draw, overlap)) for overlap in OVERLAPS},
)
