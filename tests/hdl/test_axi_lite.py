"""The AXI4-Lite slave alone, each channel at its own random pace, beside a plain dictionary."""

import random
from typing import Any

from amaranth.sim import Simulator

from afflux_hdl.node import axi_lite
from afflux_hdl.node.axi_lite import OKAY, SLVERR

READABLE = [0x00, 0x04, 0x20, 0x24, 0x80]
WRITABLE = [0x20, 0x24]
HOLES = [0x08, 0x7C, 0xFC]


class Master:
    """Performs writes and reads; keeps their results, in order."""

    def __init__(self, slave: Any, seed: int) -> None:
        self.slave = slave
        self.choose = random.Random(seed)
        self.words = {address: address * 0x01010101 for address in READABLE}
        self.answers: list[int] = []
        self.read: list[tuple[int, int]] = []

    async def offer(self, ctx: Any, channel: Any, payloads: list[Any]) -> None:
        for payload in payloads:
            for _ in range(self.choose.choice([0, 0, 1, 5, 20])):
                await ctx.tick()
            ctx.set(channel.payload, payload)
            ctx.set(channel.valid, 1)
            await self.when(ctx, channel.ready)
            ctx.set(channel.valid, 0)

    async def take(self, ctx: Any, channel: Any, number: int, into: list[Any]) -> None:
        for _ in range(number):
            for _ in range(self.choose.choice([0, 0, 1, 9, 20])):
                await ctx.tick()
            ctx.set(channel.ready, 1)
            into.append(await self.when(ctx, channel.valid, channel.payload))
            ctx.set(channel.ready, 0)

    async def when(self, ctx: Any, flag: Any, payload: Any = None) -> Any:
        """Wait for the cycle in which `flag` is 1, and through it."""
        for _ in range(500):
            was = ctx.get(flag)
            value = None if payload is None else ctx.get(payload)
            await ctx.tick()
            if was:
                return value
        raise AssertionError("some access is never answered")

    async def bus(self, ctx: Any) -> None:
        """Play the registers: read data one cycle after the address."""
        async for _, _, address, write, data in ctx.tick().sample(
            self.slave.address, self.slave.write, self.slave.write_data
        ):
            ctx.set(self.slave.read_data, self.words.get(address & ~3, 0xBAD))
            refused = bool(data % 3 == 0)
            # Between writes it may be anything.
            ctx.set(self.slave.refused, refused if write else self.choose.randrange(2))
            if write and not refused:
                self.words[address & ~3] = data


def run(part: type, seed: int) -> None:
    choose = random.Random(seed)
    slave = part(address_bits=8, readable=READABLE, writable=WRITABLE)
    master = Master(slave, seed + 1)
    expected, answers, writes = dict(master.words), [], []
    for _ in range(60):
        address = choose.choice([*READABLE, *WRITABLE * 3, *HOLES]) + choose.randrange(4)
        data = choose.getrandbits(32)
        strb = choose.choice([15, 15, 15, choose.randrange(16)])
        works = strb == 15 and address & ~3 in WRITABLE and data % 3 != 0
        if works:
            expected[address & ~3] = data
        answers.append(OKAY if works else SLVERR)
        writes.append((address, data, strb))
    # Reads while writes go on see what does not change; those after them all.
    early = [choose.choice([*HOLES, 0x00, 0x04, 0x80]) for _ in range(60)]
    late = [*READABLE, *HOLES]

    def value(address: int) -> tuple[int, int]:
        return (expected[address], OKAY) if address in READABLE else (0, SLVERR)

    async def writer(ctx: Any) -> None:
        await master.offer(ctx, slave.aw, [address for address, _, _ in writes])

    async def data_writer(ctx: Any) -> None:
        await master.offer(ctx, slave.w, [{"data": data, "strb": strb} for _, data, strb in writes])

    async def answer_taker(ctx: Any) -> None:
        await master.take(ctx, slave.b, len(writes), master.answers)

    async def reader(ctx: Any) -> None:
        await master.offer(ctx, slave.ar, early)
        for _ in range(3000):
            if len(master.answers) == len(writes):
                break
            await ctx.tick()
        await master.offer(ctx, slave.ar, late)

    got: list[Any] = []

    async def data_taker(ctx: Any) -> None:
        await master.take(ctx, slave.r, len(early) + len(late), got)

    simulator = Simulator(slave)
    simulator.add_clock(1e-8)
    for each in (writer, data_writer, answer_taker, reader, data_taker):
        simulator.add_testbench(each)
    simulator.add_testbench(master.bus, background=True)
    simulator.run()
    assert master.answers == answers
    assert [(each.data, each.resp) for each in got] == [value(at) for at in [*early, *late]]
    assert {address: master.words[address] for address in READABLE} == expected


def stuck(part: type) -> None:
    """Check that a response that nobody takes stops no read."""
    slave = part(address_bits=8, readable=READABLE, writable=WRITABLE)
    reached = []

    async def master(ctx: Any) -> None:
        ctx.set(slave.aw.valid, 1)
        ctx.set(slave.w.valid, 1)
        ctx.set(slave.ar.valid, 1)
        ctx.set(slave.r.ready, 1)
        for _ in range(60):
            await ctx.tick()
            reached.append(ctx.get(slave.r.valid))

    simulator = Simulator(slave)
    simulator.add_clock(1e-8)
    simulator.add_testbench(master)
    simulator.run()
    assert sum(reached[30:]) >= 3


def first_answer(requests: list[str], answer: str) -> int:
    """Cycles from the requests, all at once, to the first answer."""
    slave = axi_lite.AxiLite(address_bits=8, readable=READABLE, writable=WRITABLE)
    found = []

    async def master(ctx: Any) -> None:
        for name in requests:
            ctx.set(getattr(slave, name).valid, 1)
        for cycle in range(20):
            if ctx.get(getattr(slave, answer).valid):
                found.append(cycle)
            await ctx.tick()

    simulator = Simulator(slave)
    simulator.add_clock(1e-8)
    simulator.add_testbench(master)
    simulator.run()
    return found[0]


def test_latencies() -> None:
    assert first_answer(["ar"], "r") == 4
    assert first_answer(["aw", "w"], "b") == 3 + axi_lite.SETTLE_CYCLES


def check(part: type) -> None:
    for seed in range(3):
        run(part, seed)
    stuck(part)


def test_accesses_at_random_paces() -> None:
    check(axi_lite.AxiLite)
