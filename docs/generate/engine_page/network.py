"""Three golden workers, their links and a switch, around the engine's RTL.

Workers and network are a test bench. All that the engine does with arriving frames is the RTL's.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from amaranth.sim import Simulator

from afflux_hdl.contract import wire
from afflux_hdl.engine.engine import Engine
from afflux_hdl.engine.parameters import Parameters
from afflux_sim.golden.frames import ABSENT, DATA, MISSING, PROBE, Endpoint, parse_packet
from afflux_sim.golden.network import make_workers
from afflux_sim.golden.worker import GoldenWorker
from docs.generate.engine_page.probe import Change, EngineProbe
from docs.generate.engine_page.scenarios import LANES, SLOTS, WORKERS, Scenario, tensors
from docs.generate.simulated_engine import create_job

__all__ = [
    "ENGINE",
    "FINGERPRINT",
    "KEY",
    "TIMER",
    "WIRE",
    "Packet",
    "Run",
    "record",
    "registers_of",
]

WIRE = 14
"""Cycles of the way between a worker and the engine; hundreds, where there are real switches."""
TIMER = 140
"""Cycles without an answer after which a worker asks; a million, where there are real switches."""
FINGERPRINT = -1
"""Stands for a block's number: not a block of the tensor, but the fingerprint of the call."""

ENGINE = Endpoint(bytes.fromhex("02affa000001"), "10.0.0.9", wire.PORT)
KEY = 0x00F1E2D3C4B5A697
_FIRST_ROUND = 16
_MOST_CYCLES = 4000
_PARAMETERS = Parameters(bus_bits=512, workers=4, lanes=LANES, jobs=1, slots=SLOTS)
_TAIL = 12


@dataclass
class Packet:
    """A frame on its way: to the engine, or from it.

    Attributes:
        up: It is a worker's.
        kind: DATA, PROBE, RESULT or MISSING, in small letters.
        worker, slot, round: Of its header; rounds begin with 0.
        blocks: Lane, number and first element of each block.
        next: The row that each lane's look-ahead word names; -1 for none.
        missing: With MISSING: the workers whose contribution is not in.
        sent: The cycle in which it leaves its sender: with its first beat, at the engine's port.
        last: That of its last beat at the engine's port; -1 if it never gets there.
        first: That of its first beat there.
        arrives: The cycle in which the whole frame is at its receiver; -1 if it is lost.
        copy: The network, and not the worker, has sent it; or the worker again.
        cause, judged: The counter that it has moved in the engine, and when; of a contribution
            that was accepted, when its slot's state was written.
    """

    up: bool
    kind: str
    worker: int
    slot: int
    round: int
    blocks: list[tuple[int, int, int]]
    next: list[int]
    missing: list[int]
    sent: int
    first: int = -1
    last: int = -1
    arrives: int = -1
    copy: str = ""
    cause: str = ""
    judged: int = -1


@dataclass
class Run:
    """A recorded run of a scenario.

    Attributes:
        scenario: The scenario.
        packets: All packets, in the order in which they were sent.
        arrived: Those that have reached the engine, in order, as frames with their cycle.
        left: Those that have left it, likewise.
        changes: Inside the engine.
        results: Each worker's tensor in the end.
        done: The cycle in which each worker had it.
        cycles: How long all of it took.
    """

    scenario: Scenario
    packets: list[Packet]
    arrived: list[tuple[int, bytes]]
    left: list[tuple[int, bytes]]
    changes: list[Change]
    results: list[npt.NDArray[Any]]
    done: list[int]
    cycles: int

    def as_json(self) -> dict[str, Any]:
        """Return what the page is told."""
        return {
            "name": self.scenario.name,
            "title": self.scenario.title,
            "about": self.scenario.about,
            "stalled": self.scenario.stalled,
            "cycles": self.cycles,
            "done": self.done,
            "packets": [asdict(packet) for packet in self.packets],
            "changes": self.changes,
        }


class _Network:
    """The bench in one cycle after the other."""

    def __init__(self, engine: Engine, scenario: Scenario) -> None:
        self.scenario = scenario
        self.probe = EngineProbe(engine, _PARAMETERS, LANES)
        self.workers: list[GoldenWorker] = make_workers(
            WORKERS,
            engine=ENGINE,
            job=0,
            key=KEY,
            round=_FIRST_ROUND,
            lanes=LANES,
            slots=SLOTS,
        )
        self.packets: list[Packet] = []
        self.arrived: list[tuple[int, bytes]] = []
        self.left: list[tuple[int, bytes]] = []
        self.done = [-1] * WORKERS
        self._judged: list[Packet] = []
        self._up: deque[tuple[int, bytes, Packet]] = deque()
        self._down: list[tuple[int, bytes, Packet]] = []
        self._link_free = [0] * WORKERS
        self._due: dict[tuple[int, int], int] = {}
        self._rows: dict[tuple[int, int], list[int]] = {}
        self._seen: set[tuple[bool, int, int, int]] = set()
        self._leaving = -1

    async def run(self, ctx: Any) -> Run:
        probe = self.probe
        ctx.set(probe.engine.tx.ready, 1)
        await create_job(ctx, probe.engine, registers_of())
        for worker in self.workers:
            probe.drive(worker.join())
            answer = None
            while answer is None:
                answer = await probe.tick(ctx)
            worker.receive(answer)
            while not ctx.get(probe.engine.idle):
                await probe.tick(ctx)
        probe.recording = True
        for worker, tensor in zip(self.workers, tensors(), strict=True):
            worker.start(tensor, "int32", "sum")
        over = -1
        while over < 0 or probe.cycle < over + _TAIL:
            await self._cycle(ctx)
            if over < 0 and not self._up and not self._down and -1 not in self.done:
                over = probe.cycle if ctx.get(probe.engine.idle) else -1
            if probe.cycle > _MOST_CYCLES:
                raise RuntimeError(f"{self.scenario.name}: not over after {_MOST_CYCLES} cycles")
        for packet, judged in zip(self._judged, probe.judged, strict=True):
            packet.cause, packet.judged = judged.cause, judged.cycle
        # A counter grows some cycles after the slot's state, which is on the page.
        accepted = [packet for packet in self._judged if packet.cause == "accepted"]
        states = [change for change in probe.changes if change[0] == "state"]
        for packet, change in zip(accepted, states, strict=True):
            packet.judged = int(change[1])
        # Rounds in the engine begin with the job's first, on the page with 0.
        changes = [
            (*change[:3], int(change[3]) - _FIRST_ROUND, *change[4:])
            if change[0] == "state"
            else change
            for change in probe.changes
        ]
        return Run(
            scenario=self.scenario,
            packets=self.packets,
            arrived=self.arrived,
            left=self.left,
            changes=changes,
            results=[np.asarray(worker.result()) for worker in self.workers],
            done=self.done,
            cycles=probe.cycle,
        )

    async def _cycle(self, ctx: Any) -> None:
        probe, now = self.probe, self.probe.cycle
        for worker in range(WORKERS):
            if not self._stalls(worker, now):
                self._work(worker, now)
        if self._up and not probe.busy and self._up[0][0] <= now:
            _, frame, packet = self._up.popleft()
            packet.first, packet.arrives = now, now + probe.drive(frame) - 1
            packet.last = packet.arrives
            self.arrived.append((now, frame))
            self._judged.append(packet)
        begun = probe.leaving
        left = await probe.tick(ctx)
        if not begun and (probe.leaving or left is not None):
            self._leaving = now
        if left is not None:
            self._deliver(left, now)

    def _stalls(self, worker: int, now: int) -> bool:
        stalled = self.scenario.stalled
        return stalled is not None and stalled[0] == worker and stalled[1] <= now < stalled[2]

    def _work(self, number: int, now: int) -> None:
        """Take what has arrived, and send what that or a timer asks for."""
        worker = self.workers[number]
        here = [each for each in self._down if each[2].worker == number and each[0] <= now]
        for each in here:
            self._down.remove(each)
            _, frame, packet = each
            packet.arrives = now
            slot, before = packet.slot, worker.rounds[packet.slot]
            worker.receive(frame)
            if packet.kind == "result" and worker.rounds[slot] != before:
                self._due.pop((number, slot), None)
            for answer in worker.frames_to_send():
                self._send(number, answer, now, "again" if packet.kind == "missing" else "")
        for frame in worker.frames_to_send():
            self._send(number, frame, now)
        for slot in worker.outstanding:
            if self._due.get((number, slot), now + 1) <= now:
                self._send(number, worker.retransmit(slot, probe=True), now)
        if worker.done and self.done[number] < 0:
            self.done[number] = now

    def _send(self, worker: int, frame: bytes, now: int, copy: str = "") -> None:
        size = self.probe.parameters.bus_bytes
        start = max(now, self._link_free[worker])
        self._link_free[worker] = start + -(-len(frame) // size)
        packet = self._packet(frame, True, start)
        packet.copy = copy
        self._due[worker, packet.slot] = start + (2 if packet.kind == "probe" else 1) * TIMER
        place = (worker, packet.slot, packet.round)
        first = packet.kind == "data" and not copy
        if not (first and place in self.scenario.lost_packets):
            self._enqueue(start + WIRE, frame, packet)
        for delay in self.scenario.copies.get(place, ()) if first else ():
            again = self._packet(frame, True, start + delay)
            again.copy = "network"
            self._enqueue(start + delay + WIRE, frame, again)

    def _enqueue(self, arrival: int, frame: bytes, packet: Packet) -> None:
        self._up.append((arrival, frame, packet))
        self._up = deque(sorted(self._up, key=lambda each: each[0]))

    def _deliver(self, frame: bytes, now: int) -> None:
        self.left.append((now, frame))
        packet = self._packet(frame, False, self._leaving)
        packet.first, packet.last = self._leaving, now
        place = (packet.worker, packet.slot, packet.round)
        if packet.kind == "result":
            packet.copy = "again" if (False, *place) in self._seen else ""
            self._rows[packet.slot, packet.round + 1] = packet.next
            lost = place in self.scenario.lost_results and not packet.copy
            self._seen.add((False, *place))
            if lost:
                return
        self._down.append((now + WIRE, frame, packet))

    def _packet(self, frame: bytes, up: bool, sent: int) -> Packet:
        read = parse_packet(frame)
        names = {DATA: "data", PROBE: "probe", MISSING: "missing"}
        turn = read.round - _FIRST_ROUND
        kind = names.get(read.type, "result")
        blocks = []
        for lane, block in sorted(read.blocks.items()):
            row = self._rows.get((read.slot, turn), [FINGERPRINT] * LANES)[lane]
            number = FINGERPRINT if turn == 0 else (row * SLOTS + read.slot) * LANES + lane
            blocks.append((lane, number, int(block[0])))
        rows = [-1 if word == ABSENT else word >> 8 for word in read.words[:LANES]]
        seen = read.words[0] if kind == "missing" else -1
        packet = Packet(
            up=up,
            kind=kind,
            worker=read.worker,
            slot=read.slot,
            round=turn,
            blocks=blocks,
            next=rows if kind in ("data", "result") else [],
            missing=[each for each in range(WORKERS) if not seen >> each & 1],
            sent=sent,
        )
        self.packets.append(packet)
        return packet


def registers_of() -> dict[str, int]:
    """Return what to write before the CREATE command, the engine's own addresses included."""
    mac = ENGINE.mac
    return {
        "local_mac_low": int.from_bytes(mac[2:], "big"),
        "local_mac_high": int.from_bytes(mac[:2], "big"),
        "local_address": int.from_bytes(ENGINE.packed_address, "big"),
        "local_port": ENGINE.port,
        "job_index": 0,
        "job_key_low": KEY % 2**32,
        "job_key_high": KEY >> 32,
        "job_workers": WORKERS,
        "job_lanes": LANES,
        "job_slot_base": 0,
        "job_slot_count": SLOTS,
        "job_round": _FIRST_ROUND,
        "job_credit": SLOTS,
        "job_group_address": 0,
        "job_parent_address": 0,
    }


def record(scenarios: Sequence[Scenario]) -> list[Run]:
    """Run scenarios, one after the other, on the engine's RTL in Amaranth's simulator.

    Raises:
        RuntimeError: One does not come to an end.
    """
    engine = Engine(_PARAMETERS)
    runs: list[Run] = []

    async def all_of_them(ctx: Any) -> None:
        for scenario in scenarios:
            runs.append(await _Network(engine, scenario).run(ctx))

    simulator = Simulator(engine)
    simulator.add_clock(1e-8)
    simulator.add_testbench(all_of_them)
    simulator.run()
    return runs
