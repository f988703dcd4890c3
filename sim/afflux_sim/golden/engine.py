"""The aggregator as `docs/protocol.md` sections 5, 10 and 11 state it: frames in, frames out.

Written from that document alone, in its order and its words, to be obviously right rather than
fast. It sends at once whatever it has to send, so nothing is ever queued, discarded or dropped.
"""

import struct
from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from afflux_sim.golden.frame_checks import judge_frame, knows_opcode, same_address
from afflux_sim.golden.frames import (
    CONFLICT,
    COUNTERS,
    DATA,
    ELEMENTS,
    EVERYONE,
    HEADER_AT,
    JOIN,
    JOINED,
    LANES,
    MISSING,
    NUMBER_DTYPES,
    NUMBER_MAX,
    NUMBER_SUM,
    PARTIAL_DTYPES,
    PROBE,
    REFUSED,
    RESULT,
    VERSION,
    Endpoint,
    Packet,
    base_dtype,
    build_sealed_frame,
    parse_header,
    parse_packet,
    partial_dtype,
    source_of,
)
from afflux_sim.golden.job_table import CommandRefused, JobTable
from afflux_sim.golden.merge import Contribution, combine, reduce_lane
from afflux_sim.golden.state import Job, Parent, Slot, SlotVersion

__all__ = ["GoldenEngine"]

# Causes in a REFUSED packet.
REFUSED_VERSION, REFUSED_JOB, REFUSED_KEY, REFUSED_WORKER, REFUSED_ADDRESS = 1, 2, 3, 4, 5


class GoldenEngine(JobTable):
    """An aggregator without time: each received frame is answered before the next one comes.

    Args:
        workers, lanes, jobs, slots: The engine's sizes: greatest N, greatest F, number of jobs,
            slots of all jobs.
        partials: Dtypes of the partial sums that it takes.
        windows: For each dtype, the bits of a sum of numbers that a slot keeps, below
            2**(E + 1 - bias). Of dtypes without one, all.
        mac, address, port: The engine's own endpoint.

    Attributes:
        counters: All counters of section 11, in that order.
    """

    def __init__(
        self,
        *,
        workers: int = 64,
        lanes: int = 16,
        jobs: int = 8,
        slots: int = 512,
        partials: Collection[int] = frozenset(PARTIAL_DTYPES),
        windows: Mapping[int, int] = MappingProxyType({}),
        mac: bytes,
        address: str,
        port: int,
    ) -> None:
        super().__init__(workers=workers, lanes=lanes, jobs=jobs, slots=slots)
        self.windows, self.partials = windows, partials
        self.endpoint = Endpoint(mac, address, port)
        self.counters = dict.fromkeys(COUNTERS, 0)
        # Counters whose values the protocol does not define any more (section 5.3).
        self.undefined: set[str] = set()

    def join_parent(self, job: int) -> bytes:
        """Return the frame by which a job joins its parent; to be sent until JOINED comes.

        Raises:
            CommandRefused: If there is no such job, or it has no parent.
        """
        if not 0 <= job < len(self.jobs):
            raise CommandRefused(2, f"job must be in 0–{len(self.jobs) - 1}, not {job}")
        found = self.jobs[job]
        if found is None:
            raise CommandRefused(8, f"job {job} does not exist")
        if found.parent is None:
            raise CommandRefused(9, f"job {job} has no parent")
        frame = self._to_parent(found, found.parent, Packet(type=JOIN))
        self._count_sent([frame])
        return frame

    def receive(self, frame: bytes, mac_error: bool = False) -> list[bytes]:
        """Take one whole Ethernet frame, without frame check sequence.

        Args:
            frame: From the destination MAC address on.
            mac_error: Whether the MAC marked the frame as bad.

        Returns:
            The frames that this one causes, in the order of sending.
        """
        self._count("frames_in")
        self._count("bytes_in", len(frame))
        counter, sent = self._judge(frame, mac_error)
        self._count(counter)
        self._count_sent(sent)
        return sent

    def _count(self, counter: str, by: int = 1) -> None:
        self.counters[counter] = (self.counters[counter] + by) % 2**64

    def _count_sent(self, frames: list[bytes]) -> None:
        self._count("frames_out", len(frames))
        self._count("bytes_out", sum(map(len, frames)))

    def _judge(self, frame: bytes, mac_error: bool) -> tuple[str, list[bytes]]:
        """Return the counter that the frame belongs to, and what it causes to be sent (5.2)."""
        if mac_error:
            return "mac_error", []
        parent_ports = [self._parent_port(job) for job in range(len(self.jobs))]
        wrong = judge_frame(
            frame, self.endpoint, parent_ports, lanes=self.lanes, partials=self.partials
        )
        if wrong is not None:
            return wrong, []
        if frame[HEADER_AT] >> 4 != VERSION:
            is_join = frame[HEADER_AT] & 15 == JOIN
            return "bad_version", self._refuse(frame, REFUSED_VERSION) if is_join else []

        (udp_port,) = struct.unpack_from(">H", frame, 36)
        if udp_port in parent_ports:
            return self._judge_from_parent(parent_ports.index(udp_port), frame)
        return self._judge_from_worker(frame)

    def _judge_from_worker(self, frame: bytes) -> tuple[str, list[bytes]]:
        """Judge a frame to the engine's own port: section 5.2 from `bad_type` on."""
        header = parse_header(frame)
        if header.type not in (DATA, PROBE, JOIN, CONFLICT) or not knows_opcode(
            header, partials=self.partials
        ):
            return "bad_type", []
        packet = parse_packet(frame)
        is_join = packet.type == JOIN

        job = self.jobs[packet.job] if packet.job < len(self.jobs) else None
        if job is None:
            return "bad_job", self._refuse(frame, REFUSED_JOB) if is_join else []
        if packet.key != job.key:
            return "bad_key", self._refuse(frame, REFUSED_KEY) if is_join else []
        if packet.worker >= job.workers:
            return "bad_worker", self._refuse(frame, REFUSED_WORKER) if is_join else []

        source = source_of(frame)
        if is_join:
            if packet.present:
                return "bad_present", []
            before = job.joined.get(packet.worker)
            settled = job.started and not job.may_move
            if settled and before is not None and not same_address(source, before):
                return "bad_address", self._refuse(frame, REFUSED_ADDRESS)
            job.joined[packet.worker] = source
            words: tuple[int, ...] = (job.workers, job.lanes, len(job.slots), job.credit)
            if job.group is not None:
                words += (*job.group.words, job.group_key & 0xFFFFFFFF, job.group_key >> 32)
            return "joins", self._answer(frame, JOINED, words)

        joined = job.joined.get(packet.worker)
        if joined is None or not same_address(source, joined):
            return "bad_address", []
        if packet.slot >= len(job.slots):
            return "bad_slot", []
        if packet.present >> job.lanes or (packet.type == PROBE and packet.present):
            return "bad_present", []

        if packet.type == PROBE:
            return self._probe(job, packet, frame)
        return self._data(job, packet)

    def _judge_from_parent(self, number: int, frame: bytes) -> tuple[str, list[bytes]]:
        """Judge a frame to the parent port of job `number`: section 5.6, "Down"."""
        header = parse_header(frame)
        if header.type not in (RESULT, CONFLICT, JOINED) or not knows_opcode(header, partials=()):
            return "bad_type", []
        packet = parse_packet(frame)
        job = self.jobs[number]
        if job is None or job.parent is None or packet.job != job.parent.job:
            return "bad_job", []
        if packet.key != job.parent.key:
            return "bad_key", []
        if packet.worker != job.parent.worker:
            return "bad_worker", []
        if not same_address(source_of(frame), job.parent.endpoint):
            return "bad_address", []
        if packet.type == JOINED:
            if packet.present:
                return "bad_present", []
            job.parent_joined = True
            return "joins", []
        if packet.slot >= len(job.slots):
            return "bad_slot", []
        if packet.present >> job.lanes:
            return "bad_present", []
        return self._parent_result(job, packet)

    def _data(self, job: Job, packet: Packet) -> tuple[str, list[bytes]]:
        """Take a DATA or CONFLICT packet that passed all checks (section 5.3)."""
        slot = job.slots[packet.slot]
        version = slot.versions[packet.round & 1]
        bit = 1 << packet.worker
        distance = (packet.round - slot.round) % 2**32
        complete = job.is_complete(slot)

        if distance in (0, 2**32 - 1) and not version.held:
            return "stale", []
        if distance == 1 and complete:
            slot.round = packet.round
            slot.seen = bit
            version.held = True
            version.present = 0
            version.operation = packet.operation
            version.opcode = packet.opcode
            version.dtype = base_dtype(packet.opcode, packet.dtype)
            version.conflict = packet.type == CONFLICT
            version.words = packet.words
            version.contributions = []
            return "accepted", self._add(job, packet)
        if distance == 1:
            return "premature", []
        if distance == 0 and not slot.seen & bit:
            slot.seen |= bit
            if packet.type == CONFLICT or (
                packet.operation,
                packet.opcode,
                base_dtype(packet.opcode, packet.dtype),
            ) != (version.operation, version.opcode, version.dtype):
                version.conflict = True
            version.words = tuple(map(min, version.words, packet.words))
            return "accepted", self._add(job, packet)
        if distance == 0:
            if complete:
                return "duplicates", self._replay(job, packet)
            if slot.waiting:
                self._count("replays")
                return "duplicates", [self._partial_sum(job, packet.slot, packet.round)]
            return "duplicates", []
        if distance == 2**32 - 1:
            return "duplicates", self._replay(job, packet)
        if distance < 2**31:
            return "premature", []
        return "stale", []

    def _probe(self, job: Job, packet: Packet, frame: bytes) -> tuple[str, list[bytes]]:
        """Take a PROBE that passed all checks (section 5.3)."""
        slot = job.slots[packet.slot]
        distance = (packet.round - slot.round) % 2**32
        complete = job.is_complete(slot)

        if distance in (0, 2**32 - 1) and not slot.versions[packet.round & 1].held:
            return "stale", []
        if distance == 0 and complete:
            return "probes", self._replay(job, packet)
        if distance == 0:
            return "probes", self._missing(frame, slot.seen, slot.round)
        if distance == 1 and complete:
            return "probes", self._missing(frame, 0, slot.round)
        if distance == 2**32 - 1:
            return "probes", self._replay(job, packet)
        if distance < 2**31:
            return "premature", []
        return "stale", []

    def _parent_result(self, job: Job, packet: Packet) -> tuple[str, list[bytes]]:
        """Take a result of the parent that passed all checks (section 5.6)."""
        slot = job.slots[packet.slot]
        version = slot.versions[packet.round & 1]
        distance = (packet.round - slot.round) % 2**32

        if distance in (0, 2**32 - 1) and not version.held:
            return "stale", []
        if distance == 0 and slot.waiting:
            version.present = packet.present
            version.words = packet.words
            for lane, block in packet.blocks.items():
                version.blocks[lane] = block
            version.conflict = packet.type == CONFLICT
            slot.waiting = False
            return "parent_results", self._complete(job, packet.slot)
        if (distance == 0 and job.is_complete(slot)) or distance == 2**32 - 1:
            return "duplicates", []
        if distance < 2**31:
            return "premature", []
        return "stale", []

    def _add(self, job: Job, packet: Packet) -> list[bytes]:
        """Add the blocks of an accepted packet; return what is sent if it was the last one."""
        job.started = True
        slot = job.slots[packet.slot]
        version = slot.versions[packet.round & 1]
        if max(packet.opcode, version.opcode) >= NUMBER_MAX:
            version.contributions.append(Contribution(packet.dtype, packet.blocks))
            version.present |= packet.present
        else:
            for lane, block in packet.blocks.items():
                if version.present >> lane & 1:
                    summed, overflows = combine(packet.opcode, version.blocks[lane], block)
                    version.blocks[lane] = summed
                    self._count("overflows", overflows)
                else:
                    version.blocks[lane] = block
                    version.present |= 1 << lane
        self._count("blocks_accepted", len(packet.blocks))
        if version.contributions and version.opcode < NUMBER_MAX:
            self.undefined.add("overflows")

        if slot.seen != job.full:
            return []
        if version.contributions:
            self._reduce(job, slot, version)
        if job.parent is None:
            return self._complete(job, packet.slot)
        slot.waiting = True
        return [self._partial_sum(job, packet.slot, packet.round)]

    def _reduce(self, job: Job, slot: Slot, version: SlotVersion) -> None:
        """Make the blocks of a round of numbers; zeros of a conflict, where they mean nothing."""
        agreed = slot.versions[(slot.round - 1) & 1].words
        for lane in range(LANES):
            if version.conflict:
                version.blocks[lane] = np.zeros(ELEMENTS, dtype=np.int32)
            elif version.present >> lane & 1:
                version.blocks[lane] = reduce_lane(
                    version.opcode,
                    version.contributions,
                    lane,
                    workers=job.workers,
                    exponent=255 - (agreed[lane] & 0xFF),
                    to=self._dtype_up(job, version) if job.parent else version.dtype,
                    window=self.windows.get(version.dtype),
                )

    def _complete(self, job: Job, number: int) -> list[bytes]:
        """Complete round R of slot `number`; return its results."""
        slot = job.slots[number]
        self._count("rounds")
        self._count("conflicts", int(slot.versions[slot.round & 1].conflict))
        if job.group is not None:
            return [self._result(job, number, slot.round, EVERYONE, job.group.endpoint)]
        return [
            self._result(job, number, slot.round, worker, job.joined[worker])
            for worker in range(job.workers)
            if worker in job.joined
        ]

    def _replay(self, job: Job, packet: Packet) -> list[bytes]:
        """Return the result of the packet's round once more, to its worker alone."""
        self._count("replays")
        there = job.joined[packet.worker]
        return [self._result(job, packet.slot, packet.round, packet.worker, there)]

    def _result(
        self, job: Job, slot: int, round_: int, worker: int, destination: Endpoint
    ) -> bytes:
        """Return RESULT or CONFLICT of a round, with `worker` in the worker byte."""
        version = job.slots[slot].versions[round_ & 1]
        result = replace(
            self._sums(job, slot, round_),
            type=CONFLICT if version.conflict else RESULT,
            job=job.number,
            worker=worker,
            key=job.group_key if worker == EVERYONE else job.key,
        )
        return build_sealed_frame(self.endpoint, destination, result)

    def _partial_sum(self, job: Job, slot: int, round_: int) -> bytes:
        """Return what the job contributes to a round of its parent: DATA, or CONFLICT."""
        assert job.parent is not None
        version = job.slots[slot].versions[round_ & 1]
        sums = replace(
            self._sums(job, slot, round_),
            type=CONFLICT if version.conflict else DATA,
            dtype=self._dtype_up(job, version),
        )
        return self._to_parent(job, job.parent, sums)

    def _dtype_up(self, job: Job, version: SlotVersion) -> int:
        """Return the dtype of what goes to the parent: sums of numbers go up unrounded."""
        assert job.parent is not None
        if version.opcode < NUMBER_SUM or version.conflict:
            return version.dtype
        return partial_dtype(NUMBER_DTYPES[version.dtype], job.parent.partial_bits)

    def _sums(self, job: Job, slot: int, round_: int) -> Packet:
        """Return what a version holds of a round, without type, sender and receiver."""
        version = job.slots[slot].versions[round_ & 1]
        return Packet(
            type=RESULT,
            opcode=version.opcode,
            dtype=version.dtype,
            slot=slot,
            round=round_,
            operation=version.operation,
            words=version.words,
            blocks={
                lane: version.blocks[lane] for lane in range(LANES) if version.present >> lane & 1
            },
        )

    def _to_parent(self, job: Job, parent: Parent, packet: Packet) -> bytes:
        """Return a frame from the job's parent port, as the worker that the job is there."""
        here = replace(self.endpoint, port=self._parent_port(job.number))
        known_as = replace(packet, job=parent.job, worker=parent.worker, key=parent.key)
        return build_sealed_frame(here, parent.endpoint, known_as)

    def _parent_port(self, job: int) -> int:
        return (self.endpoint.port + 1 + job) % 2**16

    def _missing(self, frame: bytes, seen: int, round_: int) -> list[bytes]:
        return self._answer(frame, MISSING, (seen & 0xFFFFFFFF, seen >> 32, round_))

    def _refuse(self, frame: bytes, cause: int) -> list[bytes]:
        """Answer a JOIN; one without a UDP checksum may be damaged, and is dropped."""
        if frame[40:42] == b"\0\0":
            return []
        return self._answer(frame, REFUSED, (cause, VERSION))

    def _answer(self, frame: bytes, type_: int, words: tuple[int, ...]) -> list[bytes]:
        """Return a short answer: the header of `frame` with another version, type and present."""
        answer = replace(
            parse_header(frame),
            version=VERSION,
            type=type_,
            words=words + (0,) * (LANES - len(words)),
            blocks={},
        )
        return [build_sealed_frame(self.endpoint, source_of(frame), answer)]
