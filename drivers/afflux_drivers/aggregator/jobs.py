"""The table of an engine's jobs: gives out job numbers, slot ranges and keys."""

import logging
import secrets
import time

from afflux_drivers.addresses import authority, route_to
from afflux_drivers.aggregator.board import Board, BoardFailed
from afflux_drivers.aggregator.data_path import DataPath
from afflux_drivers.aggregator.job import Job
from afflux_drivers.aggregator.job_commands import JobCommands, NoRoom
from afflux_drivers.aggregator.job_journal import JobJournal
from afflux_drivers.aggregator.parent_ports import PortTaken
from afflux_drivers.aggregator.peers import PEER_SHARE, may_take
from afflux_drivers.aggregator.slot_pool import BUSY_SLOTS, SlotPool, slots_of
from afflux_drivers.control.tickets import ParentJob
from afflux_drivers.device.counters import engine_counters, node_counters
from afflux_drivers.registers import Registers
from afflux_drivers.sockets import MulticastGroup
from afflux_hdl.contract import registers, wire

__all__ = ["JobTable", "engine_limits", "read_counters"]

_log = logging.getLogger("afflux")

_AGAIN_S = 5.0
_CREDIT_MAX = 0xFFFF

_PORTS_TRIED = 16
"""Of jobs below a parent, whose numbers decide on which port the parent answers."""


def engine_limits(engine: Registers) -> dict[str, int]:
    """Return what the engine was built for: workers, lanes, jobs, slots."""
    return {
        name: engine.read(registers.address_of(f"build_{name}"))
        for name in ("workers", "lanes", "jobs", "slots")
    }


def read_counters(engine: Registers) -> dict[str, int]:
    """Return all counters of an engine, by name; before those of a board's node is `node_`."""
    found = engine_counters(engine)
    return found | node_counters(engine) if isinstance(engine, Board) else found


class JobTable:
    """The jobs of one engine. Not thread-safe: no frames may be played meanwhile.

    Args:
        engine: The engine, on which nobody else creates jobs.
        room_bytes: Bytes that receive buffers on the way to the engine may charge, for all jobs
            together.
        group: Where the results of all jobs go, once for all their workers; None sends them to
            each worker.
        parent_ports: Opens ports for jobs that have a parent; None if there can be none.
        peer_share: The most of all jobs, and of all slots, that one peer may have while it is
            alone; see `may_take`.
        may_move: Workers may join from another address while their job runs, as where addresses
            are translated on the way. A client that knows a job's key can have its results then.
        journal: Keeps the jobs for a later table of the same engine; None if the engine ends with
            this one.
    """

    def __init__(
        self,
        engine: Registers,
        room_bytes: int,
        group: MulticastGroup | None = None,
        parent_ports: DataPath | None = None,
        peer_share: float = PEER_SHARE,
        may_move: bool = False,
        journal: JobJournal | None = None,
    ) -> None:
        self._journal = journal
        self._peer_share = peer_share
        self._parent_ports = parent_ports
        self._may_move = may_move
        self._group = group
        self._commands = JobCommands(engine)
        self._limits = engine_limits(engine)
        self._pool = SlotPool(self._limits["slots"], room_bytes)
        self._jobs: dict[int, Job] = {}
        # Of jobs with a lease, when on the monotonic clock it ends.
        self._ends: dict[int, float] = {}
        # Of jobs that are over, but whose destruction has failed so far, when to try again.
        self._doomed: dict[int, float] = {}

    def create(
        self,
        workers: int,
        lanes: int,
        slots: int,
        parent: ParentJob | None = None,
        to_each: bool = False,
        peer: str = "",
        lease_s: int = 0,
    ) -> Job:
        """Create a job with at most so many lanes and slots.

        Args:
            workers: N.
            lanes: Maximum of F; fewer are given if the route to the parent carries fewer.
            slots: Maximum of slots.
            parent: The aggregator above, if there is one; `join_parent` comes next then.
            to_each: Send results to each worker, even if there is a group.
            peer: The client's, for limits; empty for the operator, who has none.
            lease_s: The job ends when it has not been renewed for so long; 0: it does not.

        Raises:
            NoRoom: If the engine cannot hold it, or the rest is kept for other peers.
        """
        if workers > self._limits["workers"]:
            raise NoRoom(
                f"{workers} workers are more than the {self._limits['workers']} that this engine "
                f"was built for"
            )
        free = [number for number in range(self._limits["jobs"]) if number not in self._jobs]
        if not free:
            raise NoRoom(f"all {self._limits['jobs']} jobs of this engine are in use")
        taken = self._jobs.values()
        base, length = self._pool.largest_gap(taken)
        if length == 0:
            raise NoRoom(f"all {self._limits['slots']} slots of this engine are in use")
        if peer and self._peer_share < 1:
            length = min(length, self._left_for(peer, len(free)))
        number = free[0]
        if parent is not None:
            number, carried = self._open_parent_port(free, parent)
            lanes = min(lanes, carried)
        lanes = min(lanes, self._limits["lanes"])
        granted = min(slots, self._pool.share(taken, workers, lanes), length, _CREDIT_MAX)
        group = None if to_each else self._group
        job = Job(
            number=number,
            key=secrets.randbits(64),
            round=secrets.randbits(32) if parent is None else parent.round,
            workers=workers,
            lanes=lanes,
            slot_base=base,
            slots=granted,
            credit=granted,
            parent=parent,
            group=group,
            group_key=0 if group is None else secrets.randbits(64),
            peer=peer,
            lease_s=lease_s,
        )
        try:
            self._commands.create(job, self._may_move)
        except (NoRoom, BoardFailed) as error:
            if isinstance(error, BoardFailed) or error.undecided:
                # The command may have been carried out, or may be yet.
                self._take(job)
                self._put_off(job)
            else:
                self._close_parent_port(job.number)
            raise
        self._take(job)
        self._write_journal()
        _log.info(
            "job %d of peer %s begins: %d workers, %d lanes, %d slots%s",
            job.number, job.peer or "unknown", job.workers, job.lanes, job.slots,
            "" if parent is None else f", below {authority(parent.address, parent.port)}",
        )  # fmt: skip
        return job

    def _left_for(self, peer: str, free_jobs: int) -> int:
        """Return how many slots a further job of a peer may have, at least 1."""
        own = [job for job in self._jobs.values() if job.peer == peer]
        free_slots = self._limits["slots"] - slots_of(self._jobs.values())
        left = 0
        for what, has, free in (
            ("jobs", len(own), free_jobs),
            ("slots", slots_of(own), free_slots),
        ):
            left = may_take(has, free, self._peer_share)
            if left == 0:
                raise NoRoom(
                    f"peer {peer} has {has} of the {self._limits[what]} {what} of this engine, and "
                    f"{free} are left for others (--peer-share {self._peer_share:g})"
                )
        # Half of it, so that the peer's later jobs find some, but enough to keep a path busy.
        return min(left, max(left // 2, BUSY_SLOTS))

    def _take(self, job: Job) -> None:
        self._jobs[job.number] = job
        if job.lease_s:
            self._ends[job.number] = time.monotonic() + job.lease_s

    def renew(self, job: Job) -> None:
        """Let the lease of a job begin anew, if it has one."""
        if job.lease_s:
            self._ends[job.number] = time.monotonic() + job.lease_s

    def end_overdue(self, heard: float | None = None) -> None:
        """Destroy the jobs whose leases have ended, and those that could not be destroyed before.

        A failed close is logged, and tried again later; after one that fails no other is tried, so
        that an engine that is busy or silent holds nobody up once for each of its jobs.

        Args:
            heard: When on the monotonic clock the clients were listened to: of what they have said
                since nothing is known. None: now.
        """
        now = time.monotonic() if heard is None else heard
        over = [each for each in self._jobs.values() if self._ends.get(each.number, now) < now]
        for job in over:
            _log.warning(
                "job %d of peer %s has not been renewed for %d s: its lease has ended",
                job.number, job.peer or "unknown", job.lease_s,
            )  # fmt: skip
        over += [self._jobs[number] for number, when in self._doomed.items() if when < now]
        ended = True
        for job in over:
            if ended:
                ended = self.end(job)
            else:
                self._put_off(job)

    def end(self, job: Job) -> bool:
        """Destroy a job that nobody asks for any more; return whether it is gone.

        A failure is logged, and `end_overdue` repeats. Until that succeeds the job's slots stay
        taken.
        """
        first = job.number not in self._doomed
        try:
            self.destroy(job)
        except (NoRoom, BoardFailed) as error:
            self._put_off(job)
            if first:
                _log.error("job %d is over, but not destroyed yet: %s", job.number, error)
            return False
        return True

    def end_now(self, job: Job) -> bool:
        """Destroy a job if it still exists; return whether this has ended it."""
        return self.find(job.number, job.key) is job and self.end(job)

    def _put_off(self, job: Job) -> None:
        """Have a job destroyed later, by `end_overdue`. Nobody can find it any more."""
        self._ends.pop(job.number, None)
        self._doomed[job.number] = time.monotonic() + _AGAIN_S

    def adopt(self) -> None:
        """Look which jobs the engine has already, as after the end of an earlier table.

        Those that the journal has, and that have a lease, go on: it begins anew. All others are
        destroyed, as nobody could renew or close them.

        Raises:
            NoRoom: If the engine does not let one be destroyed.
        """
        known = {} if self._journal is None else {job.number: job for job in self._journal.read()}
        self._commands.be_idle_before("a look at the jobs")
        for number in range(self._limits["jobs"]):
            if not self._commands.is_enabled(number):
                continue
            job = known.get(number)
            if job is not None and job.lease_s:
                _log.warning(
                    "job %d runs on the engine: it goes on if it is renewed within %d s",
                    number, job.lease_s,
                )  # fmt: skip
                self._take(job)
                continue
            _log.warning("job %d on the engine belongs to nobody: it is destroyed", number)
            self._commands.destroy(number)
        self._write_journal()

    def forget_lost(self) -> None:
        """Forget jobs that the engine does not have any more, as after a reset of a board.

        While it is busy with a command it cannot be looked at, and nothing is forgotten.
        """
        if self._commands.busy:
            return
        lost = [number for number in self._jobs if not self._commands.is_enabled(number)]
        for number in lost:
            _log.error(
                "the engine has lost job %d: it was reset, or it has another controller", number
            )
            self._drop(self._jobs[number])
        if lost:
            self._write_journal()

    def _write_journal(self) -> None:
        if self._journal is not None:
            self._journal.write(self._jobs.values())

    def join_parent(self, job: Job) -> bool:
        """Return whether a job has joined its parent; if not, make the engine ask for it."""
        return self._commands.join_parent(job.number)

    def _open_parent_port(self, free: list[int], parent: ParentJob) -> tuple[int, int]:
        """Open the parent port of one of these jobs, the first whose port nobody else has.

        Returns:
            Number of the job, and for how many lanes the route to the parent carries packets.
        """
        if self._parent_ports is None:
            raise NoRoom("this aggregator cannot have a parent")
        where = f"cannot reach the parent at {authority(parent.address, parent.port)}: "
        taken: list[PortTaken] = []
        try:
            # Partial sums go up.
            lanes = wire.lanes_of_partial_sums(route_to(parent.address, parent.port).lanes)
            for number in free[:_PORTS_TRIED]:
                try:
                    self._parent_ports.open(number, parent)
                    return number, lanes
                except PortTaken as error:
                    taken.append(error)
        except (OSError, ValueError) as error:
            raise NoRoom(f"{where}{error}") from None
        ports = ", ".join(str(each.port) for each in taken)
        raise NoRoom(f"{where}none of the ports on which it could answer is free: {ports}")

    def find(self, number: int, key: int) -> Job | None:
        """Return the job of this number, if this is its key."""
        job = self._jobs.get(number)
        if job is None or number in self._doomed:
            return None
        # In constant time: a stranger must not find the key part by part.
        fits = secrets.compare_digest(job.key.to_bytes(8, "big"), key.to_bytes(8, "big"))
        return job if fits else None

    def destroy(self, job: Job) -> None:
        """Destroy a job, if it still exists."""
        if self._jobs.get(job.number) is not job:
            return
        self._commands.destroy(job.number)
        self._drop(job)
        self._write_journal()
        _log.info("job %d of peer %s is over", job.number, job.peer or "unknown")

    def _drop(self, job: Job) -> None:
        del self._jobs[job.number]
        self._ends.pop(job.number, None)
        self._doomed.pop(job.number, None)
        self._close_parent_port(job.number)

    def _close_parent_port(self, number: int) -> None:
        if self._parent_ports is not None:
            self._parent_ports.close(number)
