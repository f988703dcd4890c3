"""One worker's part in an int32 SUM, from docs/protocol.md sections 3, 4, 6, 8.1, 8.4 and 9.

Without timers: its driver moves its frames. It sends and reads frames through scapy only.
"""

import zlib
from collections.abc import Sequence

from tests.scenarios.afflux_layer import ABSENT, Afflux, blocks_of
from tests.scenarios.job_frames import Job

__all__ = ["StreamWorker", "active_slots", "expected_sum"]

ELEMENTS = 64


def active_slots(job: Job, count: int) -> int:
    """S: slots that a tensor of `count` elements uses."""
    blocks = -(-count // ELEMENTS)
    return max(1, min(job.slots, -(-blocks // job.lanes)))


def is_direct(job: Job, count: int) -> bool:
    return job.lanes >= 2 and count <= (job.lanes - 1) * ELEMENTS


def expected_sum(tensors: Sequence[Sequence[int]]) -> list[int]:
    """Element by element modulo 2**32, as a signed number."""
    return [(sum(column) + 2**31) % 2**32 - 2**31 for column in zip(*tensors, strict=True)]


class StreamWorker:
    """The state of one worker over the operations of a job run.

    Attributes:
        result: The tensor that has come back so far.
        outstanding: By slot the frame that waits for its answer.
        steps: By slot how many rounds lie between r₀ and the outstanding one.
    """

    def __init__(self, job: Job, number: int) -> None:
        self.job = job
        self.number = number
        self.operation = -1
        self.steps = [0] * job.slots
        self.outstanding: dict[int, bytes] = {}
        self.result: list[int] = []

    def start(self, tensor: Sequence[int]) -> list[bytes]:
        """Begin an operation; return the frames of its opening rounds."""
        assert not self.outstanding
        self.operation += 1
        self.tensor = list(tensor)
        self.result = [0] * len(tensor)
        self.slots = active_slots(self.job, len(tensor))
        self.direct = is_direct(self.job, len(tensor))
        padded = self.tensor + [0] * (-len(tensor) % ELEMENTS)
        self.blocks = [padded[at : at + ELEMENTS] for at in range(0, len(padded), ELEMENTS)]
        self.agreed: dict[int, list[int] | None] = dict.fromkeys(range(self.slots))
        # Rows of the present blocks still to be sent, of each column.
        self.columns = {
            (slot, lane): [] if self.direct else self._rows(slot, lane)
            for slot in range(self.slots)
            for lane in range(self.job.lanes)
        }
        return [self._send(slot, self._opening(slot)) for slot in range(self.slots)]

    def receive(self, packet: Afflux) -> list[bytes]:
        """Take a packet that was sent to this worker, and return the frames of its answer."""
        self._check(packet)
        slot = packet.slot
        mine = (self.job.number, self.number, self.job.key, self.operation)
        theirs = (packet.job, packet.worker, packet.key, packet.operation)
        if slot not in self.outstanding or mine != theirs or packet.round != self._round(slot):
            return []
        if packet.type == 10:
            # MISSING: whether it is this worker's own contribution that was lost.
            seen = packet.words[0] | packet.words[1] << 32
            return [] if seen >> self.number & 1 else [self.outstanding[slot]]
        assert packet.type == 8, packet.sprintf("%type%")
        self._take(slot, packet)
        self.steps[slot] += 1
        del self.outstanding[slot]
        self.agreed[slot] = packet.words
        if packet.words == [ABSENT] * 16:
            return []
        return [self._send(slot, self._agreed(slot))]

    def probe(self, slot: int) -> bytes:
        """Ask for the result of the outstanding round."""
        return self.job.probe(
            self.number, slot, self.steps[slot], operation=self.operation % 2**16, dtype=0
        )

    def _check(self, packet: Afflux) -> None:
        udp = packet.underlayer
        header = (udp.underlayer.underlayer.dst, udp.underlayer.dst, udp.dport)
        job = self.job
        assert header == (job.mac(self.number), job.address(self.number), job.port(self.number))

    def _round(self, slot: int) -> int:
        return (self.job.first_round + self.steps[slot]) % 2**32

    def _place(self, row: int, slot: int, lane: int) -> int:
        return row * self.slots * self.job.lanes + slot * self.job.lanes + lane

    def _rows(self, slot: int, lane: int) -> list[int]:
        column = self.blocks[self._place(0, slot, lane) :: self.slots * self.job.lanes]
        return [row for row, block in enumerate(column) if any(block)]

    def _opening(self, slot: int) -> dict[int, list[int]]:
        if slot != 0:
            return {}
        text = f"{self.operation}:sum:int32:{len(self.tensor)}"
        fingerprint = [0] * ELEMENTS
        fingerprint[self.number] = zlib.crc32(text.encode())
        blocks = {0: fingerprint}
        if self.direct:
            blocks |= {1 + place: block for place, block in enumerate(self.blocks)}
        return blocks

    def _agreed(self, slot: int) -> dict[int, list[int]]:
        blocks = {}
        words = self.agreed[slot]
        assert words is not None
        for lane in range(self.job.lanes):
            column = self.columns[slot, lane]
            if column and words[lane] >> 8 == column[0]:
                blocks[lane] = self.blocks[self._place(column.pop(0), slot, lane)]
        return blocks

    def _send(self, slot: int, blocks: dict[int, list[int]]) -> bytes:
        words = []
        for lane in range(self.job.lanes):
            column = self.columns[slot, lane]
            # No exponent: the lower byte is 255 - 0.
            words.append(column[0] << 8 | 255 if column else ABSENT)
        frame = self.job.data(
            self.number,
            slot,
            self.steps[slot],
            blocks,
            words,
            operation=self.operation % 2**16,
        )
        self.outstanding[slot] = frame
        return frame

    def _take(self, slot: int, packet: Afflux) -> None:
        agreed = self.agreed[slot]
        blocks = blocks_of(packet)
        if agreed is None and slot == 0:
            own = self._opening(0)[0][self.number]
            prints = blocks.pop(0)[: self.job.workers]
            assert [word % 2**32 for word in prints] == [own] * self.job.workers
        for lane, block in blocks.items():
            place = self._place(agreed[lane] >> 8, slot, lane) if agreed else lane - 1
            at = ELEMENTS * place
            end = min(at + ELEMENTS, len(self.result))
            self.result[at:end] = block[: end - at]
