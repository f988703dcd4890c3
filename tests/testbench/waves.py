"""A counter, to try with it what becomes of the waves of a test that passes, fails or hangs."""

from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge

PERIOD_NS = 4
TOP = "counter"
VERILOG = f"""
module {TOP}(input clk, output reg [299:0] count);
  initial count = 0;
  always @(posedge clk) count <= count + 1;
endmodule
"""


async def run(dut: Any, cycles: int) -> None:
    """Let so many cycles pass."""
    Clock(dut.clk, PERIOD_NS, unit="ns").start(start_high=False)
    for _ in range(cycles):
        await RisingEdge(dut.clk)


@cocotb.test()
async def passes(dut: Any) -> None:
    """Count to ten."""
    await run(dut, 10)


@cocotb.test()
async def fails(dut: Any) -> None:
    """Count to twenty, and fail."""
    await run(dut, 20)
    raise AssertionError("as it is meant to")


@cocotb.test()
async def hangs(dut: Any) -> None:
    """Never end."""
    await run(dut, 1 << 60)
