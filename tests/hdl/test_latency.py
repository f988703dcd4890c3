"""Latencies that the hardware guide and the docstrings of the stages state, cycle by cycle."""

import re
from dataclasses import dataclass
from functools import cache

import pytest
from amaranth.sim import Simulator

from afflux_hdl.contract import registers
from afflux_hdl.engine.admit import Admit
from afflux_hdl.engine.delivery_queue import DeliveryQueue
from afflux_hdl.engine.engine import Engine
from afflux_hdl.engine.merge import READ_BEHIND_WRITE, Merge
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.engine.receive import Receive
from afflux_hdl.engine.replicate import Replicate
from afflux_hdl.engine.transmit import Transmit
from afflux_sim.golden.frames import DATA, ELEMENTS, Endpoint, Packet, as_block
from afflux_sim.golden.worker import GoldenWorker
from tests.support.checkout import ROOT

ENGINE = Endpoint(bytes.fromhex("02affa000001"), "10.0.0.9", 4700)
KEY = 0x0123_4567_89AB_CDEF
FIRST_ROUND = 5
FROM_ADDRESS_TO_PORT = 10
"""Cycles from the address of a beat in the transmit stage to the beat on `tx`."""
DOCS = ROOT / "docs"


def new_worker(lanes: int) -> GoldenWorker:
    return GoldenWorker(
        endpoint=Endpoint(bytes([2, 0, 0, 0, 0, 1]), "10.0.0.1", 5000),
        engine=ENGINE,
        job=0,
        key=KEY,
        round=FIRST_ROUND,
        worker=0,
        workers=1,
        lanes=lanes,
        slots=2,
    )


def contribution(worker: GoldenWorker, blocks: int, slot: int) -> bytes:
    packet = Packet(
        type=DATA,
        job=0,
        worker=0,
        slot=slot,
        round=FIRST_ROUND,
        key=KEY,
        words=(7,) * 16,
        blocks={lane: as_block([lane] * ELEMENTS) for lane in range(blocks)},
    )
    return worker._frame(packet)


class LatencyTestbench:
    """Drives the engine's ports and notes in which cycle each beat leaves."""

    def __init__(self, parameters: Parameters, engine: Engine) -> None:
        self.parameters = parameters
        self.engine = engine
        self.cycle = 0
        self.left: list[tuple[int, bool]] = []
        self.reached: dict[str, int] = {}
        self.written: dict[tuple[str, int], int] = {}
        self.addressed: dict[int, dict[str, int]] = {}

    def note_memory(self, ctx) -> None:
        """Note when merge writes each beat, and what transmit addresses in each cycle."""
        merge, transmit = self.engine.stages["merge"], self.engine.stages["transmit"]
        self.addressed[self.cycle] = {}
        for kind in ("block", "words", "note"):
            write, read = getattr(merge, f"write_{kind}"), getattr(transmit, f"read_{kind}")
            self.addressed[self.cycle][kind] = ctx.get(read.address)
            if ctx.get(write.enable):
                self.written[kind, ctx.get(write.address)] = self.cycle

    async def tick(self, ctx) -> None:
        self.note_memory(ctx)
        for name, stage in self.engine.stages.items():
            if ctx.get(stage.o.valid):
                self.reached.setdefault(name, self.cycle)
        if ctx.get(self.engine.tx.valid):
            self.left.append((self.cycle, bool(ctx.get(self.engine.tx.payload.last))))
        await ctx.tick()
        self.cycle += 1

    async def write(self, ctx, name: str, value: int) -> None:
        ctx.set(self.engine.register_address, registers.address_of(name))
        ctx.set(self.engine.register_write_data, value)
        ctx.set(self.engine.register_write, 1)
        await self.tick(ctx)
        ctx.set(self.engine.register_write, 0)

    async def create(self, ctx) -> None:
        mac = int.from_bytes(ENGINE.mac, "big")
        values = {
            "local_mac_low": mac % 2**32,
            "local_mac_high": mac >> 32,
            "local_address": int.from_bytes(ENGINE.packed_address, "big"),
            "local_port": ENGINE.port,
            "job_key_low": KEY % 2**32,
            "job_key_high": KEY >> 32,
            "job_workers": 1,
            "job_lanes": self.parameters.lanes,
            "job_slot_count": 2,
            "job_round": FIRST_ROUND,
            "job_credit": 2,
            "job_command": registers.Command.CREATE,
        }
        for name, value in values.items():
            await self.write(ctx, name, value)
        ctx.set(self.engine.register_address, registers.address_of("job_busy"))
        await self.tick(ctx)
        while ctx.get(self.engine.register_read_data):
            await self.tick(ctx)

    async def send(self, ctx, frame: bytes) -> int:
        """Send a frame at one beat a cycle, and return the cycle of its last beat."""
        size = self.parameters.bus_bytes
        for at in range(0, len(frame), size):
            beat = self.engine.rx.payload
            ctx.set(beat.data, int.from_bytes(frame[at : at + size], "little"))
            ctx.set(beat.keep, (1 << size) - 1)
            ctx.set(beat.last, at + size == len(frame))
            ctx.set(self.engine.rx.valid, 1)
            await self.tick(ctx)
        ctx.set(self.engine.rx.valid, 0)
        return self.cycle - 1

    async def settle(self, ctx) -> None:
        await self.tick(ctx)
        for _ in range(4000):
            if ctx.get(self.engine.idle):
                return
            await self.tick(ctx)
        raise AssertionError("not idle after 4000 cycles")


@dataclass(frozen=True)
class Run:
    """One contribution through an engine that has just been reset.

    Attributes:
        first_out: Cycles from its last beat in to the first beat of the result.
        left: The cycle of each beat of the result, and whether it was the last.
        testbench: Its other notes.
    """

    first_out: int
    left: list[tuple[int, bool]]
    testbench: LatencyTestbench


class Measured:
    """An engine of one width, elaborated once: that takes longer than a run."""

    def __init__(self, bus_bits: int) -> None:
        self._parameters = Parameters(bus_bits=bus_bits, workers=1, lanes=2, jobs=1, slots=2)
        self._engine = Engine(self._parameters)
        self._simulator = Simulator(self._engine)
        self._simulator.add_clock(1e-8)
        self._simulator.add_testbench(self._run)
        self._asked = (0, 0)
        self._runs: dict[tuple[int, int], Run] = {}

    async def _run(self, ctx) -> None:
        blocks, offset = self._asked
        testbench = LatencyTestbench(self._parameters, self._engine)
        worker = new_worker(self._parameters.lanes)
        ctx.set(self._engine.tx.ready, 1)
        await testbench.create(ctx)
        await testbench.send(ctx, worker.join())
        await testbench.settle(ctx)
        testbench.left.clear()
        testbench.reached.clear()
        testbench.written.clear()
        for _ in range(offset):
            await testbench.tick(ctx)
        last_in = await testbench.send(ctx, contribution(worker, blocks, 1))
        await testbench.settle(ctx)
        first_out = testbench.left[0][0] - last_in
        self._runs[blocks, offset] = Run(first_out, testbench.left, testbench)

    def run(self, blocks: int, offset: int) -> Run:
        """Return the run of a contribution of so many blocks, sent so many cycles later."""
        if (blocks, offset) not in self._runs:
            self._asked = (blocks, offset)
            if self._runs:
                self._simulator.reset()
            self._simulator.run()
        return self._runs[blocks, offset]


@cache
def measured(bus_bits: int) -> Measured:
    return Measured(bus_bits)


@pytest.mark.parametrize(
    "bus_bits, blocks, expected",
    [
        (512, 0, 35),
        pytest.param(512, 2, 35, marks=pytest.mark.long),
        pytest.param(32, 0, 35, marks=pytest.mark.long),
        (32, 1, 83),
    ],
)
def test_latency_of_a_result(bus_bits: int, blocks: int, expected: int) -> None:
    """It is the same, but for one cycle, whatever the phase in which the frame arrives."""
    of = measured(bus_bits)
    latencies = {of.run(blocks, offset).first_out for offset in range(4)}
    assert latencies <= {expected, expected + 1}


@pytest.mark.parametrize("bus_bits", [512, 32])
def test_a_result_is_read_behind_its_last_merge(bus_bits: int) -> None:
    """The distance that `merge` states, which early ordering rests on, beat by beat."""
    parameters = Parameters(bus_bits=bus_bits)
    for offset in range(2):
        run = measured(bus_bits).run(2, offset)
        testbench, written = run.testbench, dict(run.testbench.written)
        notes = {beat: written.pop(beat) for beat in list(written) if beat[0] == "note"}
        distances: dict[str, set[int]] = {"words": set(), "block": set()}
        # Without the headers, and without the seal.
        for number, (cycle, _) in enumerate(run.left[parameters.header_beats : -1]):
            kind = "words" if number < parameters.header_beats else "block"
            read = cycle - FROM_ADDRESS_TO_PORT
            beat = kind, testbench.addressed[read][kind]
            distances[kind].add(read - written.pop(beat))
            if kind == "block":
                note = notes["note", testbench.addressed[read]["note"]]
                assert read - note >= READ_BEHIND_WRITE - 4
        assert not written, "all that merge wrote was sent"
        assert min(min(distances.values())) >= READ_BEHIND_WRITE
        if bus_bits == 512:
            assert distances == {"words": {10}, "block": {READ_BEHIND_WRITE}}


@pytest.mark.parametrize("bus_bits", [512])
def test_a_result_leaves_without_gaps(bus_bits: int) -> None:
    left = measured(bus_bits).run(2, 0).left
    assert len(left) == 2 + 2 * 4 + 1
    assert [cycle - left[0][0] for cycle, _ in left] == list(range(len(left)))
    assert [last for _, last in left] == [False] * 10 + [True]


def stated_in_guide() -> dict[str, int]:
    guide = (DOCS / "hardware.md").read_text().partition("## 3. Stages")[2]
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \|", guide, flags=re.MULTILINE)
    return {name: int(cycles) for name, cycles in rows}


def test_stages_take_as_long_as_the_hardware_guide_says() -> None:
    """The table there gives, for each stage, the cycles from the stage before."""
    stated = stated_in_guide()
    takes: dict[str, set[int]] = {}
    for offset in range(4):
        run = measured(512).run(0, offset)
        # One beat of headers, one of words.
        before = run.left[0][0] - run.first_out
        for name, cycle in run.testbench.reached.items():
            takes.setdefault(name, set()).add(cycle - before)
            before = cycle
    assert {name: min(cycles) for name, cycles in takes.items()} == {
        name: cycles for name, cycles in stated.items() if name in takes
    }


def test_docstrings_state_what_the_hardware_guide_does() -> None:
    stages = {
        "receive": Receive,
        "admit": Admit,
        "merge": Merge,
        "delivery_queue": DeliveryQueue,
        "replicate": Replicate,
        "transmit": Transmit,
    }
    found = {
        name: int(re.findall(r"Latency: (\d+) cycle", stage.__doc__ or "")[0])
        for name, stage in stages.items()
    }
    # Of merge the guide counts the queue before it, too.
    found["merge"] += 2
    assert found == stated_in_guide()
