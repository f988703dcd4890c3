"""Lane walk: every block of the bitmap, lowest lane first, every beat once."""

import random

import pytest
from amaranth.sim import Simulator

from afflux_hdl.engine.lane_walk import LaneWalk
from afflux_hdl.engine.parameters import Parameters


@pytest.mark.parametrize("built", [1, 2, 3, 5, 16])
@pytest.mark.parametrize("bus_bits", [32, 512])
def test_walks_through_all_beats(bus_bits: int, built: int) -> None:
    parameters = Parameters(bus_bits=bus_bits, lanes=built)
    choose = random.Random(2)
    bitmaps = [0, 1, 0x8000, 0xFFFF, *(choose.getrandbits(16) for _ in range(4))]
    bitmaps += [choose.getrandbits(16) >> (16 - built) for _ in range(8)]
    walk = LaneWalk(parameters)

    async def testbench(ctx) -> None:
        for bitmap in bitmaps:
            ctx.set(walk.load, 1)
            ctx.set(walk.present, bitmap)
            ctx.set(walk.step, 0)
            await ctx.tick()
            ctx.set(walk.load, 0)
            ctx.set(walk.step, 1)
            lanes = [lane for lane in range(built) if bitmap >> lane & 1]
            expected = [(lane, beat) for lane in lanes for beat in range(parameters.block_beats)]
            for number, place in enumerate(expected):
                assert ctx.get(walk.any)
                assert (ctx.get(walk.lane), ctx.get(walk.beat)) == place
                assert bool(ctx.get(walk.last)) == (number == len(expected) - 1)
                assert bool(ctx.get(walk.last_but_one)) == (number == len(expected) - 2)
                await ctx.tick()
            assert not ctx.get(walk.any)

    simulator = Simulator(walk)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()
