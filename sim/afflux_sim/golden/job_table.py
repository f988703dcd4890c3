"""The jobs of the golden model, and how commands change them (`docs/protocol.md` section 7)."""

import ipaddress

from afflux_sim.golden.frames import GroupAddress
from afflux_sim.golden.state import Job, Parent, Slot

__all__ = ["CommandRefused", "JobTable"]


class CommandRefused(ValueError):
    """A command that does not fit; `reason` is its number in docs/registers.md."""

    def __init__(self, reason: int, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class JobTable:
    """The jobs that an engine has room for.

    Attributes:
        jobs: The jobs by number, None where there is none.
    """

    def __init__(self, *, workers: int, lanes: int, jobs: int, slots: int) -> None:
        self.workers = workers
        self.lanes = lanes
        self.slots = slots
        self.jobs: list[Job | None] = [None] * jobs

    def create_job(
        self,
        job: int,
        *,
        key: int,
        workers: int,
        lanes: int,
        slot_base: int,
        slot_count: int,
        round: int,
        credit: int,
        group: GroupAddress | None = None,
        group_key: int = 0,
        parent: Parent | None = None,
        may_move: bool = False,
    ) -> None:
        """Set up job number `job` afresh; `round` is r₀, the first round of each of its slots.

        Raises:
            CommandRefused: If the engine was not built for this, or slots belong to another job.
                The job that had the number is gone all the same, unless the number is wrong.
        """
        if not 0 <= job < len(self.jobs):
            raise CommandRefused(2, f"job must be in 0–{len(self.jobs) - 1}, not {job}")
        self.destroy_job(job)
        if not 1 <= workers <= self.workers:
            raise CommandRefused(3, f"workers must be in 1–{self.workers}, not {workers}")
        if not 1 <= lanes <= self.lanes:
            raise CommandRefused(4, f"lanes must be in 1–{self.lanes}, not {lanes}")
        if slot_count < 1 or slot_base < 0 or slot_base + slot_count > self.slots:
            raise CommandRefused(
                5,
                f"slots {slot_base}–{slot_base + slot_count - 1} are not within 0–{self.slots - 1}",
            )
        if group is not None and not ipaddress.IPv4Address(group.address).is_multicast:
            raise CommandRefused(7, f"{group.address} is not a multicast address")
        for number, other in enumerate(self.jobs):
            if (
                number != job
                and other is not None
                and slot_base < other.slot_base + len(other.slots)
                and other.slot_base < slot_base + slot_count
            ):
                raise CommandRefused(6, f"slots of job {job} overlap those of job {number}")
        full = (1 << workers) - 1
        before_first = (round - 1) % 2**32
        self.jobs[job] = Job(
            number=job,
            key=key,
            workers=workers,
            lanes=lanes,
            slot_base=slot_base,
            credit=credit,
            slots=[Slot(round=before_first, seen=full) for _ in range(slot_count)],
            group=group,
            group_key=group_key,
            parent=parent,
            may_move=may_move,
        )

    def destroy_job(self, job: int) -> None:
        """Disable job number `job` and forget all about it."""
        self.jobs[job] = None

    def has_joined_parent(self, job: int) -> bool:
        """Return whether the parent of job number `job` has answered JOINED."""
        return self._existing(job).parent_joined

    def slot(self, job: int, slot: int) -> Slot:
        """Return the state of a slot, numbered within the job's range, for reading."""
        return self._existing(job).slots[slot]

    def _existing(self, job: int) -> Job:
        found = self.jobs[job]
        if found is None:
            raise ValueError(f"job {job} does not exist")
        return found
