"""The queue beside a plain list: order, level, latency, and what a full one does."""

import random
from collections import deque

import pytest
from amaranth.lib import data
from amaranth.sim import Simulator

from afflux_hdl.lib.queue import Queue
from tests.support.refusals import refused

SHAPE = data.StructLayout({"number": 12, "flag": 1})


def play(
    queue: Queue, offers: float, takes: float, cycles: int, *, depth: int, always_ready: bool
) -> int:
    """Offer and take at random, and compare. Return how many payloads were lost."""
    choose = random.Random(1)
    inside: deque[tuple[int, int]] = deque()
    lost = 0

    async def testbench(ctx) -> None:
        nonlocal lost
        taken = 0
        for _ in range(cycles):
            payload = choose.randrange(1 << 12), choose.randrange(2)
            offered, wanted = choose.random() < offers, choose.random() < takes
            ctx.set(queue.i.payload, {"number": payload[0], "flag": payload[1]})
            ctx.set(queue.i.valid, offered)
            ctx.set(queue.o.ready, wanted)
            assert ctx.get(queue.level) == len(inside)
            assert always_ready or ctx.get(queue.i.ready) == (len(inside) < depth)
            full = len(inside) == depth
            if ctx.get(queue.o.valid):
                out = ctx.get(queue.o.payload)
                assert (out.number, out.flag) == inside[0]
                if wanted:
                    inside.popleft()
                    taken += 1
            if offered and not full:
                inside.append(payload)
            lost += offered and full
            await ctx.tick()
        assert taken > cycles * min(offers, takes) / 2

    simulator = Simulator(queue)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()
    return lost


@pytest.mark.parametrize("always_ready", [False, True])
@pytest.mark.parametrize("buffered", [False, True])
@pytest.mark.parametrize("depth", [3, pytest.param(5, marks=pytest.mark.long), 16])
def test_payloads_come_out_in_order(depth: int, buffered: bool, always_ready: bool) -> None:
    for offers, takes in ((0.9, 0.9), (0.9, 0.3), (0.3, 0.9)):
        queue = Queue(SHAPE, depth=depth, buffered=buffered, always_ready=always_ready)
        lost = play(queue, offers, takes, 500, depth=depth, always_ready=always_ready)
        assert lost or offers < takes or offers == takes


@pytest.mark.parametrize(("buffered", "latency"), [(False, 1), (True, 2)])
def test_latency(buffered: bool, latency: int) -> None:
    queue = Queue(8, depth=4, buffered=buffered)
    cycles = 0

    async def testbench(ctx) -> None:
        nonlocal cycles
        ctx.set(queue.i.payload, 0xA5)
        ctx.set(queue.i.valid, 1)
        await ctx.tick()
        ctx.set(queue.i.valid, 0)
        cycles = 1
        while not ctx.get(queue.o.valid):
            await ctx.tick()
            cycles += 1
        assert ctx.get(queue.o.payload) == 0xA5

    simulator = Simulator(queue)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()
    assert cycles == latency


def test_depth_must_suffice() -> None:
    for depth, buffered in ((2, True), (0, False)):
        with refused(f"not {depth}"):
            Queue(8, depth=depth, buffered=buffered)
