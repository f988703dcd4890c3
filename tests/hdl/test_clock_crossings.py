"""Every place where a design crosses between clocks is one that is meant to, and is constrained.

The crossings are read from the netlist, register by register; the names of the constraints are read
from their text. Neither knows of the other.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from afflux_hdl.boards.ecp5_top import APPLIANCE_MODULE, generate_appliance
from afflux_hdl.boards.port import PINS_IN, of_port
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.management.management import Management
from afflux_hdl.node.parameters import NodeParameters
from afflux_hdl.port import node_port
from afflux_hdl.port import verilog as port_verilog
from afflux_hdl.port.verilog import PORT_MODULE, PortParameters, generate_port
from afflux_hdl.vivado.crossings import constraints, find_crossings
from afflux_sim.rtl.compile.verilator import BOARD
from tests.support.clock_crossings import Crossing, find_all_crossings, netlist_of, paths_of
from tests.support.management_board import settings_for
from tests.support.planting import names_with
from tests.support.stand_in_management import StandInManagement

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compiled_yosys")]

NODE = NodeParameters(
    engine=Parameters(bus_bits=32, workers=2, lanes=1, jobs=1, slots=2),
    host_buffer_bytes=2048,
    echo_buffer_bytes=2048,
)
MEANT = {"entropy"}
"""Signals that belong to no clock, and are sampled as they are."""


def clock_of(name: str) -> str:
    """Return the clock of a pin of the node behind a MAC."""
    if name.endswith("rst") or name in MEANT:
        return ""
    return next((f"{mac}_clk" for mac in ("mac_rx", "mac_tx") if name.startswith(mac)), "clk")


def crossings_of_port(folder: Path, management: Any = None) -> tuple[str, list[Crossing]]:
    verilog = generate_port(PortParameters(node=NODE, mac_bits=32), management)
    netlist = netlist_of(verilog, PORT_MODULE, folder)
    found = find_all_crossings(netlist, {name: clock_of(name) for name in netlist.inputs})
    return verilog, [each for each in found if each.source not in MEANT]


def check_port(folder: Path, management: Any = None) -> None:
    verilog, found = crossings_of_port(folder, management)
    synchronisers, resets, memories = paths_of(found)
    text = constraints(find_crossings(verilog), "port")
    parts = re.findall(r"^foreach crossing \{\n(.*?)^\} \{$", text, re.MULTILINE | re.DOTALL)
    named = [{line.strip().removeprefix("port/") for line in part.splitlines()} for part in parts]
    assert named[:2] == [synchronisers, resets]
    # A memory may lie deeper in the part that is named.
    assert len(named[2]) == len(memories)
    assert all(any(f"{path}/".startswith(f"{part}/") for part in named[2]) for path in memories)
    assert len(synchronisers) == 5 and len(resets) == 3 and len(memories) == 2


def test_what_crosses_behind_a_mac_is_what_the_constraints_name(tmp_path: Path) -> None:
    check_port(tmp_path)


@pytest.mark.long
def test_so_it_is_with_a_management(tmp_path: Path) -> None:
    settings = settings_for("10.0.0.9", controller="10.0.0.1")
    check_port(tmp_path, Management(settings=settings, clock_hz=1e8))


@pytest.mark.long
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        # A pulse of one clock counted by another; events of a clock that is not theirs; a reset
        # that belongs to the other clock.
        ("self.tx_cut + crossing.cut", "self.tx_cut + to_mac.paused"),
        ('bits=EVENT_BITS, i_domain="mac_rx"', 'bits=EVENT_BITS, i_domain="mac_tx"'),
        ("to_mac.reset.eq(self.mac_tx_reset)", "to_mac.reset.eq(self.mac_rx_reset)"),
    ],
)
def test_a_crossing_that_is_not_meant_is_found(
    right: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = names_with(node_port, right, wrong)
    monkeypatch.setattr(port_verilog, "NodePort", planted["NodePort"])
    with pytest.raises(AssertionError, match=r"Crossing\(to="):
        check_port(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("ports", [1, 2])
def test_what_crosses_in_a_board_is_synchronised(ports: int, tmp_path: Path) -> None:
    """In the tools for the ECP5 nobody names crossings: each must be right by its structure."""
    node = replace(NODE, engine=replace(NODE.engine, ports=ports))
    verilog = generate_appliance(node, StandInManagement())
    text = verilog + BOARD.cells.read_text(encoding="utf-8")
    netlist = netlist_of(text, APPLIANCE_MODULE, tmp_path)
    clocks = {
        of_port(f"rgmii_{name}", port): of_port("rgmii_rx_clk", port)
        for name in PINS_IN
        for port in range(ports)
    }
    found = find_all_crossings(netlist, {"rst": "clk", "entropy": "", **clocks})
    synchronisers, resets, memories = paths_of(each for each in found if each.source not in MEANT)
    mac = [
        f"port/{of_port('mac', port)}/{way}_crossing/fifo"
        for way in ("rx", "tx")
        for port in range(ports)
    ]
    counts = {f"{fifo}/{way}_cdc" for fifo in mac for way in ("produce", "consume")}
    assert counts <= synchronisers
    # Pulses and states of each port: the link twice, and that a frame was lost.
    assert len(synchronisers - counts) == 3 * ports
    assert memories == set(mac)
    assert {f"{fifo}/rst_cdc" for fifo in mac} <= resets
