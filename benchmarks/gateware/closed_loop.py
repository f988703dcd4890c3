"""Workers around a simulated engine: they send a round only when they have the last one's result.

::

    Traffic ─► contributions ─► order ─► VerilatedEngine ─► results ─► Traffic (checks them)
                    ▲                                          │
                    └────────── slot ready at this worker ◄────┘

The engine is never given a frame that an honest worker could not have sent yet, so a rate that is
measured here is one that the engine sustains in both directions. Links have no delay. The measure
is the engine's clock: no cycle passes but those in which a beat is offered, those in which no
worker may send, and those that a port's pace asks for.
"""

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from afflux_hdl.contract import registers, wire
from afflux_sim.rtl.stimulus import NOT_DRAINED
from afflux_sim.rtl.verilated import VerilatedEngine
from benchmarks.gateware.loop_job import AFFLUX_HEADER, EVERYONE, FIRST_ROUND, Contribution, LoopJob

__all__ = [
    "ClosedLoop",
    "LoopError",
    "Order",
    "Passed",
    "Traffic",
]

WIRE_OVERHEAD_BYTES = 24
"""Preamble and start 8, frame check sequence 4, gap 12 (IEEE 802.3, sections 3 and 4.4.2)."""

_BATCH_BEATS = 64
_IDLE_LIMIT = 20_000


class LoopError(RuntimeError):
    """The engine sent something wrong, or nothing when something was due."""


class Order(Enum):
    """The order in which contributions that may be sent reach the engine."""

    BACK_TO_BACK = "back to back"
    """All workers' packets of one slot after one another: the shortest way from write to read."""
    RANDOM = "random"
    """Any of the 2 N that may be sent for the longest time: the packets of about two slots."""


class Traffic(Protocol):
    """The workers' packets of a job, and their expected results."""

    def contribution(self, worker: int, slot: int, turn: int) -> Contribution:
        """Return that of `worker` to round number `turn` of `slot`, the first being 0."""
        ...

    def result(self, slot: int, turn: int, payload: bytes) -> bool:
        """Take the words and blocks of a result; return whether the slot goes on.

        Raises:
            LoopError: If they are wrong.
        """
        ...


@dataclass(frozen=True)
class Passed:
    """The traffic between two moments.

    Attributes:
        cycles, beats_in, beats_out, receive_stalls, frames_in, frames_out: As in
            `afflux_sim.rtl.verilated.Statistics`.
        blocks_in, blocks_out: Blocks in contributions and in results, a multicast one once.
        rounds: Rounds completed, counted at their first result.
        blocks_reduced: Blocks of their results, each result counted once.
        idle_cycles: Cycles in which no worker could send.
    """

    cycles: int
    beats_in: int
    beats_out: int
    receive_stalls: int
    frames_in: int
    frames_out: int
    blocks_in: int
    blocks_out: int
    rounds: int
    blocks_reduced: int
    idle_cycles: int


class ClosedLoop:
    """A job on an engine, and its workers.

    Args:
        engine: Its other jobs and their frames must rest meanwhile.
        bus_bits, clock_hz: The engine's; the clock only matters with `port_bits_per_s`.
        workers, lanes, slots: The job's.
        traffic: The packets to send.
        order: In which order packets that may be sent are sent.
        multicast: Results go to a group once, not to each worker.
        port_bits_per_s: Frames come as from an Ethernet port of this rate; `None`: a beat in
            every cycle.
        copies: How often each contribution is sent; 2 and more make duplicates, which the engine
            has to drop or to answer.
        seed: Seed of a random order.
    """

    def __init__(
        self,
        engine: VerilatedEngine,
        *,
        bus_bits: int,
        clock_hz: float,
        workers: int,
        lanes: int,
        slots: int,
        traffic: Traffic,
        order: Order = Order.BACK_TO_BACK,
        multicast: bool = False,
        port_bits_per_s: float | None = None,
        copies: int = 1,
        seed: int = 1,
    ) -> None:
        self._engine, self._traffic, self._order = engine, traffic, order
        self._workers, self._slots, self._multicast = workers, slots, multicast
        self._bus_bytes = bus_bits // 8
        self._cycles_per_byte = (
            8 * clock_hz / port_bits_per_s if port_bits_per_s is not None else 0.0
        )
        self._copies = copies
        self._random = random.Random(seed)
        self._turn = [[0] * slots for _ in range(workers)]
        self._ready: deque[tuple[int, int]] = deque()
        self._waiting = [0] * slots
        self._reduced = [-1] * slots
        self._payload = [b""] * slots
        self._goes_on = [True] * slots
        self._next_start = 0.0
        self._blocks_in = self._blocks_out = self._blocks_reduced = 0
        self._rounds = self._idle = 0
        self.ignored = 0
        """Results that no worker waited for: answers to duplicates."""
        self._job = LoopJob(workers, lanes, slots, multicast)
        self._create()
        for slot in range(slots):
            for worker in range(workers):
                self._offer(worker, slot)

    def run(self, frames: int) -> None:
        """Send at least `frames` frames, or as many as there are.

        Raises:
            LoopError: If the engine sends a wrong result, or none at all.
        """
        left = frames
        while left > 0:
            batch = self._batch()
            if batch:
                left -= len(batch)
                answers = self._engine.play(batch, NOT_DRAINED)
                answers += self._keep_pace(batch)
            elif self._unanswered():
                answers = self._wait()
            else:
                return
            for answer in answers:
                self._take(answer)

    def finish(self) -> None:
        """Send all that there is, and take all results."""
        while self._unanswered():
            self.run(1_000_000)

    def passed(self, since: "Passed | None" = None) -> Passed:
        """Return what passed since the loop began, or since an earlier value of this method."""
        now = self._engine.statistics()
        values = (
            now.cycles,
            now.beats_in,
            now.beats_out,
            now.receive_stalls,
            now.frames_in,
            now.frames_out,
            self._blocks_in,
            self._blocks_out,
            self._rounds,
            self._blocks_reduced,
            self._idle,
        )
        if since is None:
            return Passed(*values)
        names = list(Passed.__dataclass_fields__)
        before = [getattr(since, name) for name in names]
        return Passed(*(new - old for new, old in zip(values, before, strict=True)))

    def frame(self, worker: int, slot: int, turn: int) -> bytes:
        """Return the frame that carries the worker's contribution."""
        return self._job.data(worker, slot, turn, self._traffic.contribution(worker, slot, turn))

    def _create(self) -> None:
        for name, value in self._job.register_values().items():
            self._engine.write(registers.address_of(name), value)
        command = registers.address_of("job_command")
        self._engine.write(command, registers.Command.CREATE)
        while self._engine.read(registers.address_of("job_busy")):
            self._engine.run(8)
        for worker in range(self._workers):
            answers = self._engine.play([self._job.join(worker)])
            kinds = [answer[wire.AFFLUX_OFFSET] & 15 for answer in answers]
            if kinds != [wire.Type.JOINED]:
                raise LoopError(f"a JOIN was answered by {kinds}")

    def _offer(self, worker: int, slot: int) -> None:
        """Let the worker send its next packet of this slot."""
        if self._order is Order.RANDOM:
            self._ready.append((worker, slot))
            return
        self._waiting[slot] += 1
        if self._waiting[slot] == self._workers:
            self._waiting[slot] = 0
            for _ in range(self._copies):
                self._ready.extend((each, slot) for each in range(self._workers))

    def _batch(self) -> list[bytes]:
        """Return frames of some 64 beats that may be sent now; one if a port sets the pace."""
        frames: list[bytes] = []
        beats = 0
        ready = self._ready
        while ready and beats < _BATCH_BEATS:
            later = 0
            if self._order is Order.RANDOM:
                later = self._random.randrange(min(len(ready), 2 * self._workers))
            ready.rotate(-later)
            worker, slot = ready.popleft()
            ready.rotate(later)
            frame = self.frame(worker, slot, self._turn[worker][slot])
            self._blocks_in += (len(frame) - wire.PAYLOAD_OFFSET) // wire.BLOCK_BYTES
            frames.append(frame)
            beats += len(frame) // self._bus_bytes
            if self._cycles_per_byte:
                break
        return frames

    def _keep_pace(self, batch: Sequence[bytes]) -> list[bytes]:
        if not self._cycles_per_byte:
            return []
        now = self._engine.cycles
        size = sum(len(frame) + WIRE_OVERHEAD_BYTES for frame in batch)
        # A port that had nothing to send does not make up for it later.
        start = max(self._next_start, now - sum(map(len, batch)) // self._bus_bytes - 1)
        self._next_start = start + size * self._cycles_per_byte
        pause = int(self._next_start - now)
        return self._engine.run(pause) if pause > 0 else []

    def _wait(self) -> list[bytes]:
        for _ in range(_IDLE_LIMIT):
            self._idle += 1
            answers = self._engine.run(1)
            if answers:
                return answers
        raise LoopError(f"no result in {_IDLE_LIMIT} cycles")

    def _unanswered(self) -> bool:
        return any(self._goes_on)

    def _take(self, frame: bytes) -> None:
        kind, _, _, worker, slot, present, number, _, _ = AFFLUX_HEADER.unpack_from(
            frame, wire.AFFLUX_OFFSET
        )
        turn = (number - FIRST_ROUND) % 2**32
        if kind != wire.VERSION << 4 | wire.Type.RESULT:
            raise LoopError(f"a packet of type {kind & 15} came where a result was due")
        blocks = present.bit_count()
        if len(frame) != wire.frame_bytes(blocks) + wire.SEAL_BYTES:
            raise LoopError(f"{len(frame)} bytes for {blocks} blocks")
        to = range(self._workers) if worker == EVERYONE else (worker,)
        if worker == EVERYONE and not self._multicast:
            raise LoopError("a result for everyone in a job without a group")
        if self._copies > 1 and all(self._turn[each][slot] != turn for each in to):
            self.ignored += 1
            return
        payload = frame[wire.LOOKAHEAD_OFFSET : -wire.SEAL_BYTES]
        self._blocks_out += blocks
        if self._reduced[slot] != turn:
            if self._reduced[slot] != turn - 1:
                raise LoopError(f"slot {slot}: result {turn} after {self._reduced[slot]}")
            self._reduced[slot] = turn
            self._payload[slot] = payload
            self._goes_on[slot] = self._traffic.result(slot, turn, payload)
            self._rounds += 1
            self._blocks_reduced += blocks
        elif payload != self._payload[slot]:
            raise LoopError(f"slot {slot}: workers have got different results {turn}")
        for each in to:
            if self._turn[each][slot] != turn:
                raise LoopError(f"slot {slot}: result {turn} came twice to worker {each}")
            self._turn[each][slot] = turn + 1
            if self._goes_on[slot]:
                self._offer(each, slot)
