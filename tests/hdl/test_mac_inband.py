"""The PHY's status between frames."""

from typing import Any

import pytest
from amaranth.sim import Simulator

from afflux_hdl.mac import inband
from afflux_hdl.mac.inband import InbandStatus
from tests.support.planting import names_with

UP, SLOW, TEN, DOWN, HALF, ONES = 0b1101, 0b1011, 0b1001, 0b1100, 0b0101, 0b1111


def check(built: Any) -> None:
    part = built()

    async def run(ctx: Any) -> None:
        async def idle(status: int, cycles: int) -> tuple[int, int]:
            ctx.set(part.valid, 0)
            ctx.set(part.error, 0)
            ctx.set(part.data, status | status << 4)
            await ctx.tick().repeat(cycles)
            return ctx.get(part.link), ctx.get(part.down)

        async def frame() -> None:
            for n in range(20):
                ctx.set(part.valid, 1)
                ctx.set(part.data, SLOW if n > 4 else 0x55)
                await ctx.tick()
            assert (ctx.get(part.link), ctx.get(part.down)) == (1, 0)

        # A PHY that gives no status shows nothing, or anything but a speed that there is.
        assert await idle(0, 20) == (0, 0)
        assert await idle(ONES, 20) == (0, 0)
        assert await idle(0b1110, 20) == (0, 0)
        assert await idle(DOWN, 20) == (0, 0)
        assert await idle(UP, 5) == (0, 0)
        assert await idle(UP, 1) == (1, 0)
        await frame()
        assert await idle(UP, 8) == (1, 0)
        # A glitch is too short to count, and so is what goes with RX_ER, at any length.
        assert await idle(DOWN, 3) == (1, 0)
        assert await idle(UP, 8) == (1, 0)
        ctx.set(part.error, 1)
        # Low-power idle, whose code would be a status too.
        ctx.set(part.data, 0x01)
        await ctx.tick().repeat(30)
        assert ctx.get(part.link)
        for status in (SLOW, TEN, HALF, DOWN, 0):
            assert await idle(status, 5) == (1, 0)
            assert await idle(status, 1) == (0, 1)
            assert await idle(ONES, 9) == (0, 1)
            assert await idle(UP, 6) == (1, 0)
            assert await idle(ONES, 9) == (1, 0)

    simulator = Simulator(part)
    simulator.add_clock(8e-9)
    simulator.add_testbench(run)
    simulator.run()


def check_first(built: Any) -> None:
    """Look at a link that is a wrong one from the beginning."""
    for status in (SLOW, TEN, HALF):
        part = built()

        async def run(ctx: Any, part: Any = part, status: int = status) -> None:
            ctx.set(part.data, status | status << 4)
            await ctx.tick().repeat(6)
            assert (ctx.get(part.link), ctx.get(part.down)) == (0, 1)

        simulator = Simulator(part)
        simulator.add_clock(8e-9)
        simulator.add_testbench(run)
        simulator.run()


def test_the_status_is_that_of_the_cycles_between_frames() -> None:
    check(InbandStatus)
    check_first(InbandStatus)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("~self.valid & ~self.error", "~self.valid"),
        ("~self.valid & ~self.error", "~self.error"),
        ("agreed = same == AGREED", "agreed = same == 2"),
        ("up & (speed == GIGABIT) & full_duplex", "up & (speed == GIGABIT)"),
        ("up & (speed == GIGABIT) & full_duplex", "up & full_duplex"),
        ("up & (speed == GIGABIT) & full_duplex", "(speed == GIGABIT) & full_duplex"),
        ("(given | up) & ~right", "~right"),
        ("(given | up) & ~right", "up & ~right"),
        ("agreed & (speed != RESERVED)", "agreed"),
    ],
)
def test_planted_bugs_are_noticed(right: str, wrong: str) -> None:
    with pytest.raises(AssertionError):
        check(names_with(inband, right, wrong)["InbandStatus"])
