"""The PHY's status between frames."""

from typing import Any

import pytest
from amaranth.sim import Simulator

from afflux_hdl.mac import inband
from afflux_hdl.mac.inband import InbandStatus
from tests.support.planting import names_with

UP, SLOW, DOWN, HALF = 0b1101, 0b1011, 0b1100, 0b0101


def check(built: Any) -> None:
    part = built()

    async def run(ctx: Any) -> None:
        async def idle(status: int, cycles: int) -> tuple[int, int]:
            ctx.set(part.valid, 0)
            ctx.set(part.error, 0)
            ctx.set(part.data, status | status << 4)
            await ctx.tick().repeat(cycles)
            return ctx.get(part.link), ctx.get(part.wrong_speed)

        async def frame() -> None:
            for n in range(20):
                ctx.set(part.valid, 1)
                ctx.set(part.data, SLOW if n > 4 else 0x55)
                await ctx.tick()
            assert (ctx.get(part.link), ctx.get(part.wrong_speed)) == (1, 0)

        assert await idle(0, 20) == (0, 0)
        assert await idle(UP, 5) == (0, 0)
        assert await idle(UP, 1) == (1, 0)
        await frame()
        assert await idle(UP, 8) == (1, 0)
        # A glitch is too short to count, and so is a false carrier, at any length.
        assert await idle(DOWN, 3) == (1, 0)
        assert await idle(UP, 8) == (1, 0)
        ctx.set(part.error, 1)
        ctx.set(part.data, 0x0E)
        await ctx.tick().repeat(30)
        assert ctx.get(part.link)
        assert await idle(SLOW, 6) == (0, 1)
        assert await idle(HALF, 6) == (0, 0)
        assert await idle(UP, 6) == (1, 0)
        assert await idle(DOWN, 6) == (0, 0)

    simulator = Simulator(part)
    simulator.add_clock(8e-9)
    simulator.add_testbench(run)
    simulator.run()


def test_the_status_is_that_of_the_cycles_between_frames() -> None:
    check(InbandStatus)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("~self.valid & ~self.error", "~self.valid"),
        ("~self.valid & ~self.error", "~self.error"),
        ("agreed = same == AGREED", "agreed = same == 2"),
        ("up & gigabit & full_duplex", "up & gigabit"),
        ("up & ~gigabit", "up"),
    ],
)
def test_planted_bugs_are_noticed(right: str, wrong: str) -> None:
    with pytest.raises(AssertionError):
        check(names_with(inband, right, wrong)["InbandStatus"])
