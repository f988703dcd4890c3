"""The rounds of the software engine: who has contributed, what completes, what comes from above.

The tables of the protocol's sections 5.3 and 5.6, for packets that have passed every check.
"""

import numpy as np
from numpy.typing import NDArray

from afflux_drivers.soft_answers import short_answer
from afflux_drivers.soft_job import Endpoint, SoftJob
from afflux_hdl import wire

__all__ = ["SoftRounds"]

_MASK = 0xFFFF_FFFF
_CONFLICT = wire.VERSION << 4 | wire.Type.CONFLICT


def _words(frame: bytes) -> NDArray[np.uint32]:
    return np.frombuffer(frame, "<u4", wire.LANES_MAX, wire.LOOKAHEAD_OFFSET)


def _blocks(frame: bytes, blocks: int) -> NDArray[np.int32]:
    return np.frombuffer(frame, "<i4", blocks * wire.BLOCK_ELEMENTS, wire.PAYLOAD_OFFSET).reshape(
        blocks, wire.BLOCK_ELEMENTS
    )


class SoftRounds:
    """Carries packets out on the slots of their jobs.

    Args:
        counters: The engine's, by name; incremented here.

    Attributes:
        out: Frames to send are appended to it.
    """

    def __init__(self, counters: dict[str, int]) -> None:
        self._counters = counters
        self.out: list[bytes] = []

    def data(self, job: SoftJob, header: tuple[int, ...], frame: bytes) -> None:
        """A contribution: DATA, or CONFLICT of a child."""
        version_type, opcode_dtype, _, worker, number, present, round_, _, operation = header
        counters = self._counters
        slot = job.slots[number]
        ahead = (round_ - slot.round) & _MASK
        version = round_ & 1
        if (ahead == 0 or ahead == _MASK) and not slot.held[version]:
            # From before the job run's first round: nobody has a result to ask for.
            counters["stale"] += 1
            return
        if ahead == 1:
            if slot.waiting or slot.seen != slot.everyone:
                counters["premature"] += 1
                return
            slot.open(round_, operation, opcode_dtype, _words(frame))
        elif ahead == 0:
            if slot.seen >> worker & 1:
                counters["duplicates"] += 1
                if slot.waiting:
                    # Or else a lost partial sum would be a dead end.
                    counters["replays"] += 1
                    self.out.append(job.partial_sum(number, round_))
                elif slot.seen == slot.everyone:
                    self._replay(job, header)
                return
            if slot.operation[version] != operation or slot.opcode_dtype[version] != opcode_dtype:
                slot.conflict[version] = True
            slot.take_least(_words(frame))
        else:
            if ahead == _MASK:
                counters["duplicates"] += 1
                self._replay(job, header)
            else:
                counters["premature" if ahead < 1 << 31 else "stale"] += 1
            return
        counters["accepted"] += 1
        slot.seen |= 1 << worker
        if version_type == _CONFLICT:
            slot.conflict[version] = True
        if present:
            blocks = present.bit_count()
            counters["blocks_accepted"] += blocks
            counters["overflows"] += slot.add(present, _blocks(frame, blocks), opcode_dtype >> 4)
        if slot.seen == slot.everyone:
            if job.parent is None:
                self._complete(job, number, round_)
            else:
                slot.waiting = True
                self.out.append(job.partial_sum(number, round_))

    def probe(self, job: SoftJob, header: tuple[int, ...], local: Endpoint, peer: Endpoint) -> None:
        """A PROBE."""
        counters = self._counters
        number, round_ = header[4], header[6]
        slot = job.slots[number]
        ahead = (round_ - slot.round) & _MASK
        complete = slot.seen == slot.everyone and not slot.waiting
        if (ahead == 0 or ahead == _MASK) and not slot.held[round_ & 1]:
            counters["stale"] += 1
        elif ahead == _MASK or (ahead == 0 and complete):
            counters["probes"] += 1
            self._replay(job, header)
        elif ahead == 0 or (ahead == 1 and complete):
            counters["probes"] += 1
            seen = slot.seen if ahead == 0 else 0
            words = seen & _MASK, seen >> 32, slot.round
            self.out.append(short_answer(header, local, peer, wire.Type.MISSING, *words))
        else:
            counters["premature" if ahead < 1 << 31 else "stale"] += 1

    def parent_result(self, job: SoftJob, header: tuple[int, ...], frame: bytes) -> None:
        """A RESULT or CONFLICT of the parent."""
        version_type, _, _, _, number, present, round_, _, _ = header
        counters = self._counters
        slot = job.slots[number]
        ahead = (round_ - slot.round) & _MASK
        if (ahead == 0 or ahead == _MASK) and not slot.held[round_ & 1]:
            counters["stale"] += 1
        elif ahead == 0 and slot.waiting:
            counters["parent_results"] += 1
            slot.take(
                present,
                _words(frame),
                _blocks(frame, present.bit_count()),
                version_type == _CONFLICT,
            )
            self._complete(job, number, round_)
        elif ahead == _MASK or (ahead == 0 and slot.seen == slot.everyone):
            counters["duplicates"] += 1
        else:
            counters["premature" if ahead < 1 << 31 else "stale"] += 1

    def _complete(self, job: SoftJob, number: int, round_: int) -> None:
        self._counters["rounds"] += 1
        self._counters["conflicts"] += job.slots[number].conflict[round_ & 1]
        self.out += job.completed(number, round_)

    def _replay(self, job: SoftJob, header: tuple[int, ...]) -> None:
        self._counters["replays"] += 1
        self.out.append(job.replay(header[4], header[6], header[3]))
