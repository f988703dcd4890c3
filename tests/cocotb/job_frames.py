"""A job as the tests see it: its parameters, where its workers are, and their frames."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from tests.cocotb.afflux_layer import ABSENT, ENGINE_PORT, Afflux, block_bytes

__all__ = ["ENGINE_ADDRESS", "ENGINE_MAC", "Job"]

ENGINE_MAC = "02:af:fa:00:00:01"
ENGINE_ADDRESS = "10.0.0.9"


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
        credit: As told to workers that join.
        one_host: All workers share one MAC and IPv4 address and differ in their port; else each
            has its own address and all have the same port.
        first_port: UDP port of worker 0.
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

    def mac(self, worker: int) -> str:
        return f"02:00:0a:{self.number:02x}:00:{0 if self.one_host else worker:02x}"

    def address(self, worker: int) -> str:
        return f"10.{1 + self.number}.0.{1 if self.one_host else 1 + worker}"

    def port(self, worker: int) -> int:
        return self.first_port + (worker if self.one_host else 0)

    def wrap(self, worker: int, packet: Afflux, payload: bytes = b"", **changes: object) -> bytes:
        """The frame in which a worker sends a packet. ``changes`` are of the IPv4 header."""
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
        **changes: object,
    ) -> bytes:
        """A contribution to round r₀ + ``step``. Words that are not given are absent."""
        blocks = blocks or {}
        fields = {
            "type": "DATA",
            "job": self.number,
            "worker": worker,
            "slot": slot,
            "present": sum(1 << lane for lane in blocks),
            "round": (self.first_round + step) % 2**32,
            "key": self.key,
            "words": list(words) + [ABSENT] * (16 - len(words)),
        }
        return self.wrap(worker, Afflux(**(fields | changes)), block_bytes(blocks))

    def probe(self, worker: int, slot: int, step: int, **changes: object) -> bytes:
        return self.data(worker, slot, step, words=[0] * 16, **({"type": "PROBE"} | changes))
