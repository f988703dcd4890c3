"""A job for measurements: what its registers are set to, and the frames of its workers."""

import struct
from dataclasses import dataclass
from functools import lru_cache

from afflux_drivers.frames import frame_header, mac_of
from afflux_hdl.contract import wire

__all__ = ["AFFLUX_HEADER", "EVERYONE", "FIRST_ROUND", "Contribution", "LoopJob"]

EVERYONE = 255
"""Worker byte of a result that goes to a group."""

AFFLUX_HEADER = struct.Struct("<BBBBHHIQH")
"""Version and type, opcode and dtype, job, worker, slot, present, round, key, operation."""

FIRST_ROUND = 2**32 - 8
"""r0: round numbers wrap early."""

_ADDRESS = 0x0A00_0009
_GROUP_ADDRESS = 0xEF01_0203
_KEY = 0x0123_4567_89AB_CDEF
_JOB = 0
_WORKER_PORT = 5000


@dataclass(frozen=True)
class Contribution:
    """A worker's packets of a round.

    Attributes:
        present: Bit f: a block for lane f.
        words: 64 bytes of look-ahead words.
        blocks: The present blocks, lowest lane first.
    """

    present: int
    words: bytes
    blocks: bytes


@dataclass(frozen=True)
class LoopJob:
    """The only job of an engine.

    Attributes:
        workers, lanes, slots: N, F and the number of slots.
        multicast: Results go to a group.
    """

    workers: int
    lanes: int
    slots: int
    multicast: bool = False

    def register_values(self) -> dict[str, int]:
        """Return what to write before the CREATE command, the engine's own addresses included."""
        mac = mac_of(_ADDRESS)
        return {
            "local_mac_low": int.from_bytes(mac[2:], "big"),
            "local_mac_high": int.from_bytes(mac[:2], "big"),
            "local_address": _ADDRESS,
            "local_port": wire.PORT,
            "job_index": _JOB,
            "job_key_low": _KEY % 2**32,
            "job_key_high": _KEY >> 32,
            "job_workers": self.workers,
            "job_lanes": self.lanes,
            "job_slot_base": 0,
            "job_slot_count": self.slots,
            "job_round": FIRST_ROUND,
            "job_credit": self.slots,
            "job_group_address": _GROUP_ADDRESS if self.multicast else 0,
            "job_group_port": wire.PORT,
            "job_parent_address": 0,
        }

    def join(self, worker: int) -> bytes:
        """Return the frame with which a worker joins."""
        nothing = Contribution(0, bytes(wire.LOOKAHEAD_BYTES), b"")
        return _frame(wire.Type.JOIN, worker, 0, 0, nothing)

    def data(self, worker: int, slot: int, turn: int, part: Contribution) -> bytes:
        """Return the frame of a contribution to round number `turn`, the first being 0."""
        return _frame(wire.Type.DATA, worker, slot, (FIRST_ROUND + turn) % 2**32, part)


@lru_cache(maxsize=4096)
def _addresses(worker: int, payload_bytes: int) -> bytes:
    source = _ADDRESS + 1 + worker
    return frame_header(
        (mac_of(_ADDRESS), mac_of(source)),
        (source, _ADDRESS),
        (_WORKER_PORT, wire.PORT),
        payload_bytes,
    )


def _frame(kind: int, worker: int, slot: int, number: int, part: Contribution) -> bytes:
    header = AFFLUX_HEADER.pack(
        wire.VERSION << 4 | kind, 0, _JOB, worker, slot, part.present, number, _KEY, 0
    )
    addresses = _addresses(worker, wire.UDP_PAYLOAD_MIN + len(part.blocks))
    return addresses + header + part.words + part.blocks
