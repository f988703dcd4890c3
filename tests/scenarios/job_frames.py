"""A job as the tests see it: its parameters, where its workers are, and their frames."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from tests.scenarios.afflux_layer import ABSENT, ENGINE_PORT, Afflux, block_bytes

__all__ = ["ENGINE_ADDRESS", "ENGINE_MAC", "Job", "ParentJob", "ResultGroup"]

ENGINE_MAC = "02:af:fa:00:00:01"
ENGINE_ADDRESS = "10.0.0.9"


@dataclass(frozen=True)
class ResultGroup:
    """IPv4 multicast address and UDP port for results, and the key that these have."""

    address: str
    port: int
    key: int = 0x9E3779B97F4A7C15


@dataclass(frozen=True, kw_only=True)
class ParentJob:
    """The aggregator above a job, and the job's place there: worker `worker` of job `number`."""

    mac: str = "02:af:fa:00:00:fe"
    address: str = "10.0.9.9"
    port: int = 4799
    number: int = 5
    worker: int = 6
    key: int = 0x0123456789ABCDEF


@dataclass(frozen=True, kw_only=True)
class Job:
    """Parameters of a job, and the frames that its workers send.

    Attributes:
        number: Job number.
        workers: N.
        lanes: F.
        slots: S_job.
        slot_base: First slot in the pool.
        first_round: r₀. By default close to the wrap of round numbers.
        key: Secret of the job run.
        credit: As JOINED reports it to workers.
        one_host: All workers share one MAC and IPv4 address and differ in their port; else each
            has its own address and all have the same port.
        first_port: UDP port of worker 0.
        group: Where results go, if all workers share one.
        parent: The aggregator above, if there is one.
        may_move: Workers may move while the job runs.
    """

    number: int = 0
    workers: int = 2
    lanes: int = 1
    slots: int = 1
    slot_base: int = 0
    first_round: int = 2**32 - 2
    key: int = 0x00F1E2D3C4B5A697
    credit: int = 32
    one_host: bool = False
    first_port: int = 50000
    group: ResultGroup | None = None
    parent: ParentJob | None = None
    may_move: bool = False

    @property
    def parent_port(self) -> int:
        """UDP port of the job's side towards its parent."""
        return ENGINE_PORT + 1 + self.number

    def registers(self) -> dict[str, int]:
        """Return what an engine's registers hold for the job, but for its group and parent."""
        return {
            "job_index": self.number,
            "job_key_low": self.key % 2**32,
            "job_key_high": self.key >> 32,
            "job_workers": self.workers,
            "job_lanes": self.lanes,
            "job_slot_base": self.slot_base,
            "job_slot_count": self.slots,
            "job_round": self.first_round,
            "job_credit": self.credit,
            "job_options": int(self.may_move),
        }

    def mac(self, worker: int) -> str:
        return f"02:00:0a:{self.number:02x}:00:{0 if self.one_host else worker:02x}"

    def address(self, worker: int) -> str:
        return f"10.{1 + self.number}.0.{1 if self.one_host else 1 + worker}"

    def port(self, worker: int) -> int:
        return self.first_port + (worker if self.one_host else 0)

    def wrap(self, worker: int, packet: Afflux, payload: bytes = b"", **changes: object) -> bytes:
        """Return the frame in which a worker sends a packet. `changes` are of the IPv4 header."""
        headers = Ether(src=self.mac(worker), dst=ENGINE_MAC)
        headers /= IP(src=self.address(worker), dst=ENGINE_ADDRESS, flags="DF", **changes)
        # With its checksum, which the engine verifies.
        headers /= UDP(sport=self.port(worker), dport=ENGINE_PORT)
        return bytes(headers / packet / payload)

    def join(self, worker: int, **changes: object) -> bytes:
        fields = {"type": "JOIN", "job": self.number, "worker": worker, "key": self.key}
        return self.wrap(worker, Afflux(**(fields | {"words": [0] * 16} | changes)))

    def joins(self) -> list[bytes]:
        return [self.join(worker) for worker in range(self.workers)]

    def data(
        self,
        worker: int,
        slot: int,
        step: int,
        blocks: Mapping[int, Iterable[int]] | None = None,
        words: Sequence[int] = (),
        **changes: Any,
    ) -> bytes:
        """Return a contribution to round r₀ + `step`. Words that are not given are absent."""
        fields = {"type": "DATA", "job": self.number, "worker": worker, "key": self.key}
        fields |= self._round_fields(slot, step, blocks or {}, words)
        return self.wrap(worker, Afflux(**(fields | changes)), block_bytes(blocks or {}))

    def full_rounds(self, step: int = 0) -> list[bytes]:
        """Return a whole round of each slot, with blocks in every lane."""
        return [
            self.data(worker, slot, step, {lane: [worker, slot] * 32 for lane in range(self.lanes)})
            for slot in range(self.slots)
            for worker in range(self.workers)
        ]

    def probe(self, worker: int, slot: int, step: int, **changes: Any) -> bytes:
        return self.data(worker, slot, step, words=[0] * 16, **{"type": "PROBE", **changes})

    def down(
        self,
        slot: int,
        step: int,
        /,
        blocks: Mapping[int, Iterable[int]] | None = None,
        words: Sequence[int] = (),
        *,
        source: Mapping[str, object] | None = None,
        **changes: Any,
    ) -> bytes:
        """Return the parent's result of round r₀ + `step`. `source` changes where it comes from."""
        parent = self._parent()
        fields = {"type": "RESULT", "job": parent.number, "worker": parent.worker}
        fields |= {"key": parent.key} | self._round_fields(slot, step, blocks or {}, words)
        origin = {"mac": parent.mac, "address": parent.address, "port": parent.port}
        origin |= source or {}
        headers = Ether(src=origin["mac"], dst=ENGINE_MAC)
        headers /= IP(src=origin["address"], dst=ENGINE_ADDRESS, flags="DF")
        headers /= UDP(sport=origin["port"], dport=self.parent_port)
        return bytes(headers / Afflux(**(fields | changes)) / block_bytes(blocks or {}))

    def joined_above(self, **changes: Any) -> bytes:
        """Return the parent's JOINED."""
        words = [7, self.lanes, self.slots, self.credit] + [0] * 12
        return self.down(0, 0, words=words, **{"type": "JOINED", **changes})

    def _parent(self) -> ParentJob:
        if self.parent is None:
            raise ValueError(f"job {self.number} has no parent")
        return self.parent

    def _round_fields(
        self, slot: int, step: int, blocks: Mapping[int, Iterable[int]], words: Sequence[int]
    ) -> dict[str, object]:
        return {
            "slot": slot,
            "present": sum(1 << lane for lane in blocks),
            "round": (self.first_round + step) % 2**32,
            "words": list(words) + [ABSENT] * (16 - len(words)),
        }
