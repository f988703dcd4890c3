"""The cost of a byte by stage, at a rank and at an aggregator, and with threads of the latter.

Stages alone and whole all-reduces take turns in this process, over the loopback interface
(`afflux.commands.forecast`): `afflux info --forecast` measures the same, for a shorter time.
"""

from collections.abc import Iterator
from statistics import median

from afflux.commands.bench.registry import Row
from afflux.commands.forecast.stages import Stages, measure_stages
from afflux.commands.forecast.whole import SLOTS, Whole, measure_whole
from afflux_drivers import _native

__all__ = ["NAME", "brief", "measure", "stages_of", "whole_of"]

NAME = "costs"
"""Value of its rows' "bench"."""

_LANES = (5, 13, 16)
_THREADS = ((5, SLOTS), (16, SLOTS), (5, 256), (16, 128))
"""Lanes and slots, for one thread of the aggregator and for two."""

_BYTES, _QUICK_BYTES = 32 << 20, 1 << 20
_ROUNDS, _CALLS = 7, 3


def measure(quick: bool) -> Iterator[Row]:
    """Measure all; yield each row when it is known.

    Raises:
        AffluxError: An all-reduce did not work.
    """
    size, rounds = (_QUICK_BYTES, 1) if quick else (_BYTES, _ROUNDS)
    about: Row = {"bench": NAME, "quick": quick, "bytes": size}
    hz = _native.counter_hz()
    for lanes in _LANES:
        alone, wholes = [], []
        for _ in range(rounds):
            alone.append(measure_stages(lanes, SLOTS, size, repeats=1))
            wholes.append(measure_whole(lanes, size, _CALLS))
        row = about | {"case": f"stages_{lanes}", "lanes": lanes, "slots": SLOTS, "threads": 1}
        row |= {"counter_hz": hz, **_medians("stage", "_s", [vars(each) for each in alone])}
        yield row | _medians("whole", "", [vars(each) for each in wholes])
    for lanes, slots in _THREADS:
        found: dict[int, list[Whole]] = {1: [], 2: []}
        for _ in range(rounds):
            for threads, samples in found.items():
                samples.append(measure_whole(lanes, size, _CALLS, threads=threads, slots=slots))
        for threads, samples in found.items():
            row = about | {"case": f"threads_{threads}_{lanes}_{slots}", "lanes": lanes}
            row |= {"slots": slots, "threads": threads}
            yield row | _medians("whole", "", [vars(each) for each in samples])


def _medians(prefix: str, unit: str, samples: list[dict[str, float]]) -> Row:
    return {f"{prefix}_{name}{unit}": median(each[name] for each in samples) for name in samples[0]}


def stages_of(row: Row) -> Stages:
    """Return the stages of a row that has them."""
    marked = {name: value for name, value in row.items() if name.startswith("stage_")}
    return Stages(**{key.removeprefix("stage_").removesuffix("_s"): marked[key] for key in marked})


def whole_of(row: Row) -> Whole:
    """Return the whole all-reduce of a row that has one."""
    marked = {name: value for name, value in row.items() if name.startswith("whole_")}
    return Whole(**{name.removeprefix("whole_"): value for name, value in marked.items()})


def brief(row: Row) -> str:
    """Return a row in a line."""
    whole = whole_of(row)
    return (
        f"{row['case']}: a rank {whole.worker * 1e9:.2f} ns, "
        f"the aggregator {whole.aggregator * 1e9:.2f} ns for a byte"
    )
