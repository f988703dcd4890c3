"""Job numbers, slot ranges and secrets: what an aggregator's operator gives out, and takes back."""

import secrets
import time
from dataclasses import dataclass

from afflux_drivers.engine import Engine
from afflux_hdl import registers

__all__ = ["Job", "JobTable", "NoRoom", "engine_limits", "read_counters"]

_BUSY_TIMEOUT_S = 10.0
_CREDIT_MAX = 0xFFFF


class NoRoom(Exception):
    """The engine can not hold the job that was asked for; the text says why."""


@dataclass(frozen=True)
class Job:
    """A job as it was created.

    Attributes:
        number: Job number.
        key: Secret, 64 bits.
        round: First round r0.
        workers: N.
        lanes: F.
        slot_base: First slot in the pool.
        slots: Number of slots.
        credit: Packets that a worker may have in flight.
    """

    number: int
    key: int
    round: int
    workers: int
    lanes: int
    slot_base: int
    slots: int
    credit: int


def engine_limits(engine: Engine) -> dict[str, int]:
    """What the engine was built with: workers, lanes, jobs, slots."""
    return {
        name: engine.read(registers.address_of(f"build_{name}"))
        for name in ("workers", "lanes", "jobs", "slots")
    }


def read_counters(engine: Engine) -> dict[str, int]:
    """All counters of an engine, by name."""
    values = {}
    for counter in registers.COUNTERS:
        address = registers.counter_address(counter.name)
        # The lower word first: reading it latches the upper one.
        low = engine.read(address)
        values[counter.name] = engine.read(address + 4) << 32 | low
    return values


class JobTable:
    """The jobs of one engine. Not thread-safe: whoever plays frames meanwhile must hold off.

    Args:
        engine: The engine; no one else creates jobs on it.
        capacity: Full packets that the way to the engine holds, for all jobs together.
    """

    def __init__(self, engine: Engine, capacity: int) -> None:
        self._engine = engine
        self._capacity = capacity
        self._limits = engine_limits(engine)
        self._jobs: dict[int, Job] = {}

    def create(self, workers: int, lanes: int, slots: int) -> Job:
        """Creates a job with at most so many lanes and slots.

        Raises:
            NoRoom: If the engine can not hold it.
        """
        if workers > self._limits["workers"]:
            raise NoRoom(
                f"{workers} workers are more than the {self._limits['workers']} that this engine "
                f"was built for"
            )
        free = [number for number in range(self._limits["jobs"]) if number not in self._jobs]
        if not free:
            raise NoRoom(f"all {self._limits['jobs']} jobs of this engine are in use")
        taken = sum(job.workers * job.slots for job in self._jobs.values())
        # Half of what is left, so that later jobs find some. One slot is always given: a buffer
        # that overflows loses packets, which costs time and nothing else.
        share = max(1, (self._capacity - taken) // 2 // workers)
        base, length = self._largest_gap()
        if length == 0:
            raise NoRoom(f"all {self._limits['slots']} slots of this engine are in use")
        granted = min(slots, share, length, _CREDIT_MAX)
        job = Job(
            number=free[0],
            key=secrets.randbits(64),
            round=secrets.randbits(32),
            workers=workers,
            lanes=min(lanes, self._limits["lanes"]),
            slot_base=base,
            slots=granted,
            credit=granted,
        )
        for name, value in (
            ("job_key_low", job.key & 0xFFFF_FFFF),
            ("job_key_high", job.key >> 32),
            ("job_workers", job.workers),
            ("job_lanes", job.lanes),
            ("job_slot_base", job.slot_base),
            ("job_slot_count", job.slots),
            ("job_round", job.round),
            ("job_credit", job.credit),
        ):
            self._engine.write(registers.address_of(name), value)
        self._command(job.number, registers.Command.CREATE)
        self._jobs[job.number] = job
        return job

    def find(self, number: int, key: int) -> Job | None:
        """The job of this number, if this is its key."""
        job = self._jobs.get(number)
        return job if job is not None and job.key == key else None

    def destroy(self, job: Job) -> None:
        """Destroys a job, if it still exists."""
        if self._jobs.get(job.number) is not job:
            return
        self._command(job.number, registers.Command.DESTROY)
        del self._jobs[job.number]

    def _command(self, number: int, command: registers.Command) -> None:
        engine = self._engine
        engine.write(registers.address_of("job_index"), number)
        engine.write(registers.address_of("job_command"), command)
        busy = registers.address_of("job_busy")
        give_up = time.monotonic() + _BUSY_TIMEOUT_S
        while engine.read(busy):
            if time.monotonic() > give_up:
                raise NoRoom(
                    f"the engine has been busy with {command.name} of job {number} for "
                    f"{_BUSY_TIMEOUT_S:g} s"
                )

    def _largest_gap(self) -> tuple[int, int]:
        """First slot and length of the longest free range of the pool."""
        best, at = (0, 0), 0
        used = sorted((job.slot_base, job.slots) for job in self._jobs.values())
        for base, slots in [*used, (self._limits["slots"], 0)]:
            if base - at > best[1]:
                best = at, base - at
            at = base + slots
        return best
