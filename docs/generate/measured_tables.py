"""The tables of what was synthesised and placed, in `docs/boards.md` and `docs/cost.md`.

`python -m docs.generate.measured_tables docs [build/boards.json] [build/synth.json]` takes over
what these files have, as `make bitstream` and `make synth` write them, into `docs/boards.json` and
`docs/cost.json`, and writes the tables from there. Each figure has the name of the gateware that it
is of; one that the sources no longer make is called earlier.

Tested: `tests/house/test_measured_tables.py`, `tests/hdl/test_measured_gateware.py`.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from afflux_hdl.boards.flow import verilog_of
from afflux_hdl.boards.table import BOARDS
from afflux_hdl.engine.verilog import generate
from afflux_hdl.synthesis import ecp5, ultrascale
from afflux_hdl.synthesis.gateware import name_of

__all__ = ["BOARDS_RECORD", "COST_RECORD", "gateware_now", "render_boards", "render_cost"]

BOARDS_RECORD, COST_RECORD = "boards.json", "cost.json"
PARTS = {"ultrascale": ultrascale.PARAMETERS, "ecp5": ecp5.PARAMETERS}
"""Parts of the record of costs, and the engine that each is of."""

TWO_PORTS = "-2-ports"

Record = dict[str, dict[str, Any]]


def gateware_now(name: str) -> str:
    """Return the name of the gateware that the sources make of a board's build, or of a part."""
    if name in PARTS:
        return name_of(generate(PARTS[name]))
    board = BOARDS[name.removesuffix(TWO_PORTS)]
    ports = 2 if name.endswith(TWO_PORTS) else 1
    return name_of(verilog_of(board, replace(board.node, engine=board.engine_at(ports))))


def _kept(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the record keeps of a build."""
    packed = entry["seeds"][str(entry["seed_in_bitstream"])]
    seeds = [entry["seeds"][seed] for seed in sorted(entry["seeds"], key=int)]
    engine = entry["parameters"]["engine"]
    (bit,) = (each["bytes"] for name, each in entry["bitstream"].items() if name.endswith(".bit"))
    return {
        "gateware": entry["gateware"],
        "sizes": [engine[size] for size in ("workers", "lanes", "jobs", "slots")],
        **{use: packed[use] for use in ("lut4", "ff", "ebr", "available")},
        "seeds": [{"clocks": seed["clocks"], "s": seed["place_and_route_s"]} for seed in seeds],
        "bit_bytes": bit,
        "synthesis_s": entry["synthesis_s"],
    }


def _gateware(record: Mapping[str, Any]) -> str:
    name = f"`{record['gateware']}`" if record["gateware"] else ""
    return f"{name}, earlier".removeprefix(", ") if record["earlier"] else name


def _clocks(record: Mapping[str, Any], names: list[str]) -> str:
    """Return what clocks of one frequency could be in each placement, and the least of all."""
    seeds = [seed["clocks"] for seed in record["seeds"]]
    text = "; ".join(", ".join(f"{seed[name]['fmax_mhz']:.1f}" for seed in seeds) for name in names)
    least = min(
        seed[name]["fmax_mhz"] / seed[name]["clock_mhz"] for seed in seeds for name in names
    )
    return f"{text} of {seeds[0][names[0]]['clock_mhz']:g}: × {least:.2f}"


def _rows(record: Record, two_ports: bool) -> Iterator[str]:
    yield (
        "| board | workers, lanes, jobs, slots | LUT4 | FF | EBR | engine's clock, could be, MHz "
        f"| {'rx; rx of the second port; tx' if two_ports else 'rx; tx'}, could be, MHz "
        "| .bit, bytes | synthesis; place and route | gateware |"
    )
    yield "|---" * 10 + "|"
    for name, each in sorted(record.items()):
        if name.endswith(TWO_PORTS) is not two_ports:
            continue
        of = each["available"]
        seconds = ", ".join(f"{seed['s']:.0f}" for seed in each["seeds"])
        ethernet = ["rx", "rx_1", "tx"] if two_ports else ["rx", "tx"]
        cells = [
            f"`{name.removesuffix(TWO_PORTS)}`",
            ", ".join(map(str, each["sizes"])),
            f"{each['lut4']:,} of {of['lut4']:,}, {100 * each['lut4'] / of['lut4']:.0f} %",
            f"{each['ff']:,}",
            f"{each['ebr']} of {of['ebr']}",
            _clocks(each, ["sync"]),
            _clocks(each, ethernet),
            f"{each['bit_bytes']:,}" if each["bit_bytes"] else "",
            f"{each['synthesis_s']:.0f} s; {seconds} s" if each["synthesis_s"] else "",
            _gateware(each),
        ]
        yield f"| {' | '.join(cells)} |"


def render_boards(text: str, record: Record) -> str:
    """Return `docs/boards.md` with the tables of this record."""
    for mark, two_ports in (("figures", False), ("figures of two ports", True)):
        text = _between(text, mark, "\n".join(_rows(record, two_ports)))
    return text


def render_cost(text: str, record: dict[str, Any]) -> str:
    """Return `docs/cost.md` with the tables of this record."""
    one, two = (record[part] for part in PARTS)
    shares = (
        ("LUT", f"{one['lut']:,}", f"{one['lut_share_u50']:.2%}", "< 10 %"),
        ("flip-flops", f"{one['ff']:,}", f"{one['ff_share_u50']:.2%}", ""),
        ("block RAM, 36 kbit", f"{one['bram']:g}", f"{one['bram_share_u50']:.2%}", ""),
        ("ultra RAM", f"{one['uram']:,}", f"{one['uram_share_u50']:.2%}", ""),
        ("DSP", f"{one['dsp']}", f"{one['dsp_share_u50']:.2%}", ""),
        ("logic levels", f"{one['logic_levels']}", "", "<= 8"),
        ("gateware", _gateware(one), "", ""),
    )
    lines = ["| | used | share of the U50 | target |", "|---|---|---|---|"]
    lines += [f"| {' | '.join(cells)} |" for cells in shares]
    text = _between(text, "ultrascale", "\n".join(lines).replace("%", " %").replace("  %", " %"))
    of, fmax = two["available"], two["fmax_mhz"]
    met = "" if fmax and fmax >= ecp5.TARGET_MHZ else ": **missed**"
    uses = (
        ("LUT4 (`TRELLIS_COMB`)", f"{two['lut4']:,}", f"{of['lut4']:,}"),
        ("flip-flops", f"{two['ff']:,}", f"{of['ff']:,}"),
        ("block RAM (EBR)", f"{two['ebr']}", f"{of['ebr']}"),
        (
            "Fmax, placed and routed",
            f"**{fmax} MHz**" if fmax else "not routed",
            f"target: {ecp5.TARGET_MHZ} MHz{met}",
        ),
        ("gateware", _gateware(two), ""),
    )
    lines = ["| | used | of |", "|---|---|---|", *(f"| {' | '.join(cells)} |" for cells in uses)]
    return _between(text, "ecp5", "\n".join(lines))


def _between(text: str, mark: str, body: str) -> str:
    found = re.compile(rf"(<!-- {mark} -->\n).*?(\n<!-- end {mark} -->)", re.DOTALL)
    new, count = found.subn(lambda match: match[1] + body + match[2], text)
    if count != 1:
        raise ValueError(f"there are {count} places <!-- {mark} -->, not one")
    return new


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def main() -> None:
    """Take over the files that arguments name, and rewrite records and tables in the first one."""
    docs, *files = map(Path, sys.argv[1:])
    boards, cost = _read(docs / BOARDS_RECORD), _read(docs / COST_RECORD)
    for path in files:
        found = _read(path)
        if found.keys() & PARTS.keys():
            cost |= found
        else:
            boards |= {name: _kept(entry) for name, entry in found.items() if "gateware" in entry}
    for name, each in [*boards.items(), *((part, cost[part]) for part in PARTS)]:
        each["earlier"] = each["gateware"] != gateware_now(name)
    for name, record, render in (
        (BOARDS_RECORD, boards, render_boards),
        (COST_RECORD, cost, render_cost),
    ):
        (docs / name).write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
        page = (docs / name).with_suffix(".md")
        page.write_text(render(page.read_text(), record))


if __name__ == "__main__":
    main()
