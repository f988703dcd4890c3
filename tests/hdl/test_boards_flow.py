"""The flow's own parts: constraints, script, what is kept of nextpnr's report, and the report.

A netlist of a small board is made, too; whole bitstreams are made by `make bitstream`.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from afflux_hdl.boards import __main__ as command
from afflux_hdl.boards.flow import constraints, script, summary, use_by_part, verilog_of
from afflux_hdl.boards.placed_settings import PLACEHOLDER
from afflux_hdl.boards.report import missed, report, worst
from afflux_hdl.boards.table import BOARDS
from afflux_hdl.synthesis import tools
from afflux_hdl.synthesis.tools import ToolError

CELLS = {"TRELLIS_COMB": 20_000, "TRELLIS_FF": 15_000, "DP16KD": 50}


def placed(**fmax_mhz: float) -> dict[str, Any]:
    """Return a report as nextpnr writes it."""
    nets = {"sync": "clk", "rx": "port.mac.widen.rx_clk", "tx": "port.mac.narrow.tx_clk"}
    nets["osc"] = "locked.osc_clk"
    clocks = {"sync": 50.0, "rx": 125.0, "tx": 125.0, "osc": 77.5}
    return {
        "fmax": {
            f"$glbnet${nets[name]}": {
                "achieved": fmax_mhz.get(name, 2 * clocks[name]),
                "constraint": clocks[name],
            }
            for name in nets
        },
        "utilization": {
            name: {"used": used, "available": 2 * used} for name, used in CELLS.items()
        },
    }


def entry(**seeds: dict[str, float]) -> dict[str, Any]:
    return {
        "device": "LFE5U-25F-6CABGA256",
        "seeds": {
            name.removeprefix("seed"): summary(placed(**fmax)) for name, fmax in seeds.items()
        },
        "seed_in_bitstream": 1,
    }


def test_constraints_name_every_pin_once_and_both_clocks() -> None:
    text = constraints(BOARDS["ecpix5-85f"])
    assert text.count("LOCATE COMP") == text.count("IOBUF PORT") == 18
    assert 'LOCATE COMP "rgmii_tx_data[3]" SITE "A8";' in text
    assert 'IOBUF PORT "rgmii_rx_data[0]" IO_TYPE=LVCMOS33 PULLMODE=UP;' in text
    assert 'FREQUENCY PORT "clock" 100 MHZ;' in text
    assert 'FREQUENCY PORT "rgmii_rx_clk" 125 MHZ;' in text


def test_the_worst_seed_counts_and_the_engine_needs_its_margin() -> None:
    good = entry(seed1={"sync": 60.0}, seed2={"sync": 55.1, "rx": 125.3})
    assert worst(good)["sync"]["fmax_mhz"] == 55.1
    assert worst(good)["rx"]["fmax_mhz"] == 125.3
    assert missed(good) == []
    assert missed(entry(seed1={"sync": 60.0}, seed2={"sync": 54.9})) == ["sync"]
    assert missed(entry(seed1={"tx": 124.9})) == ["tx"]


def test_a_clock_that_has_another_name_now_is_an_error() -> None:
    document = placed()
    document["fmax"]["$glbnet$other"] = document["fmax"].pop("$glbnet$clk")
    with pytest.raises(ValueError, match=r"clocks of \['osc', 'rx', 'tx'\], not of"):
        summary(document)


def test_use_is_summed_over_modules_that_are_in_others() -> None:
    statistics = {
        "modules": {
            "\\top": {"num_cells_by_type": {"LUT4": 5, "part": 2, "EHXPLLL": 1}},
            "\\part": {"num_cells_by_type": {"LUT4": 10, "CCU2C": 3, "TRELLIS_FF": 7, "DP16KD": 1}},
        }
    }
    assert use_by_part(statistics) == {
        "top": {"lut4": 37, "ff": 14, "ebr": 2},
        "part": {"lut4": 16, "ff": 7, "ebr": 1},
    }


def test_the_report_has_slack_use_and_sizes_and_not_the_key() -> None:
    board = BOARDS["colorlight-5a-75b"]
    text = report(board, board.node, PLACEHOLDER, entry(seed1={"sync": 52.0}))
    assert "sync    50.00 MHz, could be   52.00  slack   0.77 of 20.00 ns  x 1.04  MISSED" in text
    assert "lut4   20,000 of  40,000   50.0%" in text
    assert "frames of up to 1160 bytes" in text
    assert PLACEHOLDER.key.hex() not in text and str(PLACEHOLDER.key) not in text


def test_of_several_seeds_the_one_with_most_to_spare_is_taken() -> None:
    seeds = entry(seed1={"sync": 60.0, "rx": 126.0}, seed2={"sync": 56.0, "rx": 139.0})["seeds"]
    assert command._best(seeds) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ecpix6"], "error: no board is called 'ecpix6'"),
        (["ecpix5-85f", "--seeds", "0"], "error: --seeds must be at least 1, not 0"),
        (["ecpix5-85f", "--slots", "12"], "error: slots must be a power of two"),
        (["ecpix5-85f", "--address", "10.0.0"], "error: address must be an IPv4 address"),
    ],
)
def test_a_wrong_option_is_named_and_nothing_is_built(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = ["--output", str(tmp_path / "out"), "--figures", str(tmp_path / "figures.json")]
    assert command.main([*words, *folders]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "figures.json").exists()


@pytest.mark.slow
@pytest.mark.timeout(900)  # The first call on a machine compiles Yosys.
@pytest.mark.usefixtures("compiled_yosys")
def test_a_small_netlist_has_its_memories_under_their_names(tmp_path: Path) -> None:
    board = BOARDS["colorlight-5a-75b"]
    small = replace(board.engine, workers=1, lanes=1, jobs=1, slots=2)
    (tmp_path / "board.v").write_text(verilog_of(board, replace(board.node, engine=small)))
    tools.run_yosys(script(only_check=True), tmp_path, "check", lambda text: None)
    cells = json.loads((tmp_path / "board_cells.json").read_text())["design"]["num_cells_by_type"]
    assert (cells["EHXPLLL"], cells["IDDRX1F"], cells["ODDRX1F"]) == (1, 5, 6)


def test_a_tool_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "ECPPACK", "yowasp-ecppack-of-another-name")
    with pytest.raises(ToolError, match="yowasp-ecppack-of-another-name is not installed"):
        tools.run_ecppack([], tmp_path, "pack", print)
