"""The counters of engine and node, whose two words are read while they grow, by several readers."""

import random
from types import ModuleType
from typing import Any, cast

import pytest
from amaranth.hdl import ResetInserter, Signal
from amaranth.sim import Simulator

from afflux_drivers.aggregator import jobs
from afflux_drivers.aggregator.engine import Registers
from afflux_hdl.contract import registers
from afflux_hdl.engine import counters
from afflux_hdl.node import control
from afflux_hdl.node.parameters import NodeParameters
from tests.support.planting import names_with

WRAPS_AT = 1 << 32
STEP = 64
"""Bytes in a cycle."""

CYCLE_S = 1e-8
LATENCY = 3
"""Cycles from an event to the value that shows it, and more."""

PARTS = {
    "engine": (counters, "Counters", (), "bytes_in", registers.counter_address),
    "node": (
        control,
        "NodeControl",
        (NodeParameters(),),
        "network_bytes_in",
        registers.node_counter_address,
    ),
}

INITIAL = {
    "Counters": lambda start: ("COUNTS_FROM = 0", f"COUNTS_FROM = {start}"),
    "NodeControl": lambda start: (
        'total = Signal(64, name=f"total_{counter.name}")',
        f'total = Signal(64, name=f"total_{{counter.name}}", init={start})',
    ),
}
"""What to replace by what in a part, so that its counters start elsewhere."""


class Bus:
    """The register bus of a part with counters, one of which grows in every cycle.

    Behind every access there is one of another reader, to any word near.
    """

    def __init__(self, part: Any, counter: str, choose: random.Random, start: int) -> None:
        self.total = start
        self._address = 0
        self._value = 0
        self._others = choose
        self._simulator = Simulator(part)
        self._simulator.add_clock(CYCLE_S)
        self._cycles = 0

        async def run(ctx: Any) -> None:
            by_number = len(part.address) < 10
            ctx.set(getattr(part, counter), STEP)
            while True:
                first = registers.COUNTER_BASE // 4 if by_number else 0
                address = self._address // 4 - first if by_number else self._address
                ctx.set(part.address, address)
                await ctx.tick()
                self._value = ctx.get(part.value if by_number else part.read_data)
                self.total += STEP

        self._simulator.add_testbench(run, background=True)

    def read(self, address: int) -> int:
        value = self._access(address)
        self._access(address + self._others.choice((-8, -4, 0, 4, 8)))
        return value

    def _access(self, address: int) -> int:
        self._address = address
        # The address is set in the first cycle, and its value is there in the second.
        self._cycles += 2
        self._simulator.run_until(CYCLE_S * self._cycles)
        return self._value


@pytest.mark.parametrize("which", list(PARTS))
def test_a_counter_is_read_whole_among_other_readers(
    which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A counter of bytes leaves its lower word while it is read again and again."""
    module, name, arguments, counter, address_of = PARTS[which]
    (entry,) = (
        each for each in (*registers.COUNTERS, *registers.NODE_COUNTERS) if each.name == counter
    )
    for seed in range(12):
        choose = random.Random(seed)
        start = WRAPS_AT - choose.randrange(30 * STEP, 120 * STEP)
        part = part_that_starts_at(module, name, start)(*arguments)
        bus = Bus(part, counter, choose, start)
        address = address_of(counter)
        monkeypatch.setattr(jobs.registers, "COUNTERS", (entry,))
        monkeypatch.setattr(jobs.registers, "counter_address", {counter: address}.__getitem__)
        values = []
        for _ in range(20):
            before = bus.total
            (value,) = jobs.read_counters(cast(Registers, bus)).values()
            values.append(value)
            assert before - LATENCY * STEP <= value <= bus.total, (seed, hex(value), hex(before))
        monkeypatch.undo()
        assert values[0] < WRAPS_AT < values[-1]


@pytest.mark.parametrize("seed", range(3))
def test_every_event_is_counted_at_once_and_a_reset_forgets_all(seed: int) -> None:
    """All counters, in steps of every size, read in every cycle, beside a list of numbers."""
    choose = random.Random(seed)
    part = counters.Counters()
    restart = Signal()
    simulator = Simulator(ResetInserter(restart)(part))
    simulator.add_clock(CYCLE_S)
    steps = {
        number: (getattr(part, counter.name), counters.STEPS.get(counter.name, 1))
        for number, counter in enumerate(registers.COUNTERS)
        if counter not in registers.FRAME_COUNTERS
    }
    first = registers.COUNTERS.index(registers.FRAME_COUNTERS[0])
    count = len(registers.COUNTERS)

    async def testbench(ctx: Any) -> None:
        totals, on_their_way = [0] * count, [0] * count
        for cycle in range(1000):
            resets = cycle in (300, 330)
            ctx.set(restart, resets)
            new = [0] * count
            busy = choose.random() < 0.9
            for number, (signal, most) in steps.items():
                new[number] = choose.choice((0, most, choose.randint(0, most))) if busy else 0
                ctx.set(signal, new[number])
            causes = choose.sample(range(len(registers.FRAME_COUNTERS)), 2)
            for stage, cause in zip(("receive", "admit"), causes, strict=True):
                ctx.set(getattr(part, f"{stage}_judged"), busy)
                ctx.set(getattr(part, f"{stage}_cause"), cause)
                new[first + cause] += busy
            number, half = choose.randrange(count), choose.randrange(2)
            ctx.set(part.address, 2 * number + half)
            expected = totals[number] >> 32 * half & 0xFFFF_FFFF
            await ctx.tick()
            assert resets or ctx.get(part.value) == expected, (cycle, number)
            totals = [a + b for a, b in zip(totals, on_their_way, strict=True)]
            on_their_way = new
            if resets:
                totals, on_their_way = [0] * count, [0] * count

    simulator.add_testbench(testbench)
    simulator.run()


def part_that_starts_at(module: ModuleType, name: str, start: int) -> type:
    """Return a part of which all counters have this value at first."""
    names = names_with(
        module,
        *INITIAL[name](start),
    )
    part: type = names[name]
    return part
