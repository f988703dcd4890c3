"""The engine's registers, read and written through its plain register port."""

from collections.abc import Awaitable, Callable
from functools import cache

from amaranth.sim import Simulator

from afflux_hdl.contract import registers
from afflux_hdl.contract.registers import Access, Command, address_of
from afflux_hdl.engine.engine import Engine
from afflux_hdl.engine.parameters import Parameters

PARAMETERS = Parameters(
    bus_bits=32,
    workers=3,
    lanes=2,
    jobs=2,
    slots=4,
    build_time=1_700_000_000,
    build_commit=0xC0FF_EE01,
)


class Bus:
    """The register port of a simulated engine."""

    def __init__(self, engine: Engine, ctx) -> None:
        self._engine, self._ctx = engine, ctx

    async def write(self, name: str, value: int) -> None:
        self._ctx.set(self._engine.register_address, address_of(name))
        self._ctx.set(self._engine.register_write_data, value)
        self._ctx.set(self._engine.register_write, 1)
        await self._ctx.tick()
        self._ctx.set(self._engine.register_write, 0)

    async def read(self, name: str) -> int:
        self._ctx.set(self._engine.register_address, address_of(name))
        await self._ctx.tick()
        return self._ctx.get(self._engine.register_read_data)

    async def settle(self) -> None:
        """As long as debug registers take to follow."""
        for _ in range(6):
            await self._ctx.tick()

    async def create(self, **values: int) -> None:
        for name, value in values.items():
            await self.write(name, value)
        await self.write("job_command", Command.CREATE)
        while await self.read("job_busy"):
            pass


class Simulated:
    """An engine that is elaborated once: that takes longer than a scenario."""

    def __init__(self) -> None:
        self._engine = Engine(PARAMETERS)
        self._simulator = Simulator(self._engine)
        self._simulator.add_clock(1e-8)
        self._simulator.add_testbench(self._run)
        self._scenario: Callable[[Bus], Awaitable[None]] | None = None

    async def _run(self, ctx) -> None:
        assert self._scenario is not None
        ctx.set(self._engine.tx.ready, 1)
        await self._scenario(Bus(self._engine, ctx))

    def play(self, scenario: Callable[[Bus], Awaitable[None]]) -> None:
        """Reset the engine, and play a scenario to it."""
        if self._scenario is not None:
            self._simulator.reset()
        self._scenario = scenario
        self._simulator.run()


@cache
def simulated() -> Simulated:
    return Simulated()


def simulate(scenario) -> None:
    simulated().play(scenario)


def test_constants_tell_the_build() -> None:
    async def scenario(bus: Bus) -> None:
        assert await bus.read("identity") == registers.IDENTITY
        assert await bus.read("build_version") == registers.RELEASE
        for name in ("build_time", "build_commit"):
            assert await bus.read(name) == getattr(PARAMETERS, name)
        for name in ("workers", "lanes", "jobs", "slots", "bus_bits"):
            assert await bus.read(f"build_{name}") == getattr(PARAMETERS, name)

    simulate(scenario)


def test_registers_hold_what_is_written_and_only_those() -> None:
    async def scenario(bus: Bus) -> None:
        commands = {"job_command"}
        for register in registers.REGISTERS:
            if register.name in commands:
                continue
            before = await bus.read(register.name)
            await bus.write(register.name, 0xFFFF_FFFF)
            after = await bus.read(register.name)
            if register.access is Access.READ_WRITE:
                assert after == (1 << register.width) - 1, register.name
            else:
                assert after == before, register.name

    simulate(scenario)


def test_slot_state_can_be_looked_at_while_it_changes() -> None:
    async def scenario(bus: Bus) -> None:
        await bus.create(
            job_index=1,
            job_workers=2,
            job_lanes=2,
            job_slot_base=2,
            job_slot_count=2,
            job_round=0,
        )
        assert await bus.read("job_enabled") == 1
        await bus.write("job_index", 0)
        assert await bus.read("job_enabled") == 0
        await bus.write("debug_slot", 3)
        await bus.settle()
        assert await bus.read("debug_round") == 0xFFFF_FFFF
        assert await bus.read("debug_phase") == 1
        assert await bus.read("debug_seen_low") == 0
        assert await bus.read("debug_version_0") == 0
        await bus.write("debug_worker", 1 << 8 | 1)
        await bus.settle()
        assert await bus.read("debug_peer_mac_high") == 0

    simulate(scenario)


def test_a_job_without_a_parent_does_not_join_one() -> None:
    async def scenario(bus: Bus) -> None:
        await bus.create(job_index=0, job_workers=1, job_lanes=1, job_slot_base=0, job_slot_count=1)
        await bus.write("job_command", Command.JOIN_PARENT)
        for _ in range(20):
            await bus.read("job_busy")
        assert await bus.read("job_busy") == 0
        assert await bus.read("job_parent_joined") == 0

    simulate(scenario)
