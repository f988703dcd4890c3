"""The output format of nccl-tests, to the column, so that programs that read it can read ours.

algbw is the tensor's bytes divided by the time; busbw is algbw times a factor, 2(n−1)/n for
all_reduce, which counts what a ring would move over each link (in-network aggregation moves less,
and may exceed a link's rate in it). Figures that nccl-tests does not have go into lines that begin
with #.
"""

import math
from dataclasses import dataclass

__all__ = ["Column", "algorithm_bandwidth", "bus_bandwidth", "heading", "line", "summary"]

_TABLE_HEADER = """\
#
#                                                              out-of-place                       in-place          
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong 
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)         """  # noqa: E501, W291 - as nccl-tests prints it


@dataclass(frozen=True)
class Column:
    """One half of a line: seconds of a call, and wrong elements at all ranks (None: unchecked)."""

    seconds: float
    wrong: int | None


def algorithm_bandwidth(size: int, seconds: float) -> float:
    """Return the tensor's bytes by the time, in GB/s (10⁹ bytes a second)."""
    return size / seconds / 1e9


def bus_bandwidth(size: int, seconds: float, factor: float) -> float:
    """Return the bandwidth that a ring would need for this time, in GB/s.

    Args:
        size: Bytes of the tensor.
        seconds: Time of a call.
        factor: The collective's, for this number of ranks; see `collectives.Collective`.
    """
    return algorithm_bandwidth(size, seconds) * factor


def heading(
    *,
    program: str,
    least: int,
    most: int,
    step: str,
    warmup: int,
    iterations: int,
    checks: int,
    version: str,
    notes: list[str],
    devices: list[str],
) -> str:
    """Return all lines before the first result."""
    lines = [
        f"# afflux version {version}",
        f"# Collective test starting: {program}",
        f"# nThread 1 nGpus 0 minBytes {least} maxBytes {most} step: {step} warmup iters: {warmup} "
        f"iters: {iterations} agg iters: 1 validation: {checks} graph: 0 unalign: 0",
        "#",
        *(f"# {note}" for note in notes),
        "#",
        "# Using devices",
        *devices,
        _TABLE_HEADER,
    ]
    return "\n".join(lines)


def line(
    size: int,
    count: int,
    dtype: str,
    op: str,
    root: int,
    factor: float,
    out_of_place: Column | None,
    in_place: Column,
) -> str:
    """Return one result.

    Args:
        size: Bytes.
        count: Elements.
        dtype: As nccl-tests names it.
        op: "none" where nothing is reduced.
        root: -1 if the collective has none.
        factor: Busbw by algbw.
        out_of_place: None if it was not timed.
        in_place: See `collectives`.
    """
    text = f"{size:12d}  {count:12d}  {dtype:>8}  {op:>6}  {root:6d}"
    for column in (out_of_place, in_place):
        if column is None:
            text += f"  {'N/A':>7}  {'N/A':>6}  {'N/A':>6}  {'N/A':>6}"
            continue
        wrong = "N/A" if column.wrong is None else f"{column.wrong:g}"
        text += (
            f"  {_time(column.seconds * 1e6):>7}"
            f"  {_bandwidth(algorithm_bandwidth(size, column.seconds)):>6}"
            f"  {_bandwidth(bus_bandwidth(size, column.seconds, factor)):>6}  {wrong:>6}"
        )
    return text


def summary(wrong: int, bus_bandwidths: list[float], program: str) -> str:
    """Return the lines at the end; `wrong` counts elements out of bounds."""
    mean = math.fsum(bus_bandwidths) / len(bus_bandwidths) if bus_bandwidths else 0.0
    return "\n".join(
        [
            f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}",
            f"# Avg bus bandwidth    : {mean:g} ",
            "#",
            f"# Collective test concluded: {program}",
        ]
    )


def _time(microseconds: float) -> str:
    digits = 0 if microseconds >= 10_000 else 1 if microseconds >= 100 else 2
    return f"{microseconds:.{digits}f}"


def _bandwidth(value: float) -> str:
    return f"{value:.{0 if value >= 1000 else 1 if value >= 100 else 2}f}"
