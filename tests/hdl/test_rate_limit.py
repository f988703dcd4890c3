"""The rate limit beside a plain count of tokens, and its bound."""

import random

from amaranth.sim import Simulator

from afflux_hdl.lib.rate_limit import RateLimit
from tests.support.refusals import refused

BURST, PERIOD_BITS = 5, 4
PERIOD = 1 << PERIOD_BITS


def play(part: type[RateLimit], wanted: float, cycles: int, seed: int = 1) -> list[int]:
    """Take a token in that share of the cycles, if there is one. Return when one was taken."""
    choose = random.Random(seed)
    limit = part(burst=BURST, period_bits=PERIOD_BITS)
    taken: list[int] = []

    async def testbench(ctx) -> None:
        tokens = BURST
        for cycle in range(cycles):
            assert ctx.get(limit.ready) == (tokens > 0), cycle
            take = tokens > 0 and choose.random() < wanted
            ctx.set(limit.take, take)
            if take:
                taken.append(cycle)
            # The bucket is as full as it was before the token was taken.
            added = cycle % PERIOD == PERIOD - 1 and tokens < BURST
            tokens += added - take
            await ctx.tick()

    simulator = Simulator(limit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()
    return taken


def check(part: type[RateLimit]) -> None:
    for wanted in (1.0, 0.3, 1 / PERIOD, 0.02):
        cycles = 60 * PERIOD
        taken = play(part, wanted, cycles)
        for first, begin in enumerate(taken):
            for last in range(first, len(taken)):
                window = taken[last] - begin + 1
                assert last - first + 1 <= BURST + 1 + window / PERIOD
        if wanted == 1.0:
            assert taken[:BURST] == list(range(BURST))
            # The last token comes after the last cycle.
            assert len(taken) == BURST + cycles // PERIOD - 1


def test_events_are_within_the_rate() -> None:
    check(RateLimit)


def test_nothing_less_than_one() -> None:
    for sizes in ({"burst": 0, "period_bits": 4}, {"burst": 4, "period_bits": 0}):
        with refused("at least 1"):
            RateLimit(**sizes)
