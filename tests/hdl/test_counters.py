"""The counters of engine and node, whose two words are read while they grow, by several readers."""

import random
from types import ModuleType
from typing import Any, cast

import pytest
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

    def write(self, address: int, value: int) -> None:
        raise NotImplementedError

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


def part_that_starts_at(module: ModuleType, name: str, start: int) -> type:
    """Return a part of which all counters have this value at first."""
    names = names_with(
        module,
        'total = Signal(64, name=f"total_{counter.name}")',
        f'total = Signal(64, name=f"total_{{counter.name}}", init={start})',
    )
    part: type = names[name]
    return part
