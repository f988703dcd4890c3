"""The figures of a build: clocks and cells by nextpnr's report, use of each part by the netlist.

Tested: `tests/hdl/test_boards_flow.py`.
"""

import re
from collections.abc import Mapping
from typing import Any

from afflux_hdl.boards.port import of_port
from afflux_hdl.synthesis.netlist import Netlist

__all__ = ["summary", "use_by_part"]

_DOMAINS = {"clk": "sync", "rx_clk": "rx", "tx_clk": "tx", "osc_clk": "osc"}
"""Domains by their clocks as Amaranth calls them; `osc` is the part's own oscillator."""


def summary(report: Mapping[str, Any], ports: int = 1) -> dict[str, Any]:
    """Return what is kept of nextpnr's report: clocks, what crosses between them, cells.

    Args:
        report: As nextpnr writes it.
        ports: Network ports, each with a clock of its own.

    Raises:
        ValueError: If a domain is not among the clocks: it would go unchecked.
    """
    clocks = {}
    for net, speed in report["fmax"].items():
        domain = _clock_of(net)
        if domain is not None:
            clocks[domain] = {
                "fmax_mhz": round(speed["achieved"], 2),
                "clock_mhz": round(speed["constraint"], 2),
            }
    expected = {*_DOMAINS.values(), *(of_port("rx", port) for port in range(ports))}
    if clocks.keys() != expected:
        raise ValueError(
            f"nextpnr reports clocks of {sorted(clocks)}, not of {sorted(expected)}:"
            f" {sorted(report['fmax'])}"
        )
    names = {"lut4": "TRELLIS_COMB", "ff": "TRELLIS_FF", "ebr": "DP16KD"}
    return {
        "clocks": clocks,
        "crossings_ns": _crossings(report),
        **{key: report["utilization"][cell]["used"] for key, cell in names.items()},
        "available": {key: report["utilization"][cell]["available"] for key, cell in names.items()},
    }


def _crossings(report: Mapping[str, Any]) -> dict[str, float]:
    """Return the longest delay from each clock to each other one, such as "rx to sync"."""
    found = {}
    for path in report.get("critical_paths", ()):
        ends = [_clock_of(path[end].removeprefix("posedge ")) for end in ("from", "to")]
        if None not in ends and ends[0] != ends[1]:
            delay_ns = sum(step["delay"] for step in path["path"])
            found[f"{ends[0]} to {ends[1]}"] = round(delay_ns, 2)
    return found


def _clock_of(net: str) -> str | None:
    """Return the domain of a clock by the name that nextpnr reports, or None for no domain of ours.

    The name ends with Amaranth's.
    """
    name = re.sub(r"^\$glbnet\$", "", net).rsplit(".", 1)[-1]
    further = re.fullmatch(r"rx_(\d+)_clk", name)
    return of_port("rx", int(further[1])) if further else _DOMAINS.get(name)


_COST = {
    "LUT4": {"lut4": 1},
    "CCU2C": {"lut4": 2},
    "TRELLIS_DPR16X4": {"lut4": 6},
    "TRELLIS_FF": {"ff": 1},
    "DP16KD": {"ebr": 1},
}
"""The number of cells of each primitive; a memory of LUTs takes six, as nextpnr counts."""

_MEMORIES = ("TRELLIS_DPR16X4", "DP16KD")


def use_by_part(netlist: Netlist) -> dict[str, dict[str, int]]:
    """Return the use of each part of the design, with all that is in it, by its path.

    The design is flat, and optimised across its parts; a cell counts where the signal that it
    drives has its name, a memory's cell where the memory is.
    """
    scopes = {scope.path for scope in netlist.scopes}
    found: dict[str, dict[str, int]] = {}
    for cell in netlist.cells:
        cost = _COST.get(cell.type)
        if cost is None:
            continue
        nets = [net for nets in cell.outputs.values() for net in nets if net is not None]
        driven = [name for net in nets for name in netlist.names.get(net, ())]
        named = [cell.name] if cell.type in _MEMORIES else driven
        steps = max((_steps(name, scopes) for name in named), key=len, default=[])
        for end in range(len(steps) + 1):
            part = found.setdefault(".".join(steps[:end]), dict.fromkeys(("lut4", "ff", "ebr"), 0))
            for key, value in cost.items():
                part[key] += value
    return found


def _steps(name: str, scopes: set[str]) -> list[str]:
    steps = name.split(".")
    while steps and ".".join(steps) not in scopes:
        steps.pop()
    return steps
