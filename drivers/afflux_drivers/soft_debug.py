"""Registers of the software engine through which a person looks at its slots and workers."""

from collections.abc import Callable, Mapping, Sequence

from afflux_drivers.soft_job import Endpoint, SoftJob
from afflux_drivers.soft_registers import RegisterFile
from afflux_drivers.soft_slot import SoftSlot

__all__ = ["debug_registers"]

_LOW = 0xFFFF_FFFF


def debug_registers(
    pool: Sequence[SoftSlot], jobs: Sequence[SoftJob | None]
) -> Mapping[str, Callable[[RegisterFile], int]]:
    """The registers that show the engine's state, by name. What does not exist reads as 0.

    Args:
        pool: All slots, as they change.
        jobs: The jobs by number, as they come and go.
    """

    def job_of(number: int) -> SoftJob | None:
        return jobs[number] if number < len(jobs) else None

    def of_job(value: Callable[[SoftJob], int]) -> Callable[[RegisterFile], int]:
        def read(values: RegisterFile) -> int:
            job = job_of(values["job_index"])
            return value(job) if job is not None else 0

        return read

    def of_slot(value: Callable[[SoftSlot], int]) -> Callable[[RegisterFile], int]:
        def read(values: RegisterFile) -> int:
            number = values["debug_slot"]
            return value(pool[number]) if number < len(pool) else 0

        return read

    def of_peer(value: Callable[[Endpoint], int]) -> Callable[[RegisterFile], int]:
        def read(values: RegisterFile) -> int:
            number, worker = divmod(values["debug_worker"], 256)
            job = job_of(number)
            peer = job.peers[worker] if job is not None and worker < job.workers else None
            return value(peer) if peer is not None else 0

        return read

    return {
        "job_enabled": of_job(lambda _: 1),
        "job_parent_joined": of_job(lambda job: job.parent_joined),
        "debug_round": of_slot(lambda slot: slot.round),
        "debug_seen_low": of_slot(lambda slot: slot.seen & _LOW),
        "debug_seen_high": of_slot(lambda slot: slot.seen >> 32),
        "debug_phase": of_slot(lambda slot: (slot.seen == slot.everyone != 0) | slot.waiting << 1),
        "debug_version_0": of_slot(lambda slot: _version(slot, 0)),
        "debug_version_1": of_slot(lambda slot: _version(slot, 1)),
        "debug_peer_mac_low": of_peer(lambda peer: int.from_bytes(peer[0], "big") & _LOW),
        "debug_peer_mac_high": of_peer(lambda peer: 1 << 16 | int.from_bytes(peer[0], "big") >> 32),
        "debug_peer_address": of_peer(lambda peer: peer[1]),
        "debug_peer_port": of_peer(lambda peer: peer[2]),
    }


def _version(slot: SoftSlot, version: int) -> int:
    return slot.held[version] << 17 | slot.conflict[version] << 16 | slot.present[version]
