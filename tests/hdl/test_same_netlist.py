"""Netlists are compared by what they do: other names and modules pass, other behaviour does not."""

from pathlib import Path

import pytest

from tests.formal.same_netlist import Difference, prove_same

OLD = """
module sums(input clk, input rst, input [7:0] a, input [3:0] at, output [7:0] total,
            output [7:0] held);
  reg [7:0] sum = 8'h00, previous = 8'h01;
  reg [7:0] content [0:15];
  reg [7:0] read_data;
  initial content[0] = 8'h00;
  always @(posedge clk) begin
    sum <= sum + a;
    previous <= sum;
    if (rst) begin sum <= 8'h00; previous <= 8'h01; end
    content[at] <= previous;
    read_data <= content[at];
  end
  assign total = previous, held = read_data;
endmodule
"""

NEW = """
module accumulate(input clock, input clear, input [7:0] addend, output [7:0] value);
  reg [7:0] accumulator = 8'h00, delayed = 8'h01;
  wire [8:0] next = {1'b0, addend} + accumulator;
  always @(posedge clock) begin
    if (clear) begin accumulator <= 8'h00; delayed <= 8'h01; end
    else begin accumulator <= next[7:0]; delayed <= accumulator; end
  end
  assign value = delayed;
endmodule

module sums(input clk, input rst, input [7:0] a, input [3:0] at, output [7:0] total,
            output [7:0] held);
  reg [7:0] words [0:15];
  reg [7:0] word;
  initial words[0] = 8'h00;
  accumulate inner(.clock(clk), .clear(rst), .addend(a), .value(total));
  always @(posedge clk) begin
    words[at] <= total;
    word <= words[at];
  end
  assign held = word;
endmodule
"""

WRONG = {
    "a sum": ("accumulator <= next[7:0]", "accumulator <= next[8:1]"),
    "a later register": ("delayed <= accumulator;", "delayed <= next[7:0];"),
    "an initial value": ("delayed = 8'h01", "delayed = 8'h00"),
    "a value after reset": ("delayed <= 8'h01", "delayed <= 8'h00"),
    "an output": ("held = word", "held = ~word"),
    "what is written": ("words[at] <= total", "words[at] <= total + 1"),
    "where it is written": ("words[at] <= total", "words[at ^ 1] <= total"),
    "when it is written": ("words[at] <= total", "if (a[0]) words[at] <= total"),
    "an initial word": ("words[0] = 8'h00", "words[0] = 8'h01"),
    "a read while it is written": ("word <= words[at]", "word <= total"),
    "an edge of the clock": ("always @(posedge clock)", "always @(negedge clock)"),
}


def test_other_names_and_modules_are_the_same(tmp_path: Path) -> None:
    # Two registers, the ports of the memory, and the register behind that for reading.
    assert prove_same(tmp_path, OLD, NEW, "sums") == 5


LONG = ("a later register", "a value after reset", "an output", "an edge of the clock")


@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=pytest.mark.long) if what in LONG else what for what in WRONG]
)
def test_a_difference_is_found(what: str, tmp_path: Path) -> None:
    right, wrong = WRONG[what]
    assert NEW.count(right) == 1
    with pytest.raises(Difference) as caught:
        prove_same(tmp_path, OLD, NEW.replace(right, wrong), "sums")
    print(f"{what}: {caught.value}")


def test_the_difference_is_named(tmp_path: Path) -> None:
    with pytest.raises(Difference, match="not the same: total D"):
        prove_same(tmp_path, OLD, NEW.replace("delayed <= acc", "delayed <= 1 + acc"), "sums")
