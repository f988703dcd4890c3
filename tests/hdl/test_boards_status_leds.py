"""The LEDs' meaning."""

from typing import Any

import pytest
from amaranth.sim import Simulator

from afflux_hdl.boards import status_leds
from afflux_hdl.boards.status_leds import PURPOSES, StatusLeds
from tests.support.planting import names_with

PAUSE_BITS = 4
PAUSE = 1 << PAUSE_BITS


def check(built: Any) -> None:
    part = built(pause_bits=PAUSE_BITS)

    async def run(ctx: Any) -> None:
        async def shows(cycles: int) -> dict[str, list[int]]:
            seen: dict[str, list[int]] = {name: [] for name in PURPOSES}
            for _ in range(cycles):
                await ctx.tick()
                for name in PURPOSES:
                    seen[name].append(ctx.get(getattr(part, name)))
            return seen

        seen = await shows(4 * PAUSE)
        assert not any(map(any, seen.values()))
        ctx.set(part.has_link, 1)
        seen = await shows(9)
        assert not any(seen["configured"] + seen["combined"])
        ctx.set(part.has_address, 1)
        await shows(2)
        seen = await shows(4 * PAUSE)
        for name, lit in (("configured", 1), ("link", 1), ("activity", 1), ("combined", 1)):
            assert set(seen[name]) == {lit}
        assert not any(seen["fault"])
        # A frame darkens the LED for a moment, and one that comes at once does not lengthen that.
        ctx.set(part.frame, 1)
        seen = await shows(2 * PAUSE - 2)
        ctx.set(part.frame, 0)
        for name in ("activity", "combined"):
            assert PAUSE - 2 <= seen[name].count(0) <= PAUSE + 2
            assert seen[name][-1]
        await shows(4 * PAUSE)
        ctx.set(part.faulty, 1)
        await shows(1)
        ctx.set(part.faulty, 0)
        await shows(2)
        seen = await shows(4 * PAUSE)
        assert all(seen["fault"]) and all(seen["activity"])
        assert seen["combined"].count(1) == 2 * PAUSE

    simulator = Simulator(part)
    simulator.add_clock(2e-8)
    simulator.add_testbench(run)
    simulator.run()


def test_each_led_shows_what_is_written() -> None:
    check(StatusLeds)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("(dark == 0) | dark[-1]", "dark == 0"),
        ("m.d.sync += fault.eq(1)", "m.d.sync += fault.eq(0)"),
        ("~fault & self.has_address & lit", "~fault & self.has_link & lit"),
        ("self.activity.eq(self.has_address & lit)", "self.activity.eq(lit)"),
    ],
)
def test_planted_bugs_are_noticed(right: str, wrong: str) -> None:
    with pytest.raises(AssertionError):
        check(names_with(status_leds, right, wrong)["StatusLeds"])
