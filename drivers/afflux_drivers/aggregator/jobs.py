"""The table of an engine's jobs: gives out job numbers, slot ranges and keys."""

import secrets
import socket
import time
from dataclasses import dataclass

from afflux_drivers.aggregator.board import Board
from afflux_drivers.aggregator.data_path import DataPath
from afflux_drivers.aggregator.engine import Registers
from afflux_drivers.aggregator.parent_ports import lanes_towards
from afflux_drivers.control.tickets import ParentJob
from afflux_drivers.frames import mac_of
from afflux_drivers.sockets import MulticastGroup
from afflux_hdl.contract import registers

__all__ = ["Job", "JobTable", "NoRoom", "engine_limits", "read_counters"]

_BUSY_TIMEOUT_S = 10.0
_CREDIT_MAX = 0xFFFF


class NoRoom(Exception):
    """The engine cannot hold the requested job; the text gives the reason."""


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
        parent: The aggregator above, or None.
        group: Where results go, once for all workers; None if they go to each.
    """

    number: int
    key: int
    round: int
    workers: int
    lanes: int
    slot_base: int
    slots: int
    credit: int
    parent: ParentJob | None
    group: MulticastGroup | None


def engine_limits(engine: Registers) -> dict[str, int]:
    """Return what the engine was built for: workers, lanes, jobs, slots."""
    return {
        name: engine.read(registers.address_of(f"build_{name}"))
        for name in ("workers", "lanes", "jobs", "slots")
    }


def read_counters(engine: Registers) -> dict[str, int]:
    """Return all counters of an engine, by name; before those of a board's node is `node_`."""
    places = {each.name: registers.counter_address(each.name) for each in registers.COUNTERS}
    if isinstance(engine, Board):
        places |= {
            f"node_{each.name}": registers.node_counter_address(each.name)
            for each in registers.NODE_COUNTERS
        }
    values = {}
    for name, address in places.items():
        # The lower word first: reading it latches the upper one.
        low = engine.read(address)
        values[name] = engine.read(address + 4) << 32 | low
    return values


class JobTable:
    """The jobs of one engine. Not thread-safe: no frames may be played meanwhile.

    Args:
        engine: The engine, on which nobody else creates jobs.
        capacity: Full packets that the way to the engine holds, for all jobs together.
        group: Where the results of all jobs go, once for all their workers; None sends them to
            each worker.
        parent_ports: Opens ports for jobs that have a parent; None if there can be none.
    """

    def __init__(
        self,
        engine: Registers,
        capacity: int,
        group: MulticastGroup | None = None,
        parent_ports: DataPath | None = None,
    ) -> None:
        self._parent_ports = parent_ports
        self._group = group
        self._engine = engine
        self._capacity = capacity
        self._limits = engine_limits(engine)
        self._jobs: dict[int, Job] = {}

    def create(
        self,
        workers: int,
        lanes: int,
        slots: int,
        parent: ParentJob | None = None,
        to_each: bool = False,
    ) -> Job:
        """Create a job with at most so many lanes and slots.

        Args:
            workers: N.
            lanes: Maximum of F; fewer are given if the route to the parent carries fewer.
            slots: Maximum of slots.
            parent: The aggregator above, if there is one; `join_parent` comes next then.
            to_each: Send results to each worker, even if there is a group.

        Raises:
            NoRoom: If the engine cannot hold it.
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
        if parent is not None:
            lanes = min(lanes, self._open_parent_port(free[0], parent))
        granted = min(slots, share, length, _CREDIT_MAX)
        job = Job(
            number=free[0],
            key=secrets.randbits(64),
            round=secrets.randbits(32) if parent is None else parent.round,
            workers=workers,
            lanes=min(lanes, self._limits["lanes"]),
            slot_base=base,
            slots=granted,
            credit=granted,
            parent=parent,
            group=None if to_each else self._group,
        )
        group_address, group_port = job.group.words if job.group is not None else (0, 0)
        for name, value in (
            ("job_key_low", job.key & 0xFFFF_FFFF),
            ("job_key_high", job.key >> 32),
            ("job_workers", job.workers),
            ("job_lanes", job.lanes),
            ("job_slot_base", job.slot_base),
            ("job_slot_count", job.slots),
            ("job_round", job.round),
            ("job_credit", job.credit),
            ("job_group_address", group_address),
            ("job_group_port", group_port),
            *_parent_registers(parent),
        ):
            self._engine.write(registers.address_of(name), value)
        try:
            self._command(job.number, registers.Command.CREATE)
        except NoRoom:
            self._close_parent_port(job.number)
            raise
        self._jobs[job.number] = job
        return job

    def join_parent(self, job: Job) -> bool:
        """Return whether a job has joined its parent; if not, make the engine ask for it."""
        self._engine.write(registers.address_of("job_index"), job.number)
        if self._engine.read(registers.address_of("job_parent_joined")):
            return True
        self._command(job.number, registers.Command.JOIN_PARENT)
        return False

    def _open_parent_port(self, number: int, parent: ParentJob) -> int:
        """Open the parent port of job `number`; return how many lanes the route to it carries."""
        if self._parent_ports is None:
            raise NoRoom("this aggregator cannot have a parent")
        try:
            lanes = lanes_towards(parent.address, parent.port)
            self._parent_ports.open(number)
        except (OSError, ValueError) as error:
            raise NoRoom(
                f"cannot reach the parent at {parent.address}:{parent.port}: {error}"
            ) from None
        return lanes

    def find(self, number: int, key: int) -> Job | None:
        """Return the job of this number, if this is its key."""
        job = self._jobs.get(number)
        return job if job is not None and job.key == key else None

    def destroy(self, job: Job) -> None:
        """Destroy a job, if it still exists."""
        if self._jobs.get(job.number) is not job:
            return
        self._command(job.number, registers.Command.DESTROY)
        del self._jobs[job.number]
        self._close_parent_port(job.number)

    def _close_parent_port(self, number: int) -> None:
        if self._parent_ports is not None:
            self._parent_ports.close(number)

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
        """Return first slot and length of the longest free range of the pool."""
        best, at = (0, 0), 0
        used = sorted((job.slot_base, job.slots) for job in self._jobs.values())
        for base, slots in [*used, (self._limits["slots"], 0)]:
            if base - at > best[1]:
                best = at, base - at
            at = base + slots
        return best


def _parent_registers(parent: ParentJob | None) -> list[tuple[str, int]]:
    if parent is None:
        return [("job_parent_address", 0)]
    address = int.from_bytes(socket.inet_aton(parent.address), "big")
    # The address that frames between hosts' sockets have; a network of frames would take ARP.
    mac = int.from_bytes(mac_of(address), "big")
    return [
        ("job_parent_mac_low", mac & 0xFFFF_FFFF),
        ("job_parent_mac_high", mac >> 32),
        ("job_parent_address", address),
        ("job_parent_port", parent.port),
        ("job_parent_job", parent.job),
        ("job_parent_worker", parent.worker),
        ("job_parent_key_low", parent.key & 0xFFFF_FFFF),
        ("job_parent_key_high", parent.key >> 32),
    ]
