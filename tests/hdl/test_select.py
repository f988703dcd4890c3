"""Choice by number: every number, those without a value included."""

import pytest
from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator

from afflux_hdl.lib.mux_tree import select


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 8])
def test_gives_the_value_of_each_number_or_0(count: int) -> None:
    values = [11 * n + 3 for n in range(count)]
    number, chosen = Signal(3), Signal(8)
    m = Module()
    m.d.comb += chosen.eq(select(values, number))

    async def testbench(ctx) -> None:
        for n in range(8):
            ctx.set(number, n)
            await ctx.delay(1e-6)
            assert ctx.get(chosen) == (values[n] if n < count else 0)

    simulator = Simulator(m)
    simulator.add_testbench(testbench)
    simulator.run()
