"""Jobs and frames that fill a build to its edges: every slot, job, worker and lane, each different.

If two places of a table share memory, because an address has lost a bit, say, then two values that
are not the same meet there.
"""

from collections.abc import Sequence

import numpy as np

from tests.scenarios.afflux_layer import ENGINE_PORT
from tests.scenarios.director import Build
from tests.scenarios.job_frames import ENGINE_ADDRESS, ENGINE_MAC, Job, ParentJob, ResultGroup
from tests.scenarios.packing import HEADER, Peer, pack_frame

__all__ = [
    "JOIN",
    "PROBE",
    "contribution",
    "from_above",
    "job_of_all_slots",
    "joined_above",
    "question",
    "sharing_jobs",
]

DATA, PROBE, JOIN, RESULT, JOINED = 0, 1, 2, 8, 11
_ENGINE_MAC = bytes.fromhex(ENGINE_MAC.replace(":", ""))
_WORDS, _ELEMENTS = 16, 64
_KEYS = 0x9E37_79B9_7F4A_7C15


def sharing_jobs(
    build: Build, workers: int, groups: bool = False, parents: bool = False
) -> list[Job]:
    """Return as many jobs as there can be, which have all slots of the pool among them.

    Args:
        build: The engine's sizes.
        workers: Of each job.
        groups: Each job has a group; no two have the same.
        parents: Each job has a parent; no two have the same.
    """
    share = build["slots"] // build["jobs"]
    return [
        Job(
            number=number,
            workers=workers,
            lanes=build["lanes"],
            slots=share,
            slot_base=share * number,
            first_round=_KEYS * (number + 1) % 2**32,
            key=_KEYS * (number + 1) % 2**64,
            group=_group(number) if groups else None,
            parent=_parent(number) if parents else None,
        )
        for number in range(build["jobs"])
    ]


def job_of_all_slots(build: Build, workers: int) -> Job:
    """Return the job of the highest number, with the whole pool."""
    number = build["jobs"] - 1
    return Job(number=number, workers=workers, lanes=build["lanes"], slots=build["slots"])


def contribution(job: Job, worker: int, slot: int, step: int, lanes: Sequence[int]) -> bytes:
    """Return a contribution to round r₀ + `step`, with words and blocks that no other one has."""
    return _frame(
        *(_peer(job.number, worker), ENGINE_PORT, DATA, job.number, worker, job.key),
        *(slot, job.first_round + step, lanes, _drawn(job, worker, slot, step, lanes)),
    )


def question(job: Job, worker: int, kind: int, slot: int = 0, step: int = 0) -> bytes:
    """Return a JOIN, or a PROBE of round r₀ + `step`."""
    return _frame(
        *(_peer(job.number, worker), ENGINE_PORT, kind, job.number, worker, job.key),
        *(slot, job.first_round + step, (), bytes(4 * _WORDS)),
    )


def from_above(job: Job, slot: int, step: int, lanes: Sequence[int]) -> bytes:
    """Return the parent's result of round r₀ + `step`, unlike any other one."""
    return _down(job, RESULT, slot, step, lanes, _drawn(job, -1, slot, step, lanes))


def joined_above(job: Job) -> bytes:
    """Return the parent's JOINED."""
    return _down(job, JOINED, 0, 0, (), bytes(4 * _WORDS))


def _down(job: Job, kind: int, slot: int, step: int, lanes: Sequence[int], body: bytes) -> bytes:
    above = job.parent
    assert above is not None
    peer = Peer(bytes.fromhex(above.mac.replace(":", "")), _packed(above.address), above.port)
    return _frame(
        *(peer, job.parent_port, kind, above.number, above.worker, above.key),
        *(slot, job.first_round + step, lanes, body),
    )


def _drawn(job: Job, worker: int, slot: int, step: int, lanes: Sequence[int]) -> bytes:
    """Return words and blocks."""
    draw = np.random.default_rng((job.number, worker + 1, job.slot_base + slot, step))
    count = _WORDS + _ELEMENTS * len(lanes)
    return draw.integers(0, 2**32, count, np.uint32).astype("<u4").tobytes()


def _frame(
    peer: Peer,
    port: int,
    kind: int,
    job: int,
    worker: int,
    key: int,
    slot: int,
    round_: int,
    lanes: Sequence[int],
    body: bytes,
) -> bytes:
    present = sum(1 << lane for lane in lanes)
    header = HEADER.pack(
        *(2 << 4 | kind, 0, job, worker, slot, present, round_ % 2**32, key, 0),
    )
    return pack_frame(peer, Peer(_ENGINE_MAC, _packed(ENGINE_ADDRESS), port), header + body)


def _peer(job: int, worker: int) -> Peer:
    """Return where a worker is: no two have the same MAC address, IPv4 address or port."""
    number = job << 6 | worker
    mac = (0x0200_5A00_0000 + 0x0101 * number).to_bytes(6, "big")
    return Peer(mac, bytes((10, 1 + worker, job, 1)), 1024 + number)


def _group(job: int) -> ResultGroup:
    return ResultGroup(
        f"239.{job}.{255 - job}.{1 + job % 255}", 5000 + job, key=_KEYS * (1000 + job) % 2**64
    )


def _parent(job: int) -> ParentJob:
    return ParentJob(
        mac=f"02:af:fa:{255 - job:02x}:00:{job:02x}",
        address=f"10.{job}.9.{1 + job % 255}",
        port=4000 + job,
        number=255 - job,
        worker=job % 64,
        key=_KEYS * (2000 + job) % 2**64,
    )


def _packed(address: str) -> bytes:
    return bytes(map(int, address.split(".")))
