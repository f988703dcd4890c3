"""A tensor as columns of present blocks: what a worker gives to each round, and takes from it.

This is sections 4 and 8.3 of the protocol, seen from one worker and without packets' headers, loss
or time. Tables over the whole tensor are made once, at the start of the operation, so that a packet
costs a few calls however many lanes it has.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from afflux_drivers import classes
from afflux_drivers.encodings import Encoding
from afflux_drivers.errors import AggregatorMisbehaved
from afflux_drivers.grid import Grid
from afflux_drivers.packets import PacketBuffer
from afflux_hdl import wire

__all__ = ["Columns"]

_ABSENT = np.uint32(wire.ABSENT)


class _Agreement:
    """What the last result of a slot agreed on: the blocks of the outstanding round.

    Attributes:
        row: The row of all lanes, or -1 if they differ or some are absent.
        blocks: Numbers of the present lanes' blocks, if `row` is -1.
        low: Low bytes of the agreed words, of the present lanes.
        present: Bitmap of the present lanes.
    """

    __slots__ = ("blocks", "low", "present", "row")

    def __init__(self) -> None:
        self.row = -1
        self.blocks: list[int] = []
        self.low = b""
        self.present = 0


class Columns:
    """The columns of one operation at one worker.

    Args:
        grid: Where the blocks lie; at least one row.
        encoding: What the elements become on the wire; holds the tensor, padded to `grid.shape`.
    """

    def __init__(self, grid: Grid, encoding: Encoding) -> None:
        self._encoding = encoding
        self._rows, self._slots, self._lanes, _ = grid.shape
        self._all_lanes = (1 << self._lanes) - 1
        words = np.full((self._rows + 1, self._slots, self._lanes), _ABSENT, np.uint32)
        row_numbers = np.arange(self._rows, dtype=np.uint32)[:, None, None] << np.uint32(8)
        low = np.uint32(255) - encoding.exponents
        present = encoding.present
        words[:-1][present] = (row_numbers | low)[present]
        # Words grow with their rows, so the least word from a row on names its next block.
        np.minimum.accumulate(words[::-1], axis=0, out=words[::-1])
        self._next = words
        self._full: list[list[bool]] = np.asarray(present.all(axis=2)).tolist()
        # Words that this worker has sent last, by slot; never written to, only replaced.
        self._own = [words[0, slot] for slot in range(self._slots)]
        # Row that all of a slot's own words name, or -1.
        self._own_row = [0 if self._full[0][slot] else -1 for slot in range(self._slots)]
        self._agreed = [_Agreement() for _ in range(self._slots)]
        # Sums of class counts, by (slot, lane), with their row: the finite sums come after them.
        self._counts: dict[tuple[int, int], tuple[int, NDArray[np.int32]]] = {}

    def opening_words(self, slot: int) -> NDArray[np.uint32]:
        """Words of the slot's opening round, (lanes,); not to be written to."""
        return self._own[slot]

    def contribute(self, slot: int, agreed: NDArray[np.uint32], packet: PacketBuffer) -> int:
        """Fills the packet for the round in which the blocks of the agreed words are summed.

        Args:
            slot: An active slot.
            agreed: (lanes,) uint32, words of the last result, not all absent.
            packet: Its words and blocks are written.

        Returns:
            Bitmap of the lanes whose blocks are in the packet.

        Raises:
            AggregatorMisbehaved: If the words are not the minimum of anything with ours.
        """
        row = self._own_row[slot]
        if row >= 0:
            bytes_ = agreed.tobytes()
            low = bytes_[::4]
            if (
                # The same row in all lanes: three comparisons of bytes cost less than one call.
                bytes_[1::4] == bytes((row & 255,)) * self._lanes
                and bytes_[2::4] == bytes((row >> 8 & 255,)) * self._lanes
                and bytes_[3::4] == bytes((row >> 16,)) * self._lanes
                and not (self._encoding.floating and 0 in low)
                and not np.count_nonzero(agreed > self._own[slot])
            ):
                return self._contribute_row(slot, row, low, packet)
        return self._contribute_lanes(slot, agreed, packet)

    def _contribute_row(self, slot: int, row: int, low: bytes, packet: PacketBuffer) -> int:
        agreement = self._agreed[slot]
        agreement.row = row
        agreement.low = low
        agreement.present = self._all_lanes
        encoding = self._encoding
        encoding.encode(encoding.blocks[row, slot], agreement.low, packet.blocks)
        own = self._next[row + 1, slot]
        packet.words[: self._lanes] = own
        self._own[slot] = own
        row += 1
        self._own_row[slot] = row if row < self._rows and self._full[row][slot] else -1
        return self._all_lanes

    def _contribute_lanes(self, slot: int, agreed: NDArray[np.uint32], packet: PacketBuffer) -> int:
        # Up to 16 lanes: a loop over plain integers costs less than thirty calls on short arrays.
        own = self._own[slot].tolist()
        first, row_blocks = slot * self._lanes, self._slots * self._lanes
        agreement = self._agreed[slot]
        agreement.row = -1
        agreement.blocks = agreed_blocks = []
        present = sent = 0
        agreed_low, sent_low = bytearray(), bytearray()
        sent_blocks: list[int] = []
        sent_lanes: list[int] = []
        for lane, word in enumerate(agreed.tolist()):
            mine = own[lane]
            row = word >> 8
            if word > mine or (row >= self._rows and word != wire.ABSENT):
                raise AggregatorMisbehaved(
                    f"slot {slot}, lane {lane}: the agreed word {word:#010x} is not the least, as "
                    f"this worker sent {mine:#010x} of {self._rows} rows"
                )
            if word == wire.ABSENT:
                continue
            block = row * row_blocks + first + lane
            low = word & 255
            present |= 1 << lane
            agreed_blocks.append(block)
            agreed_low.append(low)
            # Where counts are asked for, only who has some sends them.
            if mine >> 8 == row and (mine == word or low != 0 or not self._encoding.floating):
                sent |= 1 << lane
                sent_blocks.append(block)
                sent_low.append(low)
                sent_lanes.append(lane)
        agreement.low, agreement.present = bytes(agreed_low), present
        if sent:
            self._fill(sent_blocks, bytes(sent_low), packet.blocks[: len(sent_blocks)])
            after = self._next.reshape(-1)[[block + row_blocks for block in sent_blocks]]
            for lane, word in zip(sent_lanes, after.tolist(), strict=True):
                own[lane] = word
            if self._encoding.floating and 0 in sent_low:
                for lane, block, low in zip(sent_lanes, sent_blocks, sent_low, strict=True):
                    exponent = self._finite_exponent(block) if low == 0 else 0
                    if exponent:
                        own[lane] = block // row_blocks << 8 | (255 - exponent)
        words = np.array(own, np.uint32)
        packet.words[: self._lanes] = words
        self._own[slot] = words
        row = own[0] >> 8
        together = (
            row < self._rows and self._full[row][slot] and all(word >> 8 == row for word in own)
        )
        self._own_row[slot] = row if together else -1
        return sent

    def _fill(self, numbers: list[int], low: bytes, out: NDArray[np.int32]) -> None:
        """Encodes the blocks of these numbers: integers, or counts where the low byte is 0."""
        encoding = self._encoding
        size = wire.BLOCK_ELEMENTS
        encoding.encode(encoding.blocks.reshape(-1, size)[numbers], low, out)
        if encoding.floating and 0 in low:
            for place, number in enumerate(numbers):
                if low[place] == 0:
                    original = encoding.original.reshape(-1, size)[number]
                    out[place] = classes.class_counts(original)

    def _finite_exponent(self, number: int) -> int:
        return int(self._encoding.finite_exponents.reshape(-1)[number])

    def take(self, slot: int, present: int, blocks: NDArray[np.int32]) -> None:
        """Takes the sums of the round that the last `contribute` of this slot was for.

        Args:
            slot: An active slot.
            present: The result's bitmap.
            blocks: (k, 64) int32, the result's blocks.

        Raises:
            AggregatorMisbehaved: If other lanes are present than were agreed on: who named a block
                sends it.
        """
        agreement = self._agreed[slot]
        if present != agreement.present:
            raise AggregatorMisbehaved(
                f"slot {slot}: lanes {present:#06x} are present where "
                f"{agreement.present:#06x} were agreed on"
            )
        encoding = self._encoding
        if agreement.row >= 0:
            result = encoding.result[agreement.row, slot]
            encoding.decode(blocks, agreement.low, result)
            if self._counts:
                for lane in range(self._lanes):
                    self._overlay(slot, lane, agreement.row, result[lane])
            return
        size = wire.BLOCK_ELEMENTS
        result = np.empty((len(agreement.blocks), size), encoding.result.dtype)
        encoding.decode(blocks, agreement.low, result)
        if encoding.floating and (self._counts or 0 in agreement.low):
            row_blocks = self._slots * self._lanes
            for place, number in enumerate(agreement.blocks):
                row, lane = number // row_blocks, number % self._lanes
                if agreement.low[place] == 0:
                    self._counts[slot, lane] = row, blocks[place].copy()
                    result[place] = 0
                self._overlay(slot, lane, row, result[place])
        encoding.result.reshape(-1, size)[agreement.blocks] = result

    def _overlay(self, slot: int, lane: int, row: int, values: NDArray[Any]) -> None:
        counted = self._counts.get((slot, lane))
        if counted is not None and counted[0] == row:
            classes.overlay(counted[1], self._encoding.dtype, values)
