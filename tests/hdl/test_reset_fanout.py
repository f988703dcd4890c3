"""The reset of designs for Vivado: one register behind all that crosses, which may be copied."""

import re

import pytest

from afflux_hdl.engine import verilog as engine_verilog
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.lib.top_level import RESET_FANOUT
from afflux_hdl.node.parameters import NodeParameters
from afflux_hdl.opennic.parameters import BoxParameters
from afflux_hdl.opennic.verilog import BOX_MODULE, generate_box
from afflux_hdl.port.verilog import PORT_MODULE, PortParameters, generate_port

SIZES = {"workers": 2, "lanes": 1, "jobs": 1, "slots": 2}


def top_of(verilog: str, module: str) -> str:
    (body,) = re.findall(rf"^module {module}\(.*?^endmodule", verilog, re.MULTILINE | re.DOTALL)
    return body


def copied(top: str) -> list[str]:
    """Return the registers that Vivado copies when they have too many loads."""
    marked = re.findall(r"\(\* max_fanout = 32'd(\d+) \*\)\s+reg \\?(\S+) += 1'h1;", top)
    assert {int(loads) for loads, _ in marked} <= {RESET_FANOUT}
    return sorted(name.partition("$")[0] for _, name in marked)


@pytest.mark.long
def test_of_a_box_both_resets_of_the_fast_clock() -> None:
    node = NodeParameters(engine=Parameters(bus_bits=512, **SIZES))
    top = top_of(generate_box(BoxParameters(node=node)), BOX_MODULE)
    assert copied(top) == ["rst", "shell_rst"]
    # Signals that have crossed go there and nowhere else: a synchroniser's register may not be
    # copied.
    for reset, crossing in (("rst", "nodes_reset"), ("shell_rst", "shell_reset")):
        (before,) = re.findall(rf"^ +{reset} <= (\S+?) ?;", top, re.MULTILINE)
        net = rf"(?<![\w.\\]){re.escape(before)}(?![\w$])"
        assert len(re.findall(rf"^(?!  wire ).*{net}", top, re.MULTILINE)) == 2
        assert re.search(rf" \\?{crossing}\S* +\([^;]*\.stage1\({net} ?\)", top)


def test_of_a_node_behind_a_mac() -> None:
    parameters = PortParameters(
        node=NodeParameters(engine=Parameters(bus_bits=32, **SIZES)), mac_bits=32
    )
    assert copied(top_of(generate_port(parameters), PORT_MODULE)) == ["rst"]


@pytest.mark.parametrize("bus_bits", [32, pytest.param(512, marks=pytest.mark.long)])
def test_others_are_left_to_their_tools(bus_bits: int) -> None:
    verilog = engine_verilog.generate(Parameters(bus_bits=bus_bits, **SIZES))
    assert "max_fanout" not in verilog
