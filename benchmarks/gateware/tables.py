"""Tables of the gateware's figures for the documents.

`python -m benchmarks.gateware.tables build/bench/engine.json docs/benchmarks.md` renews the
text between `<!-- figures: NAME -->` and `<!-- end figures -->` there.
"""

import sys
from collections.abc import Iterable

from afflux.commands.bench.registry import Row
from benchmarks.report import document
from benchmarks.report.document import Table

__all__ = ["TABLES", "render"]


def _table(header: str, cells: Iterable[Iterable[str]]) -> str:
    return document.markdown(header.split(" | "), cells)


def _groups(rows: list[Row], *names: str) -> list[list[Row]]:
    """Group rows that agree in `names`, in the order of their first ones."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return list(groups.values())


def _span(values: Iterable[float], digits: int) -> str:
    """Show one value, or the least and the greatest."""
    low, high = min(values := list(values)), max(values)
    texts = [f"{value:,.{digits}f}" for value in (low, high)]
    return texts[0] if texts[0] == texts[1] else f"{texts[0]} – {texts[1]}"


def _line_rate(rows: list[Row]) -> str:
    """Show all numbers of workers and both orders in one line."""
    return _table(
        "bits | results | blocks | workers | `beats_per_cycle` in | out | `receive_stalls` | drops "
        "| payload in (Gbit/s)",
        (
            (
                str(group[0]["bus_bits"]),
                group[0]["results"],
                group[0]["blocks"],
                f"{group[0]['workers']} – {group[-1]['workers']}",
                _span((r["beats_per_cycle"] for r in group), 3),
                _span((r["beats_out_per_cycle"] for r in group), 3),
                _span((r["receive_stalls"] for r in group), 0),
                _span((r["dropped"] for r in group), 0),
                _span((r["payload_gbps"] for r in group), 1),
            )
            for group in _groups(rows, "bus_bits", "results", "blocks")
        ),
    )


def _element_rates(rows: list[Row]) -> str:
    """Show ingested and reduced elements: 512 bits, full frames."""
    return _table(
        "bits | workers | ingested (M elements/s) | reduced (M elements/s)",
        (
            (
                str(r["bus_bits"]),
                str(r["workers"]),
                f"{r['ingested_elements_per_s'] / 1e6:,.1f}",
                f"{r['reduced_elements_per_s'] / 1e6:,.1f}",
            )
            for r in rows
        ),
    )


def _port(rows: list[Row]) -> str:
    return _table(
        "bits | port | blocks | workers | payload in | payload out, at the same time | stalls",
        (
            (
                str(r["bus_bits"]),
                f"{r['port_gbps']:g} Gbit/s",
                r["blocks"],
                str(r["workers"]),
                f"{r['payload_share_in']:.2%} of the port",
                f"{r['payload_share_out']:.2%}",
                str(r["receive_stalls"]),
            )
            for r in rows
        ),
    )


def _duplicates(rows: list[Row]) -> str:
    return _table(
        "bits | workers | blocks | beats in | stalls | `duplicates` | `replays` "
        "| `replays_dropped` | other drops",
        (
            (
                str(r["bus_bits"]),
                str(r["workers"]),
                r["blocks"],
                f"{r['beats_per_cycle']:.3f}",
                str(r["receive_stalls"]),
                f"{r.get('counter_duplicates', 0):,}",
                f"{r.get('counter_replays', 0):,}",
                f"{r.get('counter_replays_dropped', 0):,}",
                str(r["dropped"] - r.get("counter_duplicates", 0)),
            )
            for r in rows
        ),
    )


def _latency(rows: list[Row]) -> str:
    return _table(
        "bits | blocks | workers | cycles | at the other phase | ns at the target clock",
        (
            (
                str(group[0]["bus_bits"]),
                str(group[0]["blocks"]),
                ", ".join(str(r["workers"]) for r in group),
                _span((r["latency_cycles"] for r in group), 0),
                _span((r["latency_cycles_max"] for r in group), 0),
                _span((r["latency_ns"] for r in group), 0),
            )
            for group in _groups(rows, "bus_bits", "blocks")
        ),
    )


def _zero_skip(rows: list[Row]) -> str:
    cells = []
    for group in _groups(rows, "workers", "density", "overlap"):
        line = [str(group[0]["workers"]), f"{group[0]['density']:g}", group[0]["overlap"]]
        if group[0]["density"] == 1:
            line[2] = "–"
        for row in group:
            line += [
                f"{row['cycles']:,}",
                f"{row['cycles_of_dense']:.4f}",
                f"{row['cycles_of_ideal']:.2f}",
            ]
        cells.append(line)
    ways = list(dict.fromkeys(r["results"] for r in rows))
    header = "workers | density | overlap"
    for way in ways:
        header += f" | {way}: cycles | of dense | of ideal"
    return _table(header, cells)


MARK = "figures"


def _is_full(row: Row) -> bool:
    return row["traffic"] == "full"


def _is_full_unicast(row: Row) -> bool:
    of = (row["results"], row["blocks"], row["order"])
    return _is_full(row) and of == ("unicast", "16", "back to back")


_ENGINE = ("hdl/afflux_hdl/engine", "hdl/afflux_hdl/lib")

TABLES: document.Tables = {
    "line_rate": Table("line_rate", _line_rate, _ENGINE, _is_full),
    "element_rates": Table("line_rate", _element_rates, _ENGINE, _is_full_unicast),
    "port": Table("line_rate", _port, _ENGINE, lambda row: row["traffic"] == "port"),
    "duplicates": Table(
        "line_rate", _duplicates, _ENGINE, lambda row: row["traffic"] == "duplicates"
    ),
    "latency": Table("latency", _latency, _ENGINE),
    "zero_skip": Table("zero_skip", _zero_skip, _ENGINE, lambda row: row["bus_bits"] == 512),
}


def render(text: str, rows: list[Row]) -> str:
    """Renew the tables of figures in `text`. Raises `KeyError` for an unknown name."""
    return document.render(text, MARK, TABLES, rows)


def main(arguments: list[str] | None = None) -> int:
    """Renew the tables of the document that the second argument names."""
    return document.renew(MARK, TABLES, arguments)


if __name__ == "__main__":
    sys.exit(main())
