"""The aggregator as `docs/protocol.md` sections 5, 10 and 11 state it: frames in, frames out.

Written from that document alone, in its order and its words, to be obviously right rather than
fast. It sends at once whatever it has to send, so nothing is ever queued, discarded or dropped.
"""

import struct
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from afflux_sim.golden_layout import (
    CONFLICT,
    COUNTERS,
    DATA,
    ELEMENTS,
    HEADER_AT,
    JOIN,
    JOINED,
    LANES,
    MAX,
    MIN,
    MISSING,
    PROBE,
    REFUSED,
    RESULT,
    SUM,
    VERSION,
    Block,
    Endpoint,
    Packet,
    build_frame,
    ones_complement_sum,
    parse_header,
    parse_packet,
    parse_present,
)

__all__ = ["GoldenEngine", "Job", "Slot", "SlotVersion", "combine"]

# Causes in a REFUSED packet.
REFUSED_VERSION, REFUSED_JOB, REFUSED_KEY, REFUSED_WORKER = 1, 2, 3, 4


@dataclass
class SlotVersion:
    """One of the two versions of a slot: the sums of one round and what belongs to them.

    `held` is whether it holds a round of this job run at all.
    """

    held: bool = False
    present: int = 0
    operation: int = 0
    opcode: int = 0
    dtype: int = 0
    conflict: bool = False
    words: tuple[int, ...] = (0,) * LANES
    blocks: npt.NDArray[np.int32] = field(
        default_factory=lambda: np.zeros((LANES, ELEMENTS), dtype=np.int32)
    )


@dataclass
class Slot:
    """State of one slot: `round` is R, the latest open round; `seen` its bitmap of workers."""

    round: int
    seen: int
    versions: tuple[SlotVersion, SlotVersion] = field(
        default_factory=lambda: (SlotVersion(), SlotVersion())
    )


@dataclass
class Job:
    """One job, with the slots of its range and the endpoints of the workers that have joined."""

    key: int
    workers: int
    lanes: int
    slot_base: int
    credit: int
    slots: list[Slot]
    joined: dict[int, Endpoint] = field(default_factory=dict)

    @property
    def full(self) -> int:
        return (1 << self.workers) - 1


def combine(opcode: int, a: Block, b: Block) -> tuple[Block, int]:
    """`a` ∘ `b`, element by element, and how many elements of a SUM left the range of int32."""
    if opcode == SUM:
        exact = a.astype(np.int64) + b.astype(np.int64)
        wrapped = exact.astype(np.int32)
        return wrapped, int(np.count_nonzero(exact != wrapped))
    if opcode == MAX:
        return np.maximum(a, b), 0
    if opcode == MIN:
        return np.minimum(a, b), 0
    return np.minimum(a.view(np.uint32), b.view(np.uint32)).view(np.int32), 0


class GoldenEngine:
    """An aggregator without time: each received frame is answered before the next one comes.

    Parameters
    ----------
    workers, lanes, jobs, slots
        What the engine is built for: greatest N, greatest F, number of jobs, slots of all jobs.
    mac, address, port
        The engine's own endpoint.

    Attributes
    ----------
    counters : dict[str, int]
        All counters of section 11, in that order.
    jobs : list[Job | None]
        The jobs by number, None where there is none.
    """

    def __init__(
        self,
        *,
        workers: int = 64,
        lanes: int = 16,
        jobs: int = 8,
        slots: int = 512,
        mac: bytes,
        address: str,
        port: int,
    ) -> None:
        self.workers = workers
        self.lanes = lanes
        self.slots = slots
        self.endpoint = Endpoint(mac, address, port)
        self.counters = dict.fromkeys(COUNTERS, 0)
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
    ) -> None:
        """Sets up job number `job` afresh; `round` is r₀, the first round of each of its slots.

        Raises
        ------
        ValueError
            If the engine was not built for this, or the slots belong to another job.
        """
        if not 0 <= job < len(self.jobs):
            raise ValueError(f"job must be in 0–{len(self.jobs) - 1}, not {job}")
        if not 1 <= workers <= self.workers:
            raise ValueError(f"workers must be in 1–{self.workers}, not {workers}")
        if not 1 <= lanes <= self.lanes:
            raise ValueError(f"lanes must be in 1–{self.lanes}, not {lanes}")
        if slot_count < 1 or slot_base < 0 or slot_base + slot_count > self.slots:
            raise ValueError(
                f"slots {slot_base}–{slot_base + slot_count - 1} are not within 0–{self.slots - 1}"
            )
        for number, other in enumerate(self.jobs):
            if (
                number != job
                and other is not None
                and slot_base < other.slot_base + len(other.slots)
                and other.slot_base < slot_base + slot_count
            ):
                raise ValueError(f"slots of job {job} overlap those of job {number}")
        full = (1 << workers) - 1
        before_first = (round - 1) % 2**32
        self.jobs[job] = Job(
            key=key,
            workers=workers,
            lanes=lanes,
            slot_base=slot_base,
            credit=credit,
            slots=[Slot(round=before_first, seen=full) for _ in range(slot_count)],
        )

    def destroy_job(self, job: int) -> None:
        """Disables job number `job` and forgets all about it."""
        self.jobs[job] = None

    def slot(self, job: int, slot: int) -> Slot:
        """State of slot `slot` of job `job`, numbered within the job's range, for reading."""
        found = self.jobs[job]
        if found is None:
            raise ValueError(f"job {job} does not exist")
        return found.slots[slot]

    def receive(self, frame: bytes, mac_error: bool = False) -> list[bytes]:
        """Takes one whole Ethernet frame, without frame check sequence.

        Parameters
        ----------
        frame
            From the destination MAC address on.
        mac_error
            Whether the MAC marked the frame as bad.

        Returns
        -------
        list[bytes]
            The frames that this one causes, in the order of sending.
        """
        self._count("frames_in")
        counter, sent = self._judge(frame, mac_error)
        self._count(counter)
        self._count("frames_out", len(sent))
        return sent

    def _count(self, counter: str, by: int = 1) -> None:
        self.counters[counter] = (self.counters[counter] + by) % 2**64

    def _judge(self, frame: bytes, mac_error: bool) -> tuple[str, list[bytes]]:
        """Section 5.2: the counter that the frame belongs to, and what it causes to be sent."""
        if mac_error:
            return "mac_error", []

        if (
            len(frame) < 64
            or frame[0:6] != self.endpoint.mac
            or frame[12:14] != b"\x08\x00"
            or frame[14] >> 4 != 4
            or frame[23] != 17
            or frame[30:34] != self.endpoint.packed_address
        ):
            return "not_ours", []

        (flags_and_offset,) = struct.unpack_from(">H", frame, 20)
        if (
            frame[14] & 15 != 5
            or flags_and_offset & ~0x4000
            or ones_complement_sum(frame[14:34]) != 0xFFFF
        ):
            return "bad_ip", []

        (ip_length,) = struct.unpack_from(">H", frame, 16)
        _, udp_port, udp_length, udp_checksum = struct.unpack_from(">HHHH", frame, 34)
        if udp_port != self.endpoint.port:
            return "not_ours", []

        if frame[HEADER_AT] >> 4 != VERSION:
            is_join = frame[HEADER_AT] & 15 == JOIN
            return "bad_version", self._refuse(frame, REFUSED_VERSION) if is_join else []

        blocks = parse_present(frame).bit_count()
        if (
            len(frame) != 14 + ip_length
            or ip_length != 20 + udp_length
            or udp_length != 94 + 256 * blocks
            or blocks > self.lanes
        ):
            return "bad_length", []

        if udp_checksum != 0:
            pseudo_header = frame[26:34] + struct.pack(">BBH", 0, 17, udp_length)
            if ones_complement_sum(pseudo_header + frame[34:]) != 0xFFFF:
                return "bad_checksum", []

        packet = parse_packet(frame)
        if packet.type not in (DATA, PROBE, JOIN) or packet.opcode > 3:
            return "bad_type", []
        is_join = packet.type == JOIN

        job = self.jobs[packet.job] if packet.job < len(self.jobs) else None
        if job is None:
            return "bad_job", self._refuse(frame, REFUSED_JOB) if is_join else []
        if packet.key != job.key:
            return "bad_key", self._refuse(frame, REFUSED_KEY) if is_join else []
        if packet.worker >= job.workers:
            return "bad_worker", self._refuse(frame, REFUSED_WORKER) if is_join else []

        if is_join:
            if packet.present:
                return "bad_present", []
            job.joined[packet.worker] = source_of(frame)
            words = (job.workers, job.lanes, len(job.slots), job.credit)
            return "joins", self._answer(frame, JOINED, words)

        joined = job.joined.get(packet.worker)
        source = source_of(frame)
        # Not the MAC address: a router in between has its own.
        if joined is None or (joined.address, joined.port) != (source.address, source.port):
            return "bad_address", []
        if packet.slot >= len(job.slots):
            return "bad_slot", []
        if packet.present >> job.lanes or (packet.type == PROBE and packet.present):
            return "bad_present", []

        if packet.type == DATA:
            return self._data(job, packet)
        return self._probe(job, packet, frame)

    def _data(self, job: Job, packet: Packet) -> tuple[str, list[bytes]]:
        """Section 5.3, a DATA packet that passed all checks."""
        slot = job.slots[packet.slot]
        bit = 1 << packet.worker
        distance = (packet.round - slot.round) % 2**32
        full = slot.seen == job.full

        if distance in (0, 2**32 - 1) and not slot.versions[packet.round & 1].held:
            return "stale", []
        if distance == 1 and full:
            slot.round = packet.round
            slot.seen = bit
            version = slot.versions[packet.round & 1]
            version.held = True
            version.present = 0
            version.operation = packet.operation
            version.opcode = packet.opcode
            version.dtype = packet.dtype
            version.conflict = False
            version.words = packet.words
            return "accepted", self._add(job, packet)
        if distance == 1:
            return "premature", []
        if distance == 0 and not slot.seen & bit:
            slot.seen |= bit
            version = slot.versions[packet.round & 1]
            if (packet.operation, packet.opcode, packet.dtype) != (
                version.operation,
                version.opcode,
                version.dtype,
            ):
                version.conflict = True
            version.words = tuple(map(min, version.words, packet.words))
            return "accepted", self._add(job, packet)
        if distance == 0:
            return "duplicates", self._replay(job, packet) if full else []
        if distance == 2**32 - 1:
            return "duplicates", self._replay(job, packet)
        if distance < 2**31:
            return "premature", []
        return "stale", []

    def _probe(self, job: Job, packet: Packet, frame: bytes) -> tuple[str, list[bytes]]:
        """Section 5.3, a PROBE that passed all checks."""
        slot = job.slots[packet.slot]
        distance = (packet.round - slot.round) % 2**32
        full = slot.seen == job.full

        if distance in (0, 2**32 - 1) and not slot.versions[packet.round & 1].held:
            return "stale", []
        if distance == 0 and full:
            return "probes", self._replay(job, packet)
        if distance == 0:
            return "probes", self._missing(frame, slot.seen, slot.round)
        if distance == 1 and full:
            return "probes", self._missing(frame, 0, slot.round)
        if distance == 2**32 - 1:
            return "probes", self._replay(job, packet)
        if distance < 2**31:
            return "premature", []
        return "stale", []

    def _add(self, job: Job, packet: Packet) -> list[bytes]:
        """Adds the blocks of an accepted packet; the round's results, if that completes it."""
        slot = job.slots[packet.slot]
        version = slot.versions[packet.round & 1]
        for lane, block in packet.blocks.items():
            if version.present >> lane & 1:
                summed, overflows = combine(packet.opcode, version.blocks[lane], block)
                version.blocks[lane] = summed
                self._count("overflows", overflows)
            else:
                version.blocks[lane] = block
                version.present |= 1 << lane
        self._count("blocks_accepted", len(packet.blocks))

        if slot.seen != job.full:
            return []
        self._count("rounds")
        self._count("conflicts", int(version.conflict))
        return [
            self._result(job, packet, worker)
            for worker in range(job.workers)
            if worker in job.joined
        ]

    def _replay(self, job: Job, packet: Packet) -> list[bytes]:
        """The result of the packet's round once more, to its worker alone."""
        self._count("replays")
        return [self._result(job, packet, packet.worker)]

    def _result(self, job: Job, cause: Packet, worker: int) -> bytes:
        """RESULT or CONFLICT of the round, slot and job of the packet `cause`, for `worker`."""
        version = job.slots[cause.slot].versions[cause.round & 1]
        result = Packet(
            type=CONFLICT if version.conflict else RESULT,
            opcode=version.opcode,
            dtype=version.dtype,
            job=cause.job,
            worker=worker,
            slot=cause.slot,
            round=cause.round,
            key=job.key,
            operation=version.operation,
            words=version.words,
            blocks={
                lane: version.blocks[lane] for lane in range(LANES) if version.present >> lane & 1
            },
        )
        return build_frame(self.endpoint, job.joined[worker], result)

    def _missing(self, frame: bytes, seen: int, round_: int) -> list[bytes]:
        return self._answer(frame, MISSING, (seen & 0xFFFFFFFF, seen >> 32, round_))

    def _refuse(self, frame: bytes, cause: int) -> list[bytes]:
        return self._answer(frame, REFUSED, (cause, VERSION))

    def _answer(self, frame: bytes, type_: int, words: tuple[int, ...]) -> list[bytes]:
        """A short answer: the header of `frame` with version, type and present replaced."""
        answer = replace(
            parse_header(frame),
            version=VERSION,
            type=type_,
            words=words + (0,) * (LANES - len(words)),
            blocks={},
        )
        return [build_frame(self.endpoint, source_of(frame), answer)]


def source_of(frame: bytes) -> Endpoint:
    """Source of a frame: MAC address, IPv4 address and UDP port."""
    (port,) = struct.unpack_from(">H", frame, 34)
    return Endpoint(frame[6:12], ".".join(map(str, frame[26:30])), port)
