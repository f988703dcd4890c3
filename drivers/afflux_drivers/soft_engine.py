"""The software engine: the aggregator of the protocol's section 5, frame by frame, on the CPU.

It is the embedded aggregator of a run without hardware, and the hardware's twin: the same frames in
the same order for the same input, the same counters, behind the same registers. It sends at once,
so nothing queues and no replay is ever dropped.
"""

from collections.abc import Sequence

from afflux_drivers.frames import FRAME_HEADER
from afflux_drivers.packets import HEADER, datagram_bytes
from afflux_drivers.soft_answers import short_answer
from afflux_drivers.soft_debug import debug_registers
from afflux_drivers.soft_job import Endpoint, SoftJob
from afflux_drivers.soft_registers import RegisterFile
from afflux_drivers.soft_rounds import SoftRounds
from afflux_drivers.soft_slot import SoftSlot
from afflux_hdl import registers, wire

__all__ = ["SoftEngine"]

_FRAME_MIN = wire.LOOKAHEAD_OFFSET
_FROM_WORKERS = {wire.Type.DATA, wire.Type.PROBE, wire.Type.JOIN, wire.Type.CONFLICT}
_FROM_PARENT = {wire.Type.RESULT, wire.Type.CONFLICT, wire.Type.JOINED}


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
        self._jobs: list[SoftJob | None] = [None] * jobs
        self._counters = {counter.name: 0 for counter in registers.COUNTERS}
        self._registers = RegisterFile(
            {
                "identity": registers.IDENTITY,
                "protocol": wire.VERSION,
                "build_workers": workers,
                "build_lanes": lanes,
                "build_jobs": jobs,
                "build_slots": slots,
                "build_version": registers.RELEASE,
            },
            debug_registers(self._pool, self._jobs),
            self._counters,
            self._command,
        )
        self._local: Endpoint = (b"\0" * 6, 0, 0)
        self._rounds = SoftRounds(self._counters)

    def play(self, frames: Sequence[bytes]) -> list[bytes]:
        """Takes frames one after the other; returns all that was sent, in order.

        What commands have caused to be sent comes first.
        """
        for frame in frames:
            self._frame(frame)
        out, self._rounds.out = self._rounds.out, []
        self._counters["frames_out"] += len(out)
        self._counters["bytes_out"] += sum(map(len, out))
        return out

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
        if local != self._local:
            self._local = local
            for job in self._jobs:
                if job is not None:
                    job.moved(local)

    def close(self) -> None:
        """Does nothing: the engine holds memory only."""

    def _command(self, command: int) -> None:
        index = self._registers["job_index"]
        if command == registers.Command.JOIN_PARENT:
            job = self._jobs[index] if index < len(self._jobs) else None
            packet = job.join_parent() if job is not None else None
            if packet is not None:
                self._rounds.out.append(packet)
            return
        if command not in (registers.Command.CREATE, registers.Command.DESTROY):
            return
        if index >= len(self._jobs):
            raise ValueError(f"the engine has jobs 0 to {len(self._jobs) - 1}, not {index}")
        self._jobs[index] = None
        if command == registers.Command.CREATE:
            self._jobs[index] = self._create(index)

    def _create(self, index: int) -> SoftJob:
        values = self._registers
        for name, least, most in (
            ("job_workers", 1, values["build_workers"]),
            ("job_lanes", 1, values["build_lanes"]),
            ("job_slot_count", 1, len(self._pool) - values["job_slot_base"]),
        ):
            if not least <= values[name] <= most:
                raise ValueError(f"{name} of job {index} is {least} to {most}, not {values[name]}")
        base = values["job_slot_base"]
        slots = self._pool[base : base + values["job_slot_count"]]
        job = SoftJob(index, values, slots, self._local)
        for slot in slots:
            slot.reset(values["job_round"], job.everyone)
        return job

    def _frame(self, frame: bytes) -> None:
        counters = self._counters
        counters["frames_in"] += 1
        counters["bytes_in"] += len(frame)
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
        local_mac, local_address, local_port = self._local
        if (
            mac != local_mac
            or ethertype != 0x0800
            or version_and_length >> 4 != 4
            or protocol != 17
            or destination != local_address
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
        # The job that has this as its parent port, if there is one.
        above = (port - local_port - 1) & 0xFFFF
        if port != local_port and above >= len(self._jobs):
            counters["not_ours"] += 1
            return
        header = HEADER.unpack_from(frame, wire.AFFLUX_OFFSET)
        version_type, opcode_dtype, index, worker, number, present, _, key, _ = header
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
        if port != local_port:
            self._from_parent(self._jobs[above], header, frame, source, source_port)
            return
        if type_ not in _FROM_WORKERS or opcode_dtype >> 4 > wire.Opcode.UMIN:
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
            job.join(worker, peer)
            words = job.workers, job.lanes, len(job.slots), job.credit, *job.group
            self._rounds.out.append(
                short_answer(header, self._local, peer, wire.Type.JOINED, *words)
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
        if type_ == wire.Type.PROBE:
            self._rounds.probe(job, header, self._local, peer)
        else:
            self._rounds.data(job, header, frame)

    def _from_parent(
        self,
        job: SoftJob | None,
        header: tuple[int, ...],
        frame: bytes,
        source: int,
        source_port: int,
    ) -> None:
        """Judges a frame to the parent port of a job (section 5.6)."""
        version_type, opcode_dtype, number_there, worker, number, present, _, key, _ = header
        counters = self._counters
        type_ = version_type & 15
        parent = job.parent if job is not None else None
        if type_ not in _FROM_PARENT or opcode_dtype >> 4 > wire.Opcode.UMIN:
            counters["bad_type"] += 1
        elif job is None or parent is None or number_there != parent.job:
            counters["bad_job"] += 1
        elif key != parent.key:
            counters["bad_key"] += 1
        elif worker != parent.worker:
            counters["bad_worker"] += 1
        elif (source, source_port) != parent.endpoint[1:]:
            counters["bad_address"] += 1
        elif type_ == wire.Type.JOINED:
            counters["bad_present" if present else "joins"] += 1
            if not present:
                job.parent_joined = True
        elif number >= len(job.slots):
            counters["bad_slot"] += 1
        elif present >> job.lanes:
            counters["bad_present"] += 1
        else:
            self._rounds.parent_result(job, header, frame)

    def _refuse(self, header: tuple[int, ...], peer: Endpoint, cause: wire.Refusal) -> None:
        words = cause, wire.VERSION
        self._rounds.out.append(short_answer(header, self._local, peer, wire.Type.REFUSED, *words))
