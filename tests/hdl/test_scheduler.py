"""Deficit round robin: shares in bytes, and the longest wait, of classes that take all they get."""

import random
from collections import Counter
from collections.abc import Callable

import pytest
from amaranth.sim import Simulator

from afflux_hdl.engine.scheduler import Scheduler

CLASSES, QUANTUM = 5, 9


class Taker:
    """Takes the frames of a scheduler's classes, and notes whose they are.

    Attributes:
        taken: Class and cost of each frame, in order; -1 where no class was ready.
    """

    def __init__(self, cost: Callable[[int], int], queued: list[int]) -> None:
        self.scheduler = Scheduler(classes=CLASSES, quantum=QUANTUM)
        self.cost = cost
        self.queued = queued
        self.taken: list[tuple[int, int]] = []

    async def frame(self, ctx, *, room: bool = True, arrives: int | None = None) -> None:
        """Two cycles. `arrives`: a class that gets a frame in the second one."""
        part = self.scheduler
        ctx.set(part.phase, 1)
        ctx.set(part.ready, sum((count > 0) << n for n, count in enumerate(self.queued)))
        choice, valid = ctx.get(part.choice), ctx.get(part.valid)
        assert valid == (self.queued[choice] > 0)
        await ctx.tick()
        ctx.set(part.phase, 0)
        taken = bool(valid and room)
        ctx.set(part.taken, taken)
        if taken:
            cost = self.cost(choice)
            self.queued[choice] -= 1
            self.taken.append((choice, cost))
            ctx.set(part.cost, cost)
            ctx.set(part.more, self.queued[choice] > 0)
        elif room:
            self.taken.append((-1, 0))
        ctx.set(part.arrives, arrives is not None)
        ctx.set(part.arrived, arrives or 0)
        await ctx.tick()
        if arrives is not None:
            self.queued[arrives] += 1

    def run(self, testbench) -> None:
        simulator = Simulator(self.scheduler)
        simulator.add_clock(1e-6)
        simulator.add_testbench(testbench)
        simulator.run()


@pytest.mark.parametrize("stalls", [False, True])
def test_shares_are_equal_in_bytes_and_no_wait_is_longer_than_a_turn_of_each(stalls: bool) -> None:
    choose = random.Random(1)
    # One sends only the largest, one only the smallest, the others what comes.
    taker = Taker(
        lambda one: QUANTUM if one == 0 else 1 if one == 1 else choose.randint(1, QUANTUM),
        [10**6] * CLASSES,
    )

    async def testbench(ctx) -> None:
        for _ in range(4000):
            await taker.frame(ctx, room=not stalls or choose.random() < 0.6)

    taker.run(testbench)
    spent: Counter[int] = Counter()
    waits = dict.fromkeys(range(CLASSES), 0)
    for one, cost in taker.taken:
        assert one >= 0, "a bubble, though all are ready"
        spent[one] += cost
        assert waits[one] <= (CLASSES - 1) * (2 * QUANTUM - 1)
        waits = {n: 0 if n == one else wait + cost for n, wait in waits.items()}
    assert max(spent.values()) - min(spent.values()) <= 3 * QUANTUM


def test_what_is_overdrawn_is_not_forgotten_when_a_class_has_no_more() -> None:
    """A class that comes back each time with one largest frame gets no more than its share."""
    taker = Taker(lambda one: QUANTUM if one == 0 else 1, [1, 10**6, 0, 0, 0])

    async def testbench(ctx) -> None:
        for _ in range(3000):
            back = taker.queued[0] == 0
            await taker.frame(ctx, arrives=0 if back else None)

    taker.run(testbench)
    spent: Counter[int] = Counter()
    for one, cost in taker.taken:
        spent[one] += cost
    assert spent[0] <= spent[1] + 3 * QUANTUM


def test_a_class_that_announces_itself_to_an_idle_scheduler_is_next() -> None:
    taker = Taker(lambda _: 1, [0] * CLASSES)

    async def testbench(ctx) -> None:
        for one in (3, 3, 0, 4, 1):
            await taker.frame(ctx)
            await taker.frame(ctx, arrives=one)
            await taker.frame(ctx)

    taker.run(testbench)
    assert [one for one, _ in taker.taken] == [-1, -1, 3, -1, -1, 3] + [
        n for one in (0, 4, 1) for n in (-1, -1, one)
    ]


def test_no_class_that_has_nothing_is_waited_for() -> None:
    """Classes come and go at random: whenever one has a frame, one is taken."""
    choose = random.Random(2)
    taker = Taker(lambda _: choose.randint(1, QUANTUM), [0] * CLASSES)
    bubbles = 0

    async def testbench(ctx) -> None:
        nonlocal bubbles
        for _ in range(3000):
            waiting = sum(taker.queued)
            arrives = choose.randrange(CLASSES) if choose.random() < 0.9 else None
            await taker.frame(ctx, arrives=arrives)
            bubbles += waiting > 0 and taker.taken[-1][0] < 0

    taker.run(testbench)
    assert sum(one >= 0 for one, _ in taker.taken) > 2000
    assert bubbles == 0
