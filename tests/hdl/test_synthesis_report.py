"""Counts, comparisons, and the surroundings of the engine in an ECP5."""

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from afflux_hdl.engine import verilog
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.synthesis import __main__ as command
from afflux_hdl.synthesis import ecp5, tools, ultrascale
from afflux_hdl.synthesis.comparison import compare, read
from afflux_hdl.synthesis.netlist import Netlist

RAM_SCOPE = {
    "type": "$scopeinfo",
    "attributes": {"module": "$paramod\\afflux_ram\\WIDTH=8", "module_src": "a.v:1.1-9.9"},
    "connections": {},
    "port_directions": {},
}


def netlist(*cells: tuple[str, str]) -> Netlist:
    """Return cells by name and type, without connections; and a large memory called `e.bank`."""
    drawn: dict[str, Any] = {
        name: {"type": kind, "attributes": {}, "connections": {}, "port_directions": {}}
        for name, kind in cells
    }
    content = {"cells": {**drawn, "e.bank": RAM_SCOPE}, "netnames": {}, "ports": {}}
    return Netlist.parse({"modules": {"m": content}}, "m")


def test_counts_what_each_primitive_takes() -> None:
    counted = ultrascale.count(
        netlist(
            ("a", "LUT6"),
            ("b", "LUT1"),
            ("c", "INV"),
            ("d", "RAM64M8"),
            ("e", "RAM256X1D"),
            ("f", "SRL16E"),
            ("g", "FDRE"),
            ("h", "FDSE"),
            ("i", "RAMB36E2"),
            ("j", "RAMB18E2"),
            ("k", "URAM288"),
            ("l", "MUXF7"),
        )
    )
    assert counted == {
        "lut": 3 + 8 + 8 + 1,
        "lut_memory": 16,
        "lut_shift": 1,
        "ff": 2,
        "bram": 1.5,
        "uram": 1,
        "dsp": 0,
        "carry": 0,
    }


def test_a_large_memory_belongs_into_block_or_ultra_ram_once() -> None:
    bank = "e.bank.content"
    good = netlist((f"{bank}.0.0", "URAM288"), (f"{bank}.0.1", "URAM288"))
    assert ultrascale.misplaced(good) == []
    assert ultrascale.memories(good) == {bank: {"copies": 1, "primitives": {"URAM288": 2}}}


@pytest.mark.parametrize(
    "cells",
    [
        [("e.bank.content.0.0", "URAM288"), ("e.bank.content.1.0", "URAM288")],
        [("e.bank.content.0.0.genblk1.genblk1[0].genblk1.slice", "RAM256X1D")],
        [("$1", "FDRE")],
    ],
    ids=["second copy", "memory of LUTs", "registers"],
)
def test_sees_a_large_memory_elsewhere(cells: list[tuple[str, str]]) -> None:
    assert ultrascale.misplaced(netlist(*cells)) == ["e.bank"]


def test_comparison_shows_what_differs() -> None:
    before = {"lut": 200, "same": 1, "path": {"stage": "admit"}, "gone": 3}
    after = {"lut": 150, "same": 1, "path": {"stage": "merge"}, "new": True}
    rows = [line.split() for line in compare(before, after).splitlines()]
    assert rows == [
        ["before", "after", "difference"],
        ["gone", "3", "-"],
        ["lut", "200", "150", "-50", "(-25.0", "%)"],
        ["new", "-", "True"],
        ["path.stage", "admit", "merge"],
    ]
    assert compare(before, before) == "no differences\n"


def test_comparison_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text(json.dumps({"fmax_mhz": 130.0}))
    new.write_text(json.dumps({"fmax_mhz": 131.3}))
    assert command.main(["--only", "none", "--output", str(new), "--compare", str(old)]) == 0
    assert "fmax_mhz   130.0  131.3  +1.3 (+1.0 %)" in capsys.readouterr().out


def test_there_is_nothing_to_compare_with() -> None:
    with pytest.raises(ValueError, match="no_such_commit is neither"):
        read("no_such_commit")


def result(
    lut_share: float, levels: int, misplaced: list[str], mhz: float | None
) -> dict[str, Any]:
    return {
        "lut_share_u50": lut_share,
        "logic_levels": levels,
        "ultrascale": {"memories_misplaced": misplaced},
        "fmax_mhz": mhz,
        "ecp5": {},
    }


def test_targets() -> None:
    assert all(command.targets(result(0.099, 8, [], 125.0)).values())
    assert not any(command.targets(result(0.1, 9, ["e.bank"], 124.9)).values())
    assert not command.targets(result(0.099, 8, [], None))["fmax_mhz"]
    assert command.targets({}) == {}


@functools.cache
def small_engine() -> str:
    return verilog.generate(Parameters(bus_bits=32, workers=2, lanes=1, jobs=1, slots=2))


def test_the_wrapper_connects_every_port_of_the_engine() -> None:
    text = small_engine()
    ports = ecp5.ports(text, verilog.MODULE)
    around = ecp5.wrapper(text, verilog.MODULE)
    assert {("input", "rx_data", 32), ("output", "tx_data", 32), ("input", "clk", 1)} <= set(ports)
    for _, name, _ in ports:
        assert f".{name}(" in around
    driven = [port for port in ports if port[0] == "input" and port[1] not in ("clk", "rst")]
    inputs = sum(width for _, _, width in driven)
    outputs = sum(width for kind, _, width in ports if kind == "output")
    assert f"reg [{inputs - 1}:0] taken;" in around
    assert f"reg [{outputs - 1}:0] given_0;" in around


def test_memories_with_attributes_exist() -> None:
    """Yosys passes over an attribute of a memory that is not there."""
    text = small_engine()
    for memory in (*ecp5.DISTRIBUTED, *ecp5.NEVER_BOTH):
        part, _, name = memory.rpartition(".")
        start = f"module \\{verilog.MODULE}.engine.{part} "
        module = text.partition(start)[2].partition("endmodule")[0]
        assert f" {name} [" in module, memory


def test_a_module_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ValueError, match="no module x"):
        ecp5.ports("module y(a);\n  input a;\nendmodule\n", "x")


def step(kind: str, delay: float, start: str, end: str) -> dict[str, Any]:
    return {"type": kind, "delay": delay, "from": {"cell": start}, "to": {"cell": end}}


def test_reads_what_nextpnr_reports() -> None:
    path = [
        step("clk-to-q", 0.5, "a", "a"),
        step("routing", 1.0, "a", "b"),
        step("logic", 0.25, "b", "b"),
        step("routing", 2.0, "b", "c"),
        step("setup", 0.25, "c", "c"),
    ]
    use = {"TRELLIS_COMB": 5, "TRELLIS_FF": 6, "DP16KD": 7}
    document = {
        "fmax": {"clk": {"achieved": 130.456}},
        "critical_paths": [
            {"from": "<async>", "to": "posedge clk", "path": []},
            {"from": "posedge clk", "to": "posedge clk", "path": path},
        ],
        "utilization": {name: {"used": n, "available": 10 * n} for name, n in use.items()},
    }
    assert ecp5.parse_report(document) == {
        "fmax_mhz": 130.46,
        "lut4": 5,
        "ff": 6,
        "ebr": 7,
        "available": {"lut4": 50, "ff": 60, "ebr": 70},
        "longest_path": {
            "start": "a",
            "end": "c",
            "logic_ns": 1.0,
            "routing_ns": 3.0,
            "cells": 1,
        },
    }
    document["fmax"] = {}
    with pytest.raises(ValueError, match="one clock"):
        ecp5.parse_report(document)


LOG = """Info: Device utilisation:
Info: \t              DP16KD:      47/    108    43%
Info: \t          TRELLIS_FF:   13744/  43848    31%
Info: \t        TRELLIS_COMB:   16481/  43848    37%
Info: Max frequency for clock '$glbnet$clk': 95.49 MHz (FAIL at 125.00 MHz)
Info:     iter=30 wires=407290 overused=1874 overuse=1883 archfail=NA
"""
PLACED = {
    "fmax_mhz": None,
    "fmax_mhz_placed": 95.49,
    "lut4": 16481,
    "ff": 13744,
    "ebr": 47,
    "available": {"lut4": 43848, "ff": 43848, "ebr": 108},
}


def test_reads_what_nextpnr_says_of_a_placement() -> None:
    assert ecp5.parse_log(LOG) == PLACED
    assert ecp5.parse_log(LOG.partition("Info: Max")[0]) is None


@pytest.mark.parametrize("placed", [True, False])
def test_routing_that_does_not_end_is_given_up(
    placed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "slow-router"
    slow.write_text(f"#!/bin/sh\ncat <<'END'\n{LOG if placed else ''}\nEND\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setattr(tools, "NEXTPNR", str(slow))
    if placed:
        assert ecp5.place_and_route(1, tmp_path, print, limit_s=1) == PLACED
    else:
        with pytest.raises(tools.ToolTimeout, match="had not ended after 1 s"):
            ecp5.place_and_route(1, tmp_path, print, limit_s=1)
