"""The Verilog of the tops: ports, primitives, and that it goes together with their models.

The simulation from pins to pins is in `tests/sim`.
"""

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from afflux_hdl.boards.ecp5_top import (
    APPLIANCE_MODULE,
    TOP_MODULE,
    generate_appliance,
    generate_top,
    top_pins,
)
from afflux_hdl.boards.table import BOARDS
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.node.parameters import NodeParameters
from afflux_hdl.synthesis.ecp5 import ports
from afflux_sim.rtl.compile.toolchain import find_toolchain
from afflux_sim.rtl.compile.verilator import BOARD
from tests.support.refusals import refused
from tests.support.stand_in_management import StandInManagement

NODE = NodeParameters(
    engine=Parameters(bus_bits=32, workers=2, lanes=1, jobs=1, slots=2),
    host_buffer_bytes=2048,
    echo_buffer_bytes=2048,
)
TWO_PORTS = replace(NODE, engine=replace(NODE.engine, ports=2))


def lint(folder: Path, text: str, top: str, *options: str) -> None:
    """Have Verilator put the text and the models together: ports that do not fit are errors."""
    (folder / "top.v").write_text(text)
    toolchain = find_toolchain()
    # Of style, Amaranth's Verilog has its own.
    style = ["-Wno-fatal", "-Wno-style", "-Wno-WIDTH", "-Wno-STMTDLY", "-Wno-TIMESCALEMOD"]
    done = subprocess.run(
        [
            *toolchain.verilator_command,
            *("--lint-only", *style, *options, "--top-module", top),
            *(str(BOARD.cells), str(folder / "top.v")),
        ],
        capture_output=True,
        text=True,
        check=False,
        env=toolchain.environment(),
        timeout=120,
    )
    wrong = [line for line in done.stderr.splitlines() if re.match(r"%(Error|Warning-PIN)", line)]
    assert done.returncode == 0 and not wrong, done.stderr


def test_the_top_of_a_board_has_its_pins_and_goes_together_with_the_models(tmp_path: Path) -> None:
    board = BOARDS["ecpix5-45f"]
    text = generate_top(board, NODE, StandInManagement())
    found = {name: width for _, name, width in ports(text, TOP_MODULE)}
    assert found == {name: len(pins) for name, pins in top_pins(board)}
    count = {
        name: len(re.findall(rf"^  {name} ", text, re.MULTILINE))
        for name in ("IDDRX1F", "ODDRX1F", "DELAYG", "DCCA", "EHXPLLL", "OSCG", "SGSR")
    }
    assert count == {
        "IDDRX1F": 5,
        "ODDRX1F": 6,
        "DELAYG": 11,
        "DCCA": 3,
        "EHXPLLL": 1,
        "OSCG": 1,
        "SGSR": 1,
    }
    # The delay of TXC, 2 ns in steps of 25 ps, and of nothing else.
    assert sorted(map(int, re.findall(r"\.DEL_VALUE\(32'd(\d+)\)", text))) == [0] * 10 + [80]
    lint(tmp_path, text, TOP_MODULE, "--timing", "-DAFFLUX_DELAYS")


@pytest.mark.long
def test_the_top_with_both_ports_of_a_board_goes_together_with_the_models(tmp_path: Path) -> None:
    board = BOARDS["colorlight-5a-75b"]
    text = generate_top(board, TWO_PORTS, StandInManagement())
    found = {name: width for _, name, width in ports(text, TOP_MODULE)}
    assert found == {name: len(pins) for name, pins in top_pins(board, 2)}
    assert "rgmii_rx_clk_1" in found
    count = {
        name: len(re.findall(rf"^  {name} ", text, re.MULTILINE))
        for name in ("IDDRX1F", "ODDRX1F", "DCCA", "EHXPLLL")
    }
    assert count == {"IDDRX1F": 10, "ODDRX1F": 12, "DCCA": 4, "EHXPLLL": 1}
    lint(tmp_path, text, TOP_MODULE, "--timing", "-DAFFLUX_DELAYS")


@pytest.mark.long
def test_the_appliance_with_bare_clocks_goes_together_with_the_models(tmp_path: Path) -> None:
    text = generate_appliance(NODE, StandInManagement())
    found = {name for _, name, _ in ports(text, APPLIANCE_MODULE)}
    assert {"clk", "rst", "clk125", "rgmii_rx_clk", "rgmii_tx_data", "entropy", "link"} <= found
    lint(tmp_path, text, APPLIANCE_MODULE)


def test_a_delay_that_the_part_does_not_have_is_refused() -> None:
    with refused("a delay must be 0 to 3175 ps, not 4000"):
        generate_appliance(NODE, StandInManagement(), tx_clock_delay_ps=4000)
