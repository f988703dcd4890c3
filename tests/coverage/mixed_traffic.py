"""Traffic for the functional-coverage model: random, with loss, on jobs of every shape.

It is drawn from distributions and does not look at the bins: what it does not reach, it does not
reach.
"""

import random
from collections.abc import Callable

from afflux_sim.golden.engine import GoldenEngine
from afflux_sim.golden.state import Slot
from tests.coverage.observer import SentFrame
from tests.scenarios.director import Build
from tests.scenarios.job_frames import ENGINE_ADDRESS, ENGINE_MAC, Job, ParentJob, ResultGroup
from tests.scenarios.packing import HEADER, Peer, pack_frame, repaired

__all__ = ["MixedTraffic", "draw_jobs"]

DATA, PROBE, JOIN, RESULT, CONFLICT = 0, 1, 2, 8, 9
SIZES = (1, 2, 3, 7, 8, 40, 64)
VERSION = 2
NUMBERS = (4, 5, *range(8, 15))
"""Opcodes of numbers; from 8 on of sums."""
PARTIAL = {1: 13, 2: 10, 3: 11}
"""The dtype of the partial sums that every engine takes, by that of their numbers."""


def draw_jobs(choose: random.Random, build: Build) -> list[Job]:
    """Return jobs of any shape, as many as the build has, each with its share of the slots."""
    share = build["slots"] // build["jobs"]
    jobs = []
    for number in range(build["jobs"]):
        way = choose.choice(("unicast", "unicast", "group", "parent"))
        jobs.append(
            Job(
                number=number,
                workers=min(choose.choice(SIZES), build["workers"]),
                lanes=min(choose.choice((3, 5, 16)), build["lanes"]),
                slots=share,
                slot_base=share * number,
                first_round=choose.getrandbits(32),
                key=choose.getrandbits(64),
                group=ResultGroup("239.1.2.3", 5000) if way == "group" else None,
                parent=ParentJob(key=choose.getrandbits(64)) if way == "parent" else None,
            )
        )
    return jobs


class MixedTraffic:
    """Draws frames of some jobs.

    Args:
        choose: Draws everything.
        golden: Its slots say what is due.
        jobs: The jobs that exist.
    """

    def __init__(self, choose: random.Random, golden: GoldenEngine, jobs: list[Job]) -> None:
        self._choose = choose
        self._golden = golden
        self._jobs = jobs
        mac = bytes.fromhex(ENGINE_MAC.replace(":", ""))
        self._here = Peer(mac, _packed(ENGINE_ADDRESS), golden.endpoint.port)
        self._lost: set[tuple[int, int, int, int]] = set()
        self._formats = {job.number: self._draw_format() for job in jobs}
        self._body = choose.randbytes(64 + 16 * 512)
        self._kinds: list[tuple[Callable[[], SentFrame], int]] = [
            (self._due, 66),
            (self._duplicate, 7),
            (self._previous, 7),
            (self._probe, 8),
            (self._out_of_turn, 4),
            (self._from_parent, 4),
            (self._join, 2),
            (self._refused, 4),
            (self._wrong, 4),
            (self._foreign, 4),
        ]

    def frame(self) -> SentFrame:
        """Return the next frame."""
        kinds, weights = zip(*self._kinds, strict=True)
        draw: Callable[[], SentFrame] = self._choose.choices(kinds, weights)[0]
        return draw()

    # The drawn values.

    def _draw_format(self) -> int:
        if self._choose.random() < 0.5:
            return self._choose.randrange(4) << 4 | self._choose.randrange(16)
        return self._choose.choice(NUMBERS) << 4 | self._choose.choice(list(PARTIAL))

    def _place(self) -> tuple[Job, int]:
        """Return a job and a slot of it. Those with many workers come more often: they need it."""
        weights = [1 + job.workers for job in self._jobs]
        job = self._choose.choices(self._jobs, weights)[0]
        # Few slots, so that rounds are completed.
        return job, min(self._choose.randrange(job.slots), self._choose.randrange(job.slots))

    def _due(self) -> SentFrame:
        """Return a contribution that is due, or say that it was lost and send it later."""
        job, slot = self._place()
        round_, seen = self._open(job, slot)
        missing = [n for n in range(job.workers) if not seen >> n & 1]
        worker = self._choose.choice(missing)
        if not seen and self._choose.random() < 0.3:
            self._formats[job.number] = self._draw_format()
        key = (job.number, slot, round_, worker)
        again = key in self._lost
        if not again and self._choose.random() < 0.15:
            self._lost.add(key)
            return self._due()
        return self._contribution(job, slot, round_, worker, again)

    def _open(self, job: Job, slot: int) -> tuple[int, int]:
        """Return the round that contributions are due to, and the bitmap of those that are in."""
        golden = self._golden.jobs[job.number]
        assert golden is not None
        state = golden.slots[slot]
        if golden.is_complete(state):
            return (state.round + 1) % 2**32, 0
        if state.waiting:
            # None is due: what comes is a duplicate.
            return state.round, 0
        return state.round, state.seen

    def _contribution(
        self, job: Job, slot: int, round_: int, worker: int, again: bool = False
    ) -> SentFrame:
        choose = self._choose
        present = choose.choice(
            (0, 1 << choose.randrange(job.lanes), choose.getrandbits(job.lanes), 2**job.lanes - 1)
        )
        # Now and then one who does not do what the others do.
        other = choose.random() < 0.01
        format_ = self._draw_format() if other else self._formats[job.number]
        kind = CONFLICT if choose.random() < 0.01 else DATA
        if format_ >= 0x80 and kind == DATA and choose.random() < 0.2:
            format_ = format_ & 0xF0 | PARTIAL[format_ & 15]
        frame = self._pack(job, worker, kind, format_, slot, present, round_)
        return SentFrame(frame, job, slot, again)

    def _duplicate(self) -> SentFrame:
        job, slot = self._place()
        state = self._state(job, slot)
        members = [n for n in range(job.workers) if state.seen >> n & 1] or [0]
        return self._contribution(job, slot, state.round, self._choose.choice(members))

    def _previous(self) -> SentFrame:
        job, slot = self._place()
        round_ = (self._state(job, slot).round - 1) % 2**32
        return self._contribution(job, slot, round_, self._choose.randrange(job.workers))

    def _probe(self) -> SentFrame:
        job, slot = self._place()
        offset = self._choose.choice((0, 0, 0, -1, -1, 1, 2, -2, -3, 2**31))
        round_ = (self._state(job, slot).round + offset) % 2**32
        worker = self._choose.randrange(job.workers)
        frame = self._pack(job, worker, PROBE, self._formats[job.number], slot, 0, round_)
        return SentFrame(frame, job, slot)

    def _out_of_turn(self) -> SentFrame:
        job, slot = self._place()
        offset = self._choose.choice((2, 3, 2**31 - 1, -2, -3, 2**31))
        round_ = (self._state(job, slot).round + offset) % 2**32
        return self._contribution(job, slot, round_, self._choose.randrange(job.workers))

    def _from_parent(self) -> SentFrame:
        """Return a result of a parent, for a slot that waits, if there is one."""
        choose = self._choose
        children = [job for job in self._jobs if job.parent]
        if not children:
            return self._due()
        job = choose.choice(children)
        waiting = [n for n in range(job.slots) if self._state(job, n).waiting]
        slot = choose.choice(waiting) if waiting else choose.randrange(job.slots)
        parent = job.parent
        assert parent is not None
        present = choose.getrandbits(job.lanes)
        round_ = self._state(job, slot).round
        format_ = self._golden_format(job, slot)
        kind = RESULT if choose.random() < 0.9 else CONFLICT
        fields = (VERSION << 4 | kind, format_, parent.number, parent.worker, slot, present, round_)
        payload = HEADER.pack(*fields, parent.key, 7) + self._some(present, 256)
        there = Peer(_octets(parent.mac), _packed(parent.address), parent.port)
        here = Peer(self._here.mac, self._here.address, job.parent_port)
        return SentFrame(pack_frame(there, here, payload), job, slot)

    def _join(self) -> SentFrame:
        job, _ = self._place()
        worker = self._choose.randrange(job.workers)
        return SentFrame(self._pack(job, worker, JOIN, 0, 0, 0, 0), job)

    def _refused(self) -> SentFrame:
        """Return a frame, half of them JOINs, with a field that belongs to nobody."""
        choose = self._choose
        job, slot = self._place()
        kind = choose.choice((JOIN, DATA))
        what = choose.choice(("job", "key", "worker", "version"))
        changes = {
            "job": {"number": len(self._jobs) + choose.randrange(9)},
            "key": {"key": job.key ^ 1 << choose.randrange(64)},
            "worker": {"claimed": choose.choice((job.workers, 64, 255))},
            "version": {"version": choose.choice((0, 1, 15))},
        }[what]
        worker = choose.randrange(job.workers)
        return SentFrame(self._pack(job, worker, kind, 0, slot, 0, 0, **changes))

    def _wrong(self) -> SentFrame:
        """Return a frame of a member that no member would send."""
        choose = self._choose
        job, slot = self._place()
        worker = choose.randrange(job.workers)
        what = choose.choice(("type", "opcode", "slot", "present", "address"))
        kind, format_, present = DATA, 0, 0
        source = self._peer(job, worker)
        if what == "type":
            kind = choose.choice((3, 7, 10, 15))
        elif what == "opcode":
            # Of no opcode, and numbers of int32.
            format_ = choose.randrange(4, 16) << 4
        elif what == "slot":
            slot = job.slots + choose.choice((0, 1, 500))
        elif what == "present":
            kind, present = PROBE, 1
        else:
            source = Peer(source.mac, source.address, source.port ^ 1 << choose.randrange(16))
        payload = self._payload(job, worker, kind, format_, slot, present, 0)
        return SentFrame(pack_frame(source, self._here, payload))

    def _foreign(self) -> SentFrame:
        """Return what is not for the engine, or broken; from one byte on."""
        choose = self._choose
        frame = bytearray(self._due().frame)
        what = choose.randrange(7)
        if what == 0:
            return SentFrame(bytes(frame), mac_error=True)
        if what == 1:
            return SentFrame(choose.randbytes(choose.randrange(1, 200)))
        if what == 2:
            frame[choose.choice((0, 12, 23, 30, 36))] ^= 1 << choose.randrange(8)
        elif what == 3:
            frame[choose.choice((14, 24, 25))] ^= 1 << choose.randrange(4)
        elif what == 4:
            frame[len(frame) - 1 - choose.randrange(60)] ^= 1 << choose.randrange(8)
        elif what == 5:
            return SentFrame(bytes(frame)[: -choose.randrange(1, 65)])
        else:
            frame[20] |= 0x20
            return SentFrame(repaired(bytes(frame)))
        return SentFrame(bytes(frame))

    # How it is packed.

    def _state(self, job: Job, slot: int) -> Slot:
        golden = self._golden.jobs[job.number]
        assert golden is not None
        return golden.slots[slot]

    def _golden_format(self, job: Job, slot: int) -> int:
        state = self._state(job, slot)
        version = state.versions[state.round & 1]
        format_: int = version.opcode << 4 | version.dtype
        return format_

    def _peer(self, job: Job, worker: int) -> Peer:
        return Peer(_octets(job.mac(worker)), _packed(job.address(worker)), job.port(worker))

    def _some(self, present: int, block_bytes: int) -> bytes:
        return self._body[: 64 + block_bytes * present.bit_count()]

    def _payload(
        self,
        job: Job,
        worker: int,
        kind: int,
        format_: int,
        slot: int,
        present: int,
        round_: int,
        *,
        version: int = VERSION,
        number: int | None = None,
        key: int | None = None,
    ) -> bytes:
        fields = (
            version << 4 | kind, format_, job.number if number is None else number, worker, slot,
            present, round_, job.key if key is None else key, 7,
        )  # fmt: skip
        partial = format_ >= 0x80 and format_ & 15 in PARTIAL.values()
        return HEADER.pack(*fields) + self._some(present, 512 if partial else 256)

    def _pack(self, job: Job, worker: int, *fields: int, **changes: int) -> bytes:
        claimed = changes.pop("claimed", worker)
        payload = self._payload(job, claimed, *fields, **changes)
        checked = self._choose.random() < 0.5
        return pack_frame(self._peer(job, worker), self._here, payload, checked=checked)


def _octets(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))


def _packed(address: str) -> bytes:
    return bytes(map(int, address.split(".")))
