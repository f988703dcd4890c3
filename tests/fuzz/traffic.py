"""The input of a fuzzed engine: one orderly job, unruly ones, and all that a network may carry.

Everything is drawn from one generator of random numbers, so a seed determines every byte.
"""

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from afflux_sim.golden.engine import GoldenEngine
from tests.scenarios.corruption import cut, extended, flip_bits, with_zero_udp_checksum
from tests.scenarios.packing import HEADER, Peer, pack_frame, repaired, sealed

__all__ = ["Jobs", "OrderlyJob", "Traffic", "UnrulyJob", "Work"]

DATA, PROBE, JOIN, RESULT, CONFLICT, JOINED = 0, 1, 2, 8, 9, 11
CORNERS = (0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**30)
ROUNDS_AT_ONCE = 2
"""Rounds that a slot may end between two rests of the engine: their results are all due."""


@dataclass(frozen=True)
class Work:
    """A job as its operator creates it, and where its workers and its parent are."""

    number: int
    key: int
    lanes: int
    slot_base: int
    slots: int
    first_round: int
    workers: tuple[Peer, ...]
    group: Peer | None = None
    group_key: int = 0
    parent: Peer | None = None
    parent_job: int = 0
    parent_worker: int = 0
    parent_key: int = 0


class Blocks:
    """A store of words and blocks, since drawing them anew for each frame would take longest."""

    def __init__(self, choose: random.Random) -> None:
        self._choose = choose
        draws: list[Callable[[], int]] = [
            lambda: choose.getrandbits(32),
            lambda: choose.choice(CORNERS),
        ]
        self._blocks = [
            struct.pack("<64I", *(draws[n & 1]() for _ in range(64))) for n in range(128)
        ]
        self._words = [
            struct.pack("<16I", *(draws[n & 1]() for _ in range(16))) for n in range(128)
        ]

    def body(self, count: int) -> bytes:
        """Words, and `count` blocks."""
        choose = self._choose
        return choose.choice(self._words) + b"".join(choose.choices(self._blocks, k=count))


class OrderlyJob:
    """A job whose workers send each contribution once, in time, and nothing else.

    Args:
        work: The job.
        engine: Where the engine is.
        choose: Draws everything.
        blocks: The blocks to send.
    """

    def __init__(self, work: Work, engine: Peer, choose: random.Random, blocks: Blocks) -> None:
        self.work = work
        self._engine = engine
        self._choose = choose
        self._blocks = blocks
        self._rounds = [work.first_round] * work.slots
        self._left: list[list[int]] = [[] for _ in range(work.slots)]
        self._begun = [0] * work.slots
        self.sent: list[bytes] = []

    def rest(self) -> None:
        """All results have come: further rounds may be opened."""
        self._begun = [1 if left else 0 for left in self._left]

    def frame(self) -> bytes | None:
        """Return the next contribution, if one is due."""
        choose, work = self._choose, self.work
        slot = choose.randrange(work.slots)
        if not self._left[slot]:
            if self._begun[slot] == ROUNDS_AT_ONCE:
                return None
            self._begun[slot] += 1
            self._left[slot] = choose.sample(range(len(work.workers)), len(work.workers))
        worker = self._left[slot].pop()
        present = choose.getrandbits(work.lanes)
        header = HEADER.pack(
            2 << 4 | DATA, 0, work.number, worker, slot, present, self._rounds[slot], work.key, 3
        )
        if not self._left[slot]:
            self._rounds[slot] = (self._rounds[slot] + 1) % 2**32
        payload = header + self._blocks.body(present.bit_count())
        frame = pack_frame(work.workers[worker], self._engine, payload)
        if choose.random() < 0.15:
            frame = sealed(frame)
        # The last few, for those who would copy them.
        self.sent = [*self.sent[-15:], frame]
        return frame


@dataclass
class UnrulyJob:
    """A job whose workers, and whose parent, send whatever may come to their minds.

    Attributes:
        work: The job.
        limits: By slot the round that it may reach before the engine has rested.
    """

    work: Work
    limits: list[int] = field(default_factory=list)

    def rest(self, golden: GoldenEngine) -> None:
        """All that was due has come: the slots may go on."""
        job = golden.jobs[self.work.number]
        self.limits = [slot.round + 1 for slot in job.slots] if job else []


@dataclass
class Jobs:
    """The jobs of a fuzzed engine."""

    orderly: OrderlyJob
    unruly: list[UnrulyJob]


class Traffic:
    """Draws frames.

    Args:
        choose: Draws everything.
        golden: Says which rounds are of interest.
        engine: Where the engine is.
        jobs: The jobs that exist, or did.
        blocks: The blocks of contributions.
    """

    def __init__(
        self,
        choose: random.Random,
        golden: GoldenEngine,
        engine: Peer,
        jobs: Jobs,
        blocks: Blocks,
    ) -> None:
        self._choose = choose
        self._golden = golden
        self._engine = engine
        self._jobs = jobs
        self._blocks = blocks
        self._sensible: list[bytes] = []
        self._kinds: list[Callable[[], bytes]] = [
            self._unruly,
            self._unruly,
            self._unruly,
            self._unruly,
            self._flipped,
            self._cut,
            self._hostile,
            self._hostile,
            self._foreign,
            self._noise,
        ]

    def frame(self) -> tuple[bytes, bool]:
        """Return the next frame, and whether it is one of the orderly job's own."""
        choose = self._choose
        if choose.random() < 0.35:
            frame = self._jobs.orderly.frame()
            if frame is not None:
                return frame, True
        return choose.choice(self._kinds)(), False

    def sensible(self) -> bytes:
        """Return one of the latest frames of the unruly jobs."""
        return self._choose.choice(self._sensible) if self._sensible else self._unruly()

    def _unruly(self) -> bytes:
        """Of an unruly job: most often what its slot is waiting for."""
        choose = self._choose
        job = choose.choice(self._jobs.unruly)
        work = job.work
        if work.parent and choose.random() < 0.4:
            frame = self._of_parent(work)
        else:
            frame = self._of_worker(job)
        self._sensible = [*self._sensible[-31:], frame]
        return frame

    def _of_worker(self, job: UnrulyJob) -> bytes:
        choose, work = self._choose, job.work
        worker = choose.randrange(len(work.workers))
        slot = choose.randrange(work.slots)
        draw = choose.random()
        type_ = DATA if draw < 0.75 else PROBE if draw < 0.93 else CONFLICT if draw < 0.96 else JOIN
        present = choose.getrandbits(work.lanes) if type_ in (DATA, CONFLICT) else 0
        opcode_dtype = 0 if choose.random() < 0.9 else choose.getrandbits(6)
        operation = 7 if choose.random() < 0.97 else 8
        round_ = self._round(job, slot)
        fields = [2 << 4 | type_, opcode_dtype, work.number, worker, slot, present, round_]
        fields += [work.key, operation]
        source = work.workers[worker]
        if choose.random() < 0.12:
            source = self._spoil(work, fields, source)
        # Where the worker is known by its address, a JOIN with another would move it.
        if fields[0] & 15 == JOIN:
            source = work.workers[fields[3] % len(work.workers)]
        payload = HEADER.pack(*fields) + self._blocks.body(fields[5].bit_count())
        frame = pack_frame(source, self._engine, payload, checked=choose.random() < 0.4)
        return sealed(frame) if choose.random() < 0.15 else frame

    def _round(self, job: UnrulyJob, slot: int) -> int:
        state = self._golden.jobs[job.work.number]
        if state is None:
            return self._choose.getrandbits(32)
        held = state.slots[slot]
        current = held.round + (1 if state.is_complete(held) else 0)
        if slot < len(job.limits):
            current = min(current, job.limits[slot])
        offset = self._choose.choice((0,) * 12 + (-1, -2, -3, 2**31, -(2**31) + 1))
        return (current + offset) % 2**32

    def _spoil(self, work: Work, fields: list[int], source: Peer) -> Peer:
        """One field is wrong, or the sender."""
        choose = self._choose
        place, bits = choose.choice(
            ((0, 8), (1, 8), (2, 8), (3, 8), (4, 16), (5, 16), (7, 64), (8, 16), (None, 0))
        )
        if place is None:
            return Peer(source.mac, bytes((10, 66, 6, choose.getrandbits(8))), source.port)
        few = 1 << choose.randrange(min(bits, 5))
        fields[place] = choose.choice((choose.getrandbits(bits), choose.randrange(4), few))
        return source

    def _of_parent(self, work: Work) -> bytes:
        choose = self._choose
        assert work.parent is not None
        state = self._golden.jobs[work.number]
        slot, round_ = choose.randrange(work.slots), 0
        if state is not None:
            waiting = [n for n, held in enumerate(state.slots) if held.waiting]
            if waiting and choose.random() < 0.9:
                slot = choose.choice(waiting)
            round_ = state.slots[slot].round + choose.choice((0,) * 9 + (-1, -2, 1, 2**31))
        type_ = choose.choice((RESULT,) * 8 + (CONFLICT, JOINED))
        present = choose.getrandbits(work.lanes) if type_ != JOINED else 0
        fields = [2 << 4 | type_, 0, work.parent_job, work.parent_worker, slot, present]
        fields += [round_ % 2**32, work.parent_key, 7]
        source, port = work.parent, self._engine.port + 1 + work.number
        if choose.random() < 0.15:
            source = self._spoil(work, fields, source)
        payload = HEADER.pack(*fields) + self._blocks.body(fields[5].bit_count())
        here = Peer(self._engine.mac, self._engine.address, port % 2**16)
        frame = pack_frame(source, here, payload, checked=choose.random() < 0.4)
        return sealed(frame) if choose.random() < 0.15 else frame

    def _flipped(self) -> bytes:
        """Return an unruly job's frame with a few bits wrong, perhaps its checksums right again."""
        choose = self._choose
        frame = bytearray(choose.choice(self._sensible) if self._sensible else self._unruly())
        flip_bits(choose, frame, (1, 1, 2, 3))
        if choose.random() < 0.2:
            with_zero_udp_checksum(frame)
        return repaired(bytes(frame)) if choose.random() < 0.5 else bytes(frame)

    def _cut(self) -> bytes:
        """Return a frame of anybody's that is too short or too long."""
        choose = self._choose
        possible = self._sensible + self._jobs.orderly.sent
        frame = choose.choice(possible) if possible else self._unruly()
        if choose.random() < 0.6:
            return cut(choose, frame)
        more = choose.choice((1, 2, 4, 64, 256, choose.randrange(1, 3000)))
        return extended(choose, frame, more)

    def _hostile(self) -> bytes:
        """Against the orderly job: close to its own frames, yet none of them."""
        choose = self._choose
        orderly = self._jobs.orderly
        if not orderly.sent:
            return self._noise()
        frame = bytearray(choose.choice(orderly.sent))
        if choose.random() < 0.3:
            at = choose.choice((choose.randrange(64), choose.randrange(len(frame))))
            # The sender's MAC address may be a router's, and is not checked.
            frame[at if not 6 <= at < 12 else 64] ^= 1 << choose.randrange(8)
            if frame[40:42] == b"\0\0":
                frame[42] ^= 0x80
            return bytes(frame)
        return self._imitation(orderly.work, frame)

    def _imitation(self, work: Work, frame: bytearray) -> bytes:
        """One of its frames with one thing wrong and right checksums, or from elsewhere."""
        choose = self._choose
        fields = list(HEADER.unpack_from(frame, 42))
        what = choose.randrange(9)
        state = self._golden.jobs[work.number]
        assert state is not None
        if what == 0:
            fields[7] ^= 1 << choose.randrange(64)
        elif what == 1:
            fields[3] = choose.choice(
                [n for n in (*range(len(work.workers)), 64, 200, 255) if n != fields[3]]
            )
        elif what == 2:
            fields[4] = work.slots + choose.choice((0, 1, choose.getrandbits(15)))
        elif what == 3:
            far = choose.choice((2, 3, 100, 2**31 - 1, 2**31, -2, -3, -100))
            fields[6] = (state.slots[fields[4]].round + far) % 2**32
        elif what == 4:
            # With the right key, but from an address that has not joined.
            frame[26:30] = bytes((10, 66, 7, choose.getrandbits(8)))
        elif what == 5:
            port = int.from_bytes(frame[34:36], "big") ^ 1 << choose.randrange(16)
            frame[34:36] = port.to_bytes(2, "big")
        elif what == 6:
            fields[0] = 2 << 4 | choose.choice((3, 5, 8, 10, 12, 15))
        elif what == 7:
            fields[1] = choose.randrange(4, 16) << 4
        else:
            # The key of another job's, and the other way round.
            other = choose.choice(self._jobs.unruly).work
            fields[choose.choice((2, 7))] = (
                other.number if choose.random() < 0.5 else other.key % 251
            )
            if fields[2] == work.number and fields[7] == work.key:
                fields[7] ^= 1
        fields[2] %= 256
        HEADER.pack_into(frame, 42, *fields)
        return repaired(bytes(frame))

    def _foreign(self) -> bytes:
        """Return what else comes along on a network."""
        choose, engine = self._choose, self._engine
        mac, body = choose.randbytes(6), choose.randbytes(choose.choice((46, 100, 500, 1480)))
        ours = choose.choice(self._sensible) if self._sensible else body
        kind = choose.randrange(9)
        if kind == 0:
            arp = struct.pack(">HHBBH", 1, 0x0800, 6, 4, 1) + mac + body[:4] + bytes(6)
            return b"\xff" * 6 + mac + b"\x08\x06" + arp + engine.address + bytes(18)
        if kind == 1:
            ip6 = struct.pack(">IHBB", 6 << 28, len(body), 17, 64) + choose.randbytes(32)
            return engine.mac + mac + b"\x86\xdd" + ip6 + body
        if kind == 2:
            return ours[:12] + b"\x81\x00\x00\x07" + ours[12:]
        if kind in (3, 4):
            frame = bytearray(ours)
            # TCP, ICMP, or whatever.
            frame[23:24] = bytes((choose.choice((6, 1, 2, 47, choose.getrandbits(8))),))
            return repaired(bytes(frame)) if len(frame) > 64 else bytes(frame)
        if kind == 5:
            return choose.choice((b"\xff" * 6, b"\x01\x00\x5e\x00\x00\x01", mac)) + ours[6:]
        if kind == 6:
            frame = bytearray(ours)
            # Options or a fragment.
            if choose.random() < 0.5:
                frame[14:15] = b"\x46"
            else:
                frame[20:22] = choose.choice((b"\x20\x00", b"\x00\x01", b"\x80\x00", b"\x60\x00"))
            return repaired(bytes(frame)) if len(frame) > 64 else bytes(frame)
        if kind == 7:
            source = Peer(mac, body[:4], choose.getrandbits(16))
            port = choose.choice((engine.port, (engine.port + 100) % 2**16, choose.getrandbits(16)))
            return pack_frame(source, Peer(engine.mac, engine.address, port), body)
        source = Peer(mac, body[:4], choose.getrandbits(16))
        return pack_frame(source, Peer(engine.mac, choose.randbytes(4), engine.port), body)

    def _noise(self) -> bytes:
        """Bytes."""
        choose = self._choose
        size = choose.choice(
            (1, 2, 63, 64, 65, choose.randrange(1, 200), choose.randrange(1, 9000))
        )
        return choose.randbytes(size)
