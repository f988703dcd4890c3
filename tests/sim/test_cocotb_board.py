"""Runs the testbench of the whole board, from RGMII pins to RGMII pins; bugs in it are found."""

from pathlib import Path

import pytest

from afflux_sim.board.simulated_appliance import board_parameters
from afflux_sim.rtl.compile.cache import default_folder
from afflux_sim.rtl.compile.settings_file import ARGUMENT, settings_lines
from afflux_sim.rtl.compile.verilator import BOARD
from afflux_sim.rtl.verilated_board import verilog_of
from tests.scenarios.board_build import BOARD_BUILD, BOARD_SETTINGS
from tests.support.checkout import BUILD
from tests.testbench.simulator import build_verilog, run_module

# In process, other tests send the same to the same pins.
pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(900)]

FOLDER = BUILD / "cocotb"


def run(verilog: str, results: str, test: str, folder: Path) -> None:
    assert BOARD.cells is not None
    text = verilog + BOARD.cells.read_text(encoding="utf-8")
    build = build_verilog(FOLDER, text, BOARD.top)
    settings = folder / "settings.hex"
    settings.write_text(settings_lines(BOARD_SETTINGS.to_bytes()))
    run_module(
        build,
        FOLDER / "results" / results,
        "tests.testbench.board",
        top=BOARD.top,
        tests=[test],
        plusargs=[f"{ARGUMENT}{settings}"],
    )


@pytest.mark.parametrize(
    "test",
    ["four_workers_at_full_rate", "least_gap_that_a_receiver_sees", "from_a_slower_partner"],
)
def test_board(test: str, tmp_path: Path) -> None:
    verilog = verilog_of(board_parameters(**BOARD_BUILD), default_folder())
    run(verilog, f"board-{test}", test, tmp_path)
