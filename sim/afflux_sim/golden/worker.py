"""The worker as `docs/protocol.md` sections 3, 4, 6 and 9 state it, without timers.

Its driver moves the frames: `frames_to_send` hands over the outgoing ones, `receive` takes those
that arrive, `retransmit` stands for a timer that has run out. That makes it a peer for any engine
with frames at its interface, and leaves loss, duplication and reordering to the driver.
"""

from collections import deque
from collections.abc import Sequence

import numpy as np

from afflux_sim.golden.encoding import Encoding
from afflux_sim.golden.frame_checks import is_to_worker
from afflux_sim.golden.frames import (
    ABSENT,
    ABSENT_WORDS,
    CONFLICT,
    DATA,
    DTYPES,
    EVERYONE,
    JOIN,
    JOINED,
    LANES,
    MISSING,
    PROBE,
    REFUSED,
    RESULT,
    SUM,
    Block,
    Endpoint,
    GroupAddress,
    Packet,
    build_frame,
    is_for,
    look_ahead,
    parse_packet,
    split_look_ahead,
)
from afflux_sim.golden.number_encoding import AgainEncoding, NumberEncoding, encoding_of
from afflux_sim.golden.operation import Operation, SlotProgress, fingerprint
from afflux_sim.golden.reductions import Tensor

__all__ = ["GoldenWorker"]


class GoldenWorker:
    """One worker of a job; it sends a packet in a slot only when the one before is answered.

    Args:
        endpoint: Where this worker is.
        engine: Where the aggregator is.
        job: The job's number, as the aggregator gave it when the job was created.
        key: The job's key, likewise.
        round: r₀, likewise.
        worker: This worker's number.
        workers: N of its job.
        lanes: F.
        slots: S_job.
        rank: This worker's number among all whose contributions are summed (section 8). By default
            that of the job; another one in a tree of aggregators.
        beside: The other ranks of its host, if the worker stands for several.
        ranks: How many there are in all. By default N.
        partial_bits: w of the partial sums of float32 that it sends if it stands for several ranks.
        group: Where the job's results go, if it has a group.

    Attributes:
        rounds: For each slot the round of the outstanding packet, or of the next one.
        joined: N, F, slots, credit, address, port and key (in two halves) of the group or 0, once
            JOINED has come.
        missing: By slot, the workers that the latest MISSING for the outstanding round named.
        error: Why the operation, and with it the job run, has failed.
    """

    def __init__(
        self,
        *,
        endpoint: Endpoint,
        engine: Endpoint,
        job: int,
        key: int,
        round: int,
        worker: int,
        workers: int,
        lanes: int,
        slots: int,
        rank: int | None = None,
        beside: Sequence[int] = (),
        ranks: int | None = None,
        partial_bits: int = 64,
        group: GroupAddress | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.engine = engine
        self.job = job
        self.key = key
        self.worker = worker
        self.workers = workers
        self.lanes = lanes
        self.rank = worker if rank is None else rank
        self.own_ranks = (self.rank, *beside)
        self.ranks = workers if ranks is None else ranks
        self.partial_bits = partial_bits
        self.group = group
        self.rounds = [round] * slots
        self.joined: tuple[int, ...] | None = None
        self.missing: dict[int, list[int]] = {}
        self.error: str | None = None
        self.operation: Operation | None = None
        self._next_number = 0
        self._to_send: list[bytes] = []

    @property
    def endpoints(self) -> list[Endpoint]:
        """Where frames for this worker go: to itself, or to its group."""
        return [self.endpoint] if self.group is None else [self.endpoint, self.group.endpoint]

    @property
    def group_key(self) -> int | None:
        """The key of the group's results, which JOINED tells."""
        return None if self.joined is None else self.joined[6] | self.joined[7] << 32

    def join(self) -> bytes:
        """Return the frame that announces this worker to the aggregator."""
        return self._frame(Packet(type=JOIN, job=self.job, worker=self.worker, key=self.key))

    def start(
        self, tensor: Tensor, dtype: str, reduction: str, beside: Sequence[Tensor] = ()
    ) -> None:
        """Begin the next operation of the job run with this worker's tensor.

        `beside` has those of the other ranks that it stands for.

        Raises:
            ValueError: If the operation before is not over, or has failed.
        """
        encoding = self.encode(tensor, dtype, reduction, beside)
        self.start_share(tensor, dtype, reduction, encoding, (0, 1))

    def encode(
        self, tensor: Tensor, dtype: str, reduction: str, beside: Sequence[Tensor] = ()
    ) -> Encoding:
        """Return a tensor's blocks for an operation, with those of the host's other ranks."""
        assert len(beside) == len(self.own_ranks) - 1
        return encoding_of(
            [each.reshape(-1) for each in (tensor, *beside)],
            dtype=dtype,
            reduction=reduction,
            workers=self.ranks,
            lanes=self.lanes,
            ranks=self.own_ranks,
            partial_bits=self.partial_bits,
        )

    def start_share(
        self,
        tensor: Tensor,
        dtype: str,
        reduction: str,
        encoding: Encoding,
        share: tuple[int, int],
        slots: int | None = None,
    ) -> None:
        """Begin this aggregator's part of an operation on several.

        Args:
            tensor: This worker's tensor, whole.
            dtype: Type of its elements.
            reduction: The reduction to apply.
            encoding: The tensor's blocks, which the parts of an operation share.
            share: Number of this aggregator, and of how many that share the columns.
            slots: The least slot count of their jobs. By default that of the own job.

        Raises:
            ValueError: If the operation before is not over, or has failed.
        """
        if not self.done or self.error:
            raise ValueError(f"operation {self._next_number - 1} is not over: {self.error}")
        packets = -(-encoding.block_count // (share[1] * self.lanes))
        active = max(1, min(slots or len(self.rounds), packets))
        self.missing = {}
        self.operation = Operation(
            self._next_number, reduction, dtype, tensor.shape, encoding, slots=[], share=share
        )
        self._next_number += 1
        for slot in range(active):
            columns = [self._column(slot, lane, active) for lane in range(self.lanes)]
            progress = SlotProgress(columns, agreed=None, frame=b"")
            self.operation.slots.append(progress)
            self._send(slot, self._opening_blocks(slot))

    @property
    def outstanding(self) -> list[int]:
        """Slots whose packet is not yet answered."""
        if self.operation is None or self.error:
            return []
        return [slot for slot, progress in enumerate(self.operation.slots) if not progress.done]

    @property
    def done(self) -> bool:
        """Whether no operation is under way, because it is over in all slots or has failed."""
        return not self.outstanding

    def result(self) -> Tensor:
        """Return the tensor of the operation that is over.

        Raises:
            ValueError: If it has failed, or is not over.
        """
        if self.operation is None or self.error or not self.done:
            raise ValueError(f"no result: {self.error}")
        return self.operation.encoding.tensor().reshape(self.operation.shape)

    def go_on(self) -> bool:
        """Begin to bring again the blocks that were not summed, if there are any."""
        if self.operation is None or self.error or not self.done:
            return False
        encoding, shape = self.operation.encoding, self.operation.shape
        if isinstance(encoding, AgainEncoding):
            encoding.finish()
            encoding = encoding.of
        again = encoding.again(self.own_ranks) if isinstance(encoding, NumberEncoding) else None
        if again is None:
            return False
        self.start_share(np.empty(shape, np.int8), "int32", "again", again, (0, 1))
        return True

    def miss(self) -> None:
        """Pass over an operation of which this aggregator has no part."""
        if not self.done or self.error:
            raise ValueError(f"operation {self._next_number - 1} is not over: {self.error}")
        self.operation = None
        self._next_number += 1

    def frames_to_send(self) -> list[bytes]:
        """Return the frames that the worker has made since the last call, in order."""
        frames, self._to_send = self._to_send, []
        return frames

    def retransmit(self, slot: int, probe: bool = False) -> bytes:
        """Return the outstanding packet of `slot` again, or a PROBE for its round."""
        if slot not in self.outstanding:
            raise ValueError(f"slot {slot} has no outstanding packet")
        assert self.operation is not None
        if not probe:
            return self.operation.slots[slot].frame
        return self._frame(self._packet(PROBE, slot, (0,) * LANES, {}))

    def receive(self, frame: bytes) -> None:
        """Take one whole Ethernet frame; a frame that is not for this worker changes nothing."""
        if not is_to_worker(frame, self.endpoints, self.engine):
            return
        packet = parse_packet(frame)
        if self.group is not None and is_for(self.group.endpoint, frame):
            # All who hear the group know its key: it is good for nothing else.
            to_us = packet.worker == EVERYONE and packet.type in (RESULT, CONFLICT)
            key = self.group_key
        else:
            to_us = packet.worker == self.worker
            key = self.key
        if not to_us or (packet.job, packet.key) != (self.job, key):
            return
        if packet.type == JOINED:
            self.joined = packet.words[:8]
        elif packet.type == REFUSED:
            self.error = f"join refused, cause {packet.words[0]}"
        elif self._answers_outstanding(packet):
            if packet.type == MISSING:
                self._receive_missing(packet)
            elif packet.type == CONFLICT:
                self.error = "the workers' operations conflict"
            elif packet.type == RESULT:
                self._receive_result(packet)

    def _answers_outstanding(self, packet: Packet) -> bool:
        return (
            self.operation is not None
            and packet.slot in self.outstanding
            and packet.round == self.rounds[packet.slot]
            and packet.operation == self.operation.number % 2**16
        )

    def _receive_missing(self, packet: Packet) -> None:
        seen = packet.words[0] | packet.words[1] << 32
        missing = [w for w in range(self.workers) if not seen >> w & 1]
        self.missing[packet.slot] = missing
        # Nobody is missing where the aggregator waits for its parent.
        if self.worker in missing or not missing:
            self._to_send.append(self.retransmit(packet.slot))

    def _receive_result(self, packet: Packet) -> None:
        assert self.operation is not None
        slot = packet.slot
        progress = self.operation.slots[slot]
        if progress.agreed is None:
            self._take_opening(packet)
        else:
            for lane, block in packet.blocks.items():
                row, exponent = split_look_ahead(progress.agreed[lane])
                self.operation.encoding.store(self._block(row, slot, lane), exponent, block)
        if self.error:
            return
        self.rounds[slot] = (self.rounds[slot] + 1) % 2**32
        self.missing.pop(slot, None)
        progress.agreed = packet.words
        progress.done = packet.words == ABSENT_WORDS
        if not progress.done:
            self._send(slot, self._agreed_blocks(slot))

    def _take_opening(self, packet: Packet) -> None:
        """Compare the fingerprints and store the blocks of a direct operation."""
        assert self.operation is not None
        if packet.slot != 0:
            return
        expected = self._fingerprint()[self.rank]
        if 0 not in packet.blocks or (packet.blocks[0][: self.ranks] != expected).any():
            self.error = "the workers' fingerprints differ"
            return
        for lane, block in packet.blocks.items():
            if lane > 0:
                self.operation.encoding.store(lane - 1, 0, block)

    def _block(self, row: int, slot: int, lane: int) -> int:
        """Return the number of the block at a row, slot and lane."""
        assert self.operation is not None
        active = len(self.operation.slots)
        own, sharing = self.operation.share
        return ((row * sharing + own) * active + slot) * self.lanes + lane

    def _column(self, slot: int, lane: int, active: int) -> deque[int]:
        """Return the look-ahead words of one column's blocks, top to bottom."""
        assert self.operation is not None
        encoding = self.operation.encoding
        if encoding.direct:
            return deque()
        own, sharing = self.operation.share
        first = (own * active + slot) * self.lanes + lane
        blocks = range(first, encoding.block_count, sharing * active * self.lanes)
        return deque(
            look_ahead(row, exponent)
            for row, block in enumerate(blocks)
            if (exponent := encoding.exponent(block)) is not None
        )

    def _fingerprint(self) -> Block:
        operation = self.operation
        assert operation is not None
        block = fingerprint(
            operation.number,
            operation.reduction,
            operation.dtype,
            operation.encoding.shape
            if isinstance(operation.encoding, AgainEncoding)
            else operation.shape,
            rank=self.rank,
        )
        block[list(self.own_ranks)] = block[self.rank]
        return block

    def _opening_blocks(self, slot: int) -> dict[int, Block]:
        assert self.operation is not None
        if slot != 0:
            return {}
        encoding = self.operation.encoding
        blocks = {0: self._fingerprint()}
        if encoding.direct:
            for block in range(encoding.block_count):
                blocks[1 + block] = encoding.encode(block, 0)
        return blocks

    def _agreed_blocks(self, slot: int) -> dict[int, Block]:
        """Return the blocks for the rows last agreed on."""
        assert self.operation is not None
        progress = self.operation.slots[slot]
        assert progress.agreed is not None
        blocks = {}
        for lane, column in enumerate(progress.columns):
            if not column:
                continue
            row, exponent = split_look_ahead(progress.agreed[lane])
            own_row, _ = split_look_ahead(column[0])
            if own_row == row:
                blocks[lane] = self.operation.encoding.encode(
                    self._block(row, slot, lane), exponent
                )
                column.popleft()
        return blocks

    def _send(self, slot: int, blocks: dict[int, Block]) -> None:
        """Make the packet of the slot's round outstanding."""
        assert self.operation is not None
        progress = self.operation.slots[slot]
        words = [column[0] if column else ABSENT for column in progress.columns]
        words += [ABSENT] * (LANES - self.lanes)
        progress.frame = self._frame(self._packet(DATA, slot, tuple(words), blocks))
        self._to_send.append(progress.frame)

    def _packet(
        self, type_: int, slot: int, words: tuple[int, ...], blocks: dict[int, Block]
    ) -> Packet:
        assert self.operation is not None
        opening = self.operation.slots[slot].agreed is None
        partial_dtype = None if opening else self.operation.encoding.partial_dtype
        return Packet(
            type=type_,
            # Opening rounds are sums of words.
            opcode=SUM if opening else self.operation.encoding.opcode,
            dtype=DTYPES[self.operation.dtype] if partial_dtype is None else partial_dtype,
            job=self.job,
            worker=self.worker,
            slot=slot,
            round=self.rounds[slot],
            key=self.key,
            operation=self.operation.number % 2**16,
            words=words,
            blocks=blocks,
        )

    def _frame(self, packet: Packet) -> bytes:
        return build_frame(self.endpoint, self.engine, packet)
