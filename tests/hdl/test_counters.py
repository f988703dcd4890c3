"""The counters of engine and node, whose two words are read while they grow, by several readers."""

import random
from collections.abc import Callable
from typing import Any, cast

import pytest
from amaranth.hdl import ResetInserter, Signal
from amaranth.sim import Simulator

from afflux_drivers.aggregator import jobs
from afflux_drivers.registers import Registers
from afflux_hdl.contract import registers
from afflux_hdl.engine import counters
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.lib.counter_bank import CounterBank
from afflux_hdl.node import control
from afflux_hdl.node.parameters import NodeParameters
from tests.support.counter_starts import counters_that_start_late
from tests.support.refusals import refused

WRAPS_AT = 1 << 32
STEP = 64
"""Bytes in a cycle."""

CYCLE_S = 1e-8
LATENCY = 3
"""Cycles from an event to the value that shows it, and more."""

PARTS: dict[str, tuple[Callable[[], Any], str, Callable[[str], int]]] = {
    "engine": (
        lambda: counters.Counters(Parameters(bus_bits=512)),
        "bytes_in",
        registers.counter_address,
    ),
    "node": (
        lambda: control.NodeControl(NodeParameters()),
        "network_bytes_in",
        registers.node_counter_address,
    ),
}


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
    make, counter, address_of = PARTS[which]
    (entry,) = (
        each for each in (*registers.COUNTERS, *registers.NODE_COUNTERS) if each.name == counter
    )
    for seed in range(12):
        choose = random.Random(seed)
        start = WRAPS_AT - choose.randrange(30 * STEP, 120 * STEP)
        with counters_that_start_late(start):
            # Elaborated now, for the names are looked up meanwhile.
            bus = Bus(make(), counter, choose, start)
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


@pytest.mark.parametrize("bus_bits", [32, 512])
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))]
)
def test_every_event_is_counted_at_once_and_a_reset_forgets_all(seed: int, bus_bits: int) -> None:
    """All counters, in steps of every size, read in every cycle, beside a list of numbers."""
    parameters = Parameters(bus_bits=bus_bits)
    steps = counters.largest_steps(parameters)
    part = counters.Counters(parameters)
    names = list(steps)
    causes = [counter.name for counter in registers.FRAME_COUNTERS]

    def drive(ctx: Any, choose: random.Random) -> dict[str, int]:
        busy = choose.random() < 0.9
        new = {name: drawn(choose, most) if busy else 0 for name, most in steps.items()}
        new |= dict.fromkeys(causes, 0)
        for name in steps:
            if name not in causes:
                ctx.set(getattr(part, name), new[name])
        for stage, cause in zip(("receive", "admit"), choose.sample(causes, 2), strict=True):
            ctx.set(getattr(part, f"{stage}_judged"), busy)
            ctx.set(getattr(part, f"{stage}_cause"), causes.index(cause))
            new[cause] += busy
        return new

    def ask(ctx: Any, name: str, half: int) -> None:
        ctx.set(part.address, 2 * names.index(name) + half)

    count_beside_a_list(part, names, drive, ask, part.value, seed)


@pytest.mark.parametrize("bus_bits", [32, 512])
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))]
)
def test_the_node_counts_every_event_at_once_too(seed: int, bus_bits: int) -> None:
    parameters = NodeParameters(engine=Parameters(bus_bits=bus_bits))
    steps = control.largest_steps(parameters)
    part = control.NodeControl(parameters)

    def drive(ctx: Any, choose: random.Random) -> dict[str, int]:
        busy = choose.random() < 0.9
        new = {name: drawn(choose, most) if busy else 0 for name, most in steps.items()}
        for name, amount in new.items():
            ctx.set(getattr(part, name), amount)
        return new

    def ask(ctx: Any, name: str, half: int) -> None:
        ctx.set(part.address, registers.node_counter_address(name) + 4 * half)

    count_beside_a_list(part, list(steps), drive, ask, part.read_data, seed)


def test_a_bank_of_two_is_refused() -> None:
    """A total would be read in the cycle in which it is written."""
    with refused("2 counters are too few, at least 3"):
        CounterBank(steps={"one": 1, "other": 1})


def drawn(choose: random.Random, most: int) -> int:
    """Return no step, the largest, or one between."""
    return choose.choice((0, most, choose.randint(0, most)))


def count_beside_a_list(
    part: Any,
    names: list[str],
    drive: Callable[[Any, random.Random], dict[str, int]],
    ask: Callable[[Any, str, int], None],
    answer: Any,
    seed: int,
) -> None:
    """Read one counter in each cycle, and compare it with a sum of what was driven."""
    choose = random.Random(seed)
    restart = Signal()
    simulator = Simulator(ResetInserter(restart)(part))
    simulator.add_clock(CYCLE_S)

    async def testbench(ctx: Any) -> None:
        totals, on_their_way = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
        for cycle in range(1000):
            resets = cycle in (300, 330)
            ctx.set(restart, resets)
            new = drive(ctx, choose)
            name, half = choose.choice(names), choose.randrange(2)
            ask(ctx, name, half)
            expected = totals[name] >> 32 * half & 0xFFFF_FFFF
            await ctx.tick()
            assert resets or ctx.get(answer) == expected, (cycle, name)
            totals = {name: totals[name] + on_their_way[name] for name in names}
            on_their_way = new
            if resets:
                totals, on_their_way = dict.fromkeys(names, 0), dict.fromkeys(names, 0)

    simulator.add_testbench(testbench)
    simulator.run()
