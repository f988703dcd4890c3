"""The columns that nccl-tests does not have, as comment lines below its table."""

from collections.abc import Sequence

from afflux.commands.bench.registry import Row

__all__ = ["side_table"]

_FLOORS = {"floor": "add one", "read_floor": "read"}
_LEGEND = {
    "add one": "adding 1 to a rank's own tensor, in place: no all_reduce in memory is faster",
    "read": "reading a rank's own tensor once",
    "memcpy": "copying as many bytes as busbw counts, within a rank",
    "way": "how calls went: small, staged or one_pass in shared memory, streams between hosts, "
    "packets to an aggregator, or gloo",
}
"""The columns whose names say too little."""

_SAME_BITS = {True: "yes", False: "NO", None: "–"}


def side_table(rows: Sequence[Row], compare: Sequence[str]) -> str:
    """Show processor time, floors and other backends: in place, medians, microseconds.

    "cpu" is processor time of a rank with the engine that it may have started, for one call, mean
    over ranks.
    """
    header = ["size", "type", "redop", "afflux", "cpu"]
    for name in compare:
        header += [name, "cpu", f"{name}/afflux", "#wrong"]
    floors = [name for name in _FLOORS if f"{name}_s" in rows[0]]
    of_sum = "read_floor" in floors
    header += [_FLOORS[name] if of_sum else "memcpy" for name in floors]
    header += ["same bits", "way"]
    cells = [header]
    for row in rows:
        line = [str(row["bytes"]), row["dtype"], row["op"]]
        line += [_us(row["afflux_s"]), _us(row["afflux_cpu_s"])]
        for name in compare:
            wrong = row[f"{name}_wrong"]
            line += [
                _us(row[f"{name}_s"]),
                _us(row[f"{name}_cpu_s"]),
                f"{row[f'{name}_s'] / row['afflux_s']:.2f}",
                "N/A" if wrong is None else str(wrong),
            ]
        line += [_us(row[f"{name}_s"]) for name in floors]
        line += [_SAME_BITS[row["same_bits"]], row["way"]]
        cells.append(line)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["#", "# in place, microseconds of a call, medians; cpu: processor time of a rank"]
    lines += [f"# {column}: {meaning}" for column, meaning in _LEGEND.items() if column in header]
    for line in cells:
        lines.append("#  " + "  ".join(t.rjust(w) for t, w in zip(line, widths, strict=True)))
    return "\n".join(lines)


def _us(seconds: float) -> str:
    microseconds = seconds * 1e6
    return f"{microseconds:.{0 if microseconds >= 1000 else 1}f}"
