"""Frames for an engine: mostly sensible, often slightly wrong, sometimes garbage. Seeded."""

import random
from collections.abc import Sequence
from typing import Any

from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from afflux_sim.golden.engine import GoldenEngine
from tests.scenarios.afflux_layer import ABSENT, ENGINE_PORT, Afflux
from tests.scenarios.corruption import cut, extended, flip_bits, with_zero_udp_checksum
from tests.scenarios.job_frames import Job
from tests.scenarios.packing import sealed

__all__ = ["RandomFrames"]

CORNERS = [0, 1, 2**32 - 1, 2**31 - 1, 2**31, 2**30]


class RandomFrames:
    """Draws frames of the workers and parents of some jobs, close to what is expected next.

    Args:
        choose: Draws everything.
        golden: Its slots say which rounds are of interest.
        jobs: The jobs that exist, or did.
    """

    def __init__(self, choose: random.Random, golden: GoldenEngine, jobs: Sequence[Job]) -> None:
        self._choose = choose
        self._golden = golden
        self._jobs = jobs

    def sensible(self) -> bytes:
        """Return a frame that passes the checks, unless its job has gone."""
        frame = self._bare()
        return sealed(frame) if self._choose.random() < 0.2 else frame

    def _bare(self) -> bytes:
        """Return one without seal."""
        choose = self._choose
        job = choose.choice(self._jobs)
        worker = choose.randrange(job.workers)
        if choose.random() < 0.03:
            return job.join(worker)
        slot = choose.randrange(job.slots)
        # A slot that waits for its parent waits for nothing else.
        if job.parent and choose.random() < (0.5 if self._is_waiting(job, slot) else 0.1):
            return self._from_parent(job, slot)
        step = self._step(job, slot)
        if choose.random() < 0.15:
            blocks = {0: [1] * 64} if choose.random() < 0.1 else {}
            return job.data(worker, slot, step, blocks, type="PROBE")
        fields = self._fields()
        if choose.random() < 0.04:
            fields |= {"type": "CONFLICT"}
        return job.data(worker, slot, step, self._blocks(job), self._words(job), **fields)

    def any(self) -> bytes:
        """Return a frame that may be anything."""
        choose, draw = self._choose, self._choose.random()
        frame = self.sensible()
        if draw < 0.6:
            return frame
        if draw < 0.63:
            return choose.randbytes(choose.randrange(1, 300))
        if draw < 0.68:
            return cut(choose, frame)
        if draw < 0.72:
            return extended(choose, frame, choose.randrange(1, 5000))
        if draw < 0.85:
            return self._with_wrong_field(frame)
        return self._with_flipped_bits(frame)

    def _from_parent(self, job: Job, slot: int) -> bytes:
        """Return a frame of the job's parent."""
        choose = self._choose
        if choose.random() < 0.05:
            return job.joined_above()
        fields = self._fields() | ({"type": "CONFLICT"} if choose.random() < 0.2 else {})
        step = self._step(job, slot)
        return job.down(slot, step, self._blocks(job), self._words(job), **fields)

    def _is_waiting(self, job: Job, slot: int) -> bool:
        exists = self._golden.jobs[job.number] is not None
        return exists and self._golden.slot(job.number, slot).waiting

    def _step(self, job: Job, slot: int) -> int:
        """Return a step near that of the round that is open, or of the next if it is complete."""
        golden = self._golden.jobs[job.number]
        if golden is None:
            return 0
        state = golden.slots[slot]
        current = state.round + (1 if golden.is_complete(state) else 0)
        offset = self._choose.choice([0] * 15 + [-1, -1, -2, -3, 1, 2, 2**31, 2**31 - 1])
        return (current + offset - job.first_round) % 2**32

    def _blocks(self, job: Job) -> dict[int, list[int]]:
        choose = self._choose
        # Now and then one that the job does not have.
        count = job.lanes if choose.random() < 0.97 else 16
        lanes = [lane for lane in range(count) if choose.random() < 0.7]
        draw = choose.choice([lambda: choose.getrandbits(32), lambda: choose.choice(CORNERS)])
        return {lane: [draw() for _ in range(64)] for lane in lanes}

    def _words(self, job: Job) -> list[int]:
        choose = self._choose
        count = choose.choice([job.lanes, 16])
        return [choose.choice([choose.getrandbits(32), ABSENT]) for _ in range(count)]

    def _fields(self) -> dict[str, Any]:
        draw = self._choose.random()
        if draw < 0.15:
            return {"opcode": self._choose.randrange(4), "dtype": self._choose.randrange(16)}
        return {"operation": 7} if draw < 0.2 else {}

    def _with_wrong_field(self, frame: bytes) -> bytes:
        """Return a frame with one field changed and right checksums."""
        choose = self._choose
        packet = Ether(frame)
        packet[UDP].decode_payload_as(Afflux)
        afflux = packet[Afflux]
        field, bits = choose.choice(
            [
                (("afflux", "version"), 4),
                (("afflux", "type"), 4),
                (("afflux", "opcode"), 4),
                (("afflux", "job"), 8),
                (("afflux", "worker"), 8),
                (("afflux", "worker"), 8),
                (("afflux", "slot"), 16),
                (("afflux", "present"), 16),
                (("afflux", "key"), 64),
                (("afflux", "key"), 64),
                (("udp", "dport"), 16),
                (("udp", "sport"), 16),
                (("ip", "flags"), 3),
                (("ip", "frag"), 13),
                (("ip", "ttl"), 8),
                (("ip", "tos"), 8),
                (("ip", "id"), 16),
            ]
        )
        layer = {"afflux": afflux, "udp": packet[UDP], "ip": packet[IP]}[field[0]]
        near = choose.randrange(ENGINE_PORT - 1, ENGINE_PORT + 10) if bits == 16 else 255
        value = choose.choice([choose.getrandbits(bits), choose.randrange(3), near])
        setattr(layer, field[1], value % 2**bits)
        for checked in (packet[IP], packet[UDP]):
            del checked.chksum
        return bytes(packet)

    def _with_flipped_bits(self, frame: bytes) -> bytes:
        choose = self._choose
        changed = bytearray(frame)
        flip_bits(choose, changed, (1, 1, 2))
        if choose.random() < 0.3:
            with_zero_udp_checksum(changed)
        return bytes(changed)
