"""The software engine: the aggregator of the protocol's section 5, frame by frame, on the CPU.

It is the embedded aggregator of a run without hardware, and the hardware's twin: the same frames in
the same order for the same input, the same counters, behind the same registers. It sends at once,
so nothing queues and no replay is ever dropped.
"""

from collections.abc import Sequence

import numpy as np

from afflux_drivers.frames import FRAME_HEADER, frame_header
from afflux_drivers.packets import HEADER, datagram_bytes
from afflux_drivers.soft_registers import RegisterFile
from afflux_drivers.soft_slot import SoftSlot
from afflux_hdl import registers, wire

__all__ = ["SoftEngine"]

_VERSION = wire.VERSION << 4
_MASK = 0xFFFF_FFFF
_FRAME_MIN = wire.LOOKAHEAD_OFFSET


class _Job:
    """An enabled job, with the addresses of its workers as their latest JOINs gave them."""

    __slots__ = ("credit", "everyone", "headers", "key", "lanes", "peers", "slots", "workers")

    def __init__(
        self, key: int, workers: int, lanes: int, credit: int, slots: list[SoftSlot]
    ) -> None:
        self.key, self.workers, self.lanes, self.credit = key, workers, lanes, credit
        self.slots = slots
        self.everyone = (1 << workers) - 1
        # MAC, IPv4 address and port of each worker that has joined.
        self.peers: list[tuple[bytes, int, int] | None] = [None] * workers
        # The 42 bytes before a result of k blocks, by worker and k.
        self.headers: list[dict[int, bytes]] = [{} for _ in range(workers)]


class SoftEngine:
    """An engine in plain Python and numpy.

    Args:
        workers: Most workers of a job, 1 to 64.
        lanes: Most lanes of a slot, 1 to 16.
        jobs: Most jobs at once, 1 to 256.
        slots: Slots of the pool, 1 to 65536.

    Raises:
        ValueError: If a number is out of range.
    """

    name = "soft"

    def __init__(self, workers: int = 64, lanes: int = 16, jobs: int = 8, slots: int = 512) -> None:
        limits = {
            "workers": (workers, wire.WORKERS_MAX),
            "lanes": (lanes, wire.LANES_MAX),
            "jobs": (jobs, 256),
            "slots": (slots, 1 << 16),
        }
        for what, (value, most) in limits.items():
            if not 1 <= value <= most:
                raise ValueError(f"an engine has 1 to {most} {what}, not {value}")
        self._lanes = lanes
        self._pool = [SoftSlot(lanes) for _ in range(slots)]
        self._jobs: list[_Job | None] = [None] * jobs
        self._counters = {counter.name: 0 for counter in registers.COUNTERS}
        self._registers = RegisterFile(
            {
                "identity": registers.IDENTITY,
                "protocol": wire.VERSION,
                "build_workers": workers,
                "build_lanes": lanes,
                "build_jobs": jobs,
                "build_slots": slots,
            },
            self._counters,
            self._command,
        )
        self._mac, self._address, self._port = b"\0" * 6, 0, 0
        self._out: list[bytes] = []

    def play(self, frames: Sequence[bytes]) -> list[bytes]:
        """Takes frames one after the other; returns all that was sent, in order."""
        self._out = []
        for frame in frames:
            self._frame(frame)
        self._counters["frames_out"] += len(self._out)
        return self._out

    def feed(self, frames: Sequence[bytes]) -> list[bytes]:
        """Same as `play`: nothing is kept back."""
        return self.play(frames)

    def read(self, address: int) -> int:
        """Reads a register."""
        return self._registers.read(address)

    def write(self, address: int, value: int) -> None:
        """Writes a register.

        Raises:
            ValueError: If it is the command to create a job that the engine was not built for.
        """
        self._registers.write(address, value)
        values = self._registers
        mac = values["local_mac_high"] << 32 | values["local_mac_low"]
        local = mac.to_bytes(6, "big"), values["local_address"], values["local_port"]
        if local != (self._mac, self._address, self._port):
            self._mac, self._address, self._port = local
            for job in self._jobs:
                if job is not None:
                    for headers in job.headers:
                        headers.clear()

    def close(self) -> None:
        """Does nothing: the engine holds memory only."""

    def _command(self, command: int) -> None:
        values = self._registers
        index = values["job_index"]
        if command not in (registers.Command.CREATE, registers.Command.DESTROY):
            return
        if index >= len(self._jobs):
            raise ValueError(f"the engine has jobs 0 to {len(self._jobs) - 1}, not {index}")
        self._jobs[index] = None
        if command == registers.Command.DESTROY:
            return
        for name, least, most in (
            ("job_workers", 1, values["build_workers"]),
            ("job_lanes", 1, values["build_lanes"]),
            ("job_slot_count", 1, len(self._pool) - values["job_slot_base"]),
        ):
            if not least <= values[name] <= most:
                raise ValueError(f"{name} of job {index} is {least} to {most}, not {values[name]}")
        base = values["job_slot_base"]
        job = _Job(
            values["job_key_high"] << 32 | values["job_key_low"],
            values["job_workers"],
            values["job_lanes"],
            values["job_credit"],
            self._pool[base : base + values["job_slot_count"]],
        )
        for slot in job.slots:
            slot.reset(values["job_round"], job.everyone)
        self._jobs[index] = job

    def _frame(self, frame: bytes) -> None:
        counters = self._counters
        counters["frames_in"] += 1
        if len(frame) < _FRAME_MIN:
            counters["not_ours"] += 1
            return
        (
            mac,
            source_mac,
            ethertype,
            version_and_length,
            _,
            total,
            _,
            fragment,
            _,
            protocol,
            _,
            source,
            destination,
            source_port,
            port,
            udp_length,
            checksum,
        ) = FRAME_HEADER.unpack_from(frame)
        if (
            mac != self._mac
            or ethertype != 0x0800
            or version_and_length >> 4 != 4
            or protocol != 17
            or destination != self._address
        ):
            counters["not_ours"] += 1
            return
        # Ones' complement sums are remainders by 65535, as 2**16 leaves 1; and none is 0 here.
        if (
            version_and_length != 0x45
            or fragment & 0xBFFF
            or int.from_bytes(frame[14:34], "big") % 0xFFFF
        ):
            counters["bad_ip"] += 1
            return
        if port != self._port:
            counters["not_ours"] += 1
            return
        header = HEADER.unpack_from(frame, wire.AFFLUX_OFFSET)
        version_type, opcode_dtype, index, worker, number, present, round_, key, operation = header
        type_ = version_type & 15
        peer = (source_mac, source, source_port)
        if version_type >> 4 != wire.VERSION:
            counters["bad_version"] += 1
            if type_ == wire.Type.JOIN:
                self._refuse(header, peer, wire.Refusal.VERSION)
            return
        blocks = present.bit_count()
        if (
            len(frame) != wire.ETHERNET_BYTES + total
            or total != wire.IPV4_BYTES + udp_length
            or udp_length != wire.UDP_BYTES + datagram_bytes(blocks)
            or blocks > self._lanes
        ):
            counters["bad_length"] += 1
            return
        if checksum:
            # Pseudo-header: both addresses, protocol, length.
            pseudo = int.from_bytes(frame[26:34], "big") + protocol + udp_length
            if (pseudo + int.from_bytes(frame[34:], "big")) % 0xFFFF:
                counters["bad_checksum"] += 1
                return
        if type_ > wire.Type.JOIN or opcode_dtype >> 4 > wire.Opcode.UMIN:
            counters["bad_type"] += 1
            return
        joining = type_ == wire.Type.JOIN
        job = self._jobs[index] if index < len(self._jobs) else None
        if job is None:
            counters["bad_job"] += 1
            if joining:
                self._refuse(header, peer, wire.Refusal.JOB)
            return
        if key != job.key:
            counters["bad_key"] += 1
            if joining:
                self._refuse(header, peer, wire.Refusal.KEY)
            return
        if worker >= job.workers:
            counters["bad_worker"] += 1
            if joining:
                self._refuse(header, peer, wire.Refusal.WORKER)
            return
        if joining:
            if present:
                counters["bad_present"] += 1
                return
            counters["joins"] += 1
            job.peers[worker] = peer
            job.headers[worker] = {}
            self._reply(
                header, peer, wire.Type.JOINED, job.workers, job.lanes, len(job.slots), job.credit
            )
            return
        known = job.peers[worker]
        if known is None or known[1] != source or known[2] != source_port:
            counters["bad_address"] += 1
            return
        if number >= len(job.slots):
            counters["bad_slot"] += 1
            return
        if present >> job.lanes or (present and type_ == wire.Type.PROBE):
            counters["bad_present"] += 1
            return
        slot = job.slots[number]
        ahead = (round_ - slot.round) & _MASK
        if (ahead == 0 or ahead == _MASK) and not slot.held[round_ & 1]:
            # From before the job run's first round: nobody has a result to ask for.
            counters["stale"] += 1
            return
        if type_ == wire.Type.PROBE:
            self._probe(job, slot, header, peer, ahead)
            return
        if ahead == 1:
            if slot.seen != job.everyone:
                counters["premature"] += 1
                return
            words = np.frombuffer(frame, "<u4", wire.LANES_MAX, wire.LOOKAHEAD_OFFSET)
            slot.open(round_, operation, opcode_dtype, words)
        elif ahead == 0:
            if slot.seen >> worker & 1:
                counters["duplicates"] += 1
                if slot.seen == job.everyone:
                    self._replay(job, slot, header, round_)
                return
            version = round_ & 1
            if slot.operation[version] != operation or slot.opcode_dtype[version] != opcode_dtype:
                slot.conflict[version] = True
            slot.take_least(np.frombuffer(frame, "<u4", wire.LANES_MAX, wire.LOOKAHEAD_OFFSET))
        else:
            if ahead == _MASK:
                counters["duplicates"] += 1
                self._replay(job, slot, header, round_)
            else:
                counters["premature" if ahead < 1 << 31 else "stale"] += 1
            return
        counters["accepted"] += 1
        slot.seen |= 1 << worker
        if blocks:
            counters["blocks_accepted"] += blocks
            data = np.frombuffer(
                frame, "<i4", blocks * wire.BLOCK_ELEMENTS, wire.PAYLOAD_OFFSET
            ).reshape(blocks, wire.BLOCK_ELEMENTS)
            counters["overflows"] += slot.add(present, data, opcode_dtype >> 4)
        if slot.seen == job.everyone:
            counters["rounds"] += 1
            counters["conflicts"] += slot.conflict[round_ & 1]
            self._results(job, slot, header, range(job.workers))

    def _probe(
        self,
        job: _Job,
        slot: SoftSlot,
        header: tuple[int, ...],
        peer: tuple[bytes, int, int],
        ahead: int,
    ) -> None:
        counters = self._counters
        full = slot.seen == job.everyone
        round_ = header[6]
        if ahead == _MASK or (ahead == 0 and full):
            counters["probes"] += 1
            self._replay(job, slot, header, round_)
        elif ahead == 0 or (ahead == 1 and full):
            counters["probes"] += 1
            seen = slot.seen if ahead == 0 else 0
            self._reply(header, peer, wire.Type.MISSING, seen & _MASK, seen >> 32, slot.round, 0)
        else:
            counters["premature" if ahead < 1 << 31 else "stale"] += 1

    def _replay(self, job: _Job, slot: SoftSlot, header: tuple[int, ...], round_: int) -> None:
        self._counters["replays"] += 1
        worker = header[3]
        self._results(job, slot, header, range(worker, worker + 1))

    def _results(self, job: _Job, slot: SoftSlot, header: tuple[int, ...], workers: range) -> None:
        """Sends the result of the round that `header` names to some of the workers."""
        _, _, index, _, number, _, round_, key, _ = header
        version = round_ & 1
        present = slot.present[version]
        blocks = present.bit_count()
        type_ = wire.Type.CONFLICT if slot.conflict[version] else wire.Type.RESULT
        body = slot.result(version)
        for worker in workers:
            front = job.headers[worker].get(blocks)
            if front is None:
                front = self._header(job.peers[worker], blocks)
                job.headers[worker][blocks] = front
            afflux = HEADER.pack(
                _VERSION | type_,
                slot.opcode_dtype[version],
                index,
                worker,
                number,
                present,
                round_,
                key,
                slot.operation[version],
            )
            self._out.append(front + afflux + body)

    def _refuse(
        self, header: tuple[int, ...], peer: tuple[bytes, int, int], cause: wire.Refusal
    ) -> None:
        self._reply(header, peer, wire.Type.REFUSED, cause, wire.VERSION, 0, 0)

    def _reply(
        self,
        header: tuple[int, ...],
        peer: tuple[bytes, int, int],
        type_: wire.Type,
        *words: int,
    ) -> None:
        """Answers a packet with its own header and up to four words."""
        _, opcode_dtype, index, worker, number, _, round_, key, operation = header
        afflux = HEADER.pack(
            _VERSION | type_, opcode_dtype, index, worker, number, 0, round_, key, operation
        )
        answer = np.zeros(wire.LANES_MAX, "<u4")
        answer[: len(words)] = words
        self._out.append(self._header(peer, 0) + afflux + answer.tobytes())

    def _header(self, peer: tuple[bytes, int, int] | None, blocks: int) -> bytes:
        if peer is None:
            raise RuntimeError("a round is complete without all its workers having joined")
        mac, address, port = peer
        return frame_header(
            (mac, self._mac), (self._address, address), (self._port, port), datagram_bytes(blocks)
        )
