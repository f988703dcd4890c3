"""One collective at one worker, as a machine of packets and time (section 6 of the protocol).

It is fed with packets and the time, and gives packets to send and the time of its next timer. It
knows neither sockets nor clocks, so tests can play any schedule of loss, duplication and delay.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from afflux_drivers import floats
from afflux_drivers.columns import Columns
from afflux_drivers.direct import Direct, is_direct
from afflux_drivers.encodings import encoding_of
from afflux_drivers.errors import AggregatorMisbehaved, Disagreement
from afflux_drivers.fingerprint import Description
from afflux_drivers.grid import Grid
from afflux_drivers.packets import ALL_ABSENT, HEADER, PacketBuffer, datagram_bytes
from afflux_drivers.reduction import Reduction
from afflux_drivers.session import Session
from afflux_drivers.slot import Slot
from afflux_hdl import wire

__all__ = ["Operation"]

_VERSION = wire.VERSION << 4
_DATA = _VERSION | wire.Type.DATA
_RESULT = _VERSION | wire.Type.RESULT
_CONFLICT = _VERSION | wire.Type.CONFLICT
_MISSING = _VERSION | wire.Type.MISSING
_WORDS = slice(wire.HEADER_BYTES, wire.UDP_PAYLOAD_MIN)


class Operation:
    """One all-reduce of one tensor.

    Args:
        session: The job run; the operation takes its next number.
        elements: 1-D, contiguous, in the storage dtype of `dtype`.
        dtype: Their type.
        reduction: What is done.
        shape: Shape of the tensor, for the ranks to compare.

    Attributes:
        description: What was asked for.
        next_timer: When `expire` is due, in seconds; infinite if nothing is outstanding.
        done: Whether the result is complete.

    Raises:
        ValueError: If elements, dtype, reduction and shape do not fit one another.
    """

    def __init__(
        self,
        session: Session,
        elements: NDArray[Any],
        dtype: wire.Dtype,
        reduction: Reduction,
        shape: tuple[int, ...],
    ) -> None:
        _check(elements, dtype, reduction, shape)
        ticket = session.ticket
        self._session = session
        self._statistics = session.statistics
        self._job, self._worker, self._key = ticket.job, session.worker, ticket.key
        self._to_everyone = wire.EVERYONE if ticket.group else session.worker
        self._everyone = (1 << ticket.workers) - 1
        self._rank, self._ranks, self._lanes = session.rank, ticket.size, ticket.lanes
        self._count = len(elements)
        self.description = Description(session.number, reduction, dtype, shape)
        self._number = session.number & 0xFFFF
        self._opcode_dtype = reduction.opcode << 4 | dtype
        self._fingerprint = self.description.fingerprint
        self._direct: Direct | None = None
        self._columns: Columns | None = None
        self._active: list[Slot]
        if is_direct(self._count, self._lanes, dtype, reduction):
            self._direct = Direct(elements, dtype, reduction, self._ranks)
            self._active = session.slots[:1]
        else:
            grid = Grid(self._count, self._lanes, ticket.slots)
            self._encoding = encoding_of(elements, grid, dtype, reduction, self._ranks)
            self._columns = Columns(grid, self._encoding)
            self._active = session.slots[: grid.slots]
        self._open_slots = len(self._active)
        self.next_timer = float("inf")
        self.done = False

    def open(self, now: float) -> Iterator[memoryview]:
        """The opening packets of all active slots, each to be sent before the next is asked for."""
        for slot in self._active:
            packet = slot.packet
            present = 0
            if self._columns is None:
                packet.words.fill(wire.ABSENT)
            else:
                packet.words[: self._lanes] = self._columns.opening_words(slot.number)
            if slot.number == 0:
                self.description.fill_block(self._rank, packet.blocks[0])
                present = 1
                if self._direct is not None:
                    direct = self._direct
                    packet.blocks[1 : 1 + len(direct.blocks)] = direct.blocks
                    present |= direct.present
            yield self._send(slot, present, True, now)

    def receive(self, packet: PacketBuffer, length: int, now: float) -> memoryview | None:
        """Takes a datagram that came from the aggregator's address.

        Args:
            packet: Holds the datagram.
            length: Its bytes.
            now: Seconds.

        Returns:
            A datagram to send before anything else is asked of the operation, or None.

        Raises:
            Disagreement: If the ranks called different operations.
            AggregatorMisbehaved: If the result breaks the protocol.
        """
        if length < wire.UDP_PAYLOAD_MIN:
            self._statistics.ignored += 1
            return None
        datagram = packet.datagram
        version_type, opcode_dtype, job, worker, number, present, round_, key, operation = (
            HEADER.unpack_from(datagram)
        )
        blocks = present.bit_count()
        if (
            key != self._key
            or job != self._job
            or (worker != self._worker and worker != self._to_everyone)
            or length != wire.UDP_PAYLOAD_MIN + blocks * wire.BLOCK_BYTES
        ):
            self._statistics.ignored += 1
            return None
        self._session.heard_at = now
        if operation != self._number or number >= len(self._active):
            self._statistics.ignored += 1
            return None
        slot = self._active[number]
        if round_ != slot.round or not slot.outstanding:
            self._statistics.ignored += 1
            return None
        if version_type == _RESULT and opcode_dtype == self._opcode_dtype:
            return self._result(slot, present, packet, packet.blocks[:blocks], now)
        if version_type == _CONFLICT:
            raise self._disagreement(None)
        if version_type == _MISSING and blocks == 0 and worker == self._worker:
            return self._missing(slot, packet.words, now)
        self._statistics.ignored += 1
        return None

    def expire(self, now: float) -> Iterator[memoryview]:
        """Datagrams for the timers that have run out, each to be sent before the next is asked for.

        To be called when `now` has reached `next_timer`; moves `next_timer` on.
        """
        trip = self._session.trip
        next_timer = float("inf")
        for slot in self._active:
            if not slot.outstanding:
                continue
            if slot.deadline <= now:
                if slot.tries == 0:
                    trip.expired(slot.sent_at, now)
                if slot.expired(now, trip.cap_s):
                    self._statistics.probes += 1
                    yield self._session.probe_packet(slot, self._opcode_dtype)
                else:
                    self._statistics.retransmissions += 1
                    yield slot.again()
            next_timer = min(next_timer, slot.deadline)
        self.next_timer = next_timer

    def result(self) -> NDArray[Any]:
        """The reduced elements, 1-D, in storage dtype, once `done`."""
        if not self.done:
            raise RuntimeError(f"operation {self.description.text} is not over")
        if self._direct is not None:
            return self._direct.finish()
        return self._encoding.finish(self._count)

    def missing_ranks(self) -> tuple[int, ...]:
        """Ranks whose contributions lack, as the aggregator last said; ascending."""
        bits = 0
        for slot in self._active:
            if slot.outstanding:
                bits |= slot.missing
        ticket = self._session.ticket
        workers = (worker for worker in range(ticket.workers) if bits >> worker & 1)
        return tuple(sorted(map(ticket.rank_of, workers)))

    def waits_above(self) -> bool:
        """Whether the aggregator last said, of some slot, that it waits for its parent."""
        return any(slot.outstanding and slot.waits_above for slot in self._active)

    def _send(self, slot: Slot, present: int, opening: bool, now: float) -> memoryview:
        HEADER.pack_into(
            slot.packet.datagram,
            0,
            _DATA,
            self._opcode_dtype,
            self._job,
            self._worker,
            slot.number,
            present,
            slot.round,
            self._key,
            self._number,
        )
        blocks = present.bit_count()
        self._statistics.blocks_sent += blocks
        wait_s = self._session.trip.timeout_s
        if opening:
            # The other ranks may be later to call, so patience costs less than it saves.
            wait_s = min(2 * wait_s, self._session.trip.cap_s)
        datagram = slot.sent(datagram_bytes(blocks), opening, now, wait_s)
        # The time-out may have shrunk, so this timer need not be the last.
        self.next_timer = min(self.next_timer, slot.deadline)
        return datagram

    def _result(
        self,
        slot: Slot,
        present: int,
        packet: PacketBuffer,
        blocks: NDArray[np.int32],
        now: float,
    ) -> memoryview | None:
        self._statistics.rounds += 1
        if not slot.opening:
            # An opening round's answer waits for the other ranks to call the operation at all.
            if not slot.repeated:
                self._session.trip.sample(slot.sent_at, now)
            assert self._columns is not None
            self._columns.take(slot.number, present, blocks)
        elif slot.number == 0:
            self._check_fingerprints(present, blocks)
            if self._direct is not None:
                if present != self._direct.present | 1:
                    raise AggregatorMisbehaved(
                        f"operation {self.description.text}: lanes {present:#06x} are present in "
                        f"the result, {self._direct.present | 1:#06x} were sent"
                    )
                self._direct.take(blocks[1:])
        elif present:
            raise AggregatorMisbehaved(
                f"operation {self.description.text}: blocks {present:#06x} in the opening round "
                f"of slot {slot.number}"
            )
        slot.outstanding = False
        slot.round = (slot.round + 1) & 0xFFFF_FFFF
        words = packet.datagram[_WORDS]
        if words == ALL_ABSENT:
            self._open_slots -= 1
            if self._open_slots == 0:
                self._session.number += 1
                self.next_timer = float("inf")
                self.done = True
            return None
        if self._columns is None or words[4 * self._lanes :] != ALL_ABSENT[4 * self._lanes :]:
            raise AggregatorMisbehaved(
                f"operation {self.description.text}, slot {slot.number}: the result names blocks "
                f"in lanes that are not in use: {words.hex(' ', 4)}"
            )
        sent = self._columns.contribute(slot.number, packet.words[: self._lanes], slot.packet)
        return self._send(slot, sent, False, now)

    def _missing(self, slot: Slot, words: NDArray[np.uint32], now: float) -> memoryview | None:
        if slot.probes_open == 1:
            # One probe, one answer: a round trip that waits for no other rank.
            self._session.trip.sample(slot.probed_at, now)
        seen = int(words[0]) | int(words[1]) << 32
        shortest_s = self._session.trip.timeout_s
        if not seen >> self._worker & 1:
            # The contribution was lost; who else is missing is not this rank's to judge yet.
            self._statistics.retransmissions += 1
            slot.answered(now, shortest_s)
            self.next_timer = min(self.next_timer, slot.deadline)
            return slot.again()
        slot.missing = ~seen & self._everyone
        slot.waits_above = not slot.missing
        # The aggregator is there, and others are late: ask ever more seldom, but not so seldom that
        # the loss of the result itself would cost much more than the wait had.
        slot.answered(now, min(max(shortest_s, (now - slot.sent_at) / 2), self._session.trip.cap_s))
        self.next_timer = min(self.next_timer, slot.deadline)
        if slot.waits_above:
            # A contribution that is there already makes the aggregator send its partial sum again.
            self._statistics.retransmissions += 1
            return slot.again()
        return None

    def _check_fingerprints(self, present: int, blocks: NDArray[np.int32]) -> None:
        if not present & 1:
            raise AggregatorMisbehaved(
                f"operation {self.description.text}: the opening result lacks the fingerprints"
            )
        found = blocks[0].view(np.uint32)[: self._ranks]
        if (found != self._fingerprint).any():
            raise self._disagreement(tuple(found.tolist()))
        if self._direct is None and present != 1:
            raise AggregatorMisbehaved(
                f"operation {self.description.text}: blocks {present:#06x} in an opening round"
            )

    def _disagreement(self, fingerprints: tuple[int, ...] | None) -> Disagreement:
        own = self._fingerprint
        if fingerprints is None:
            others = "another opcode, dtype or operation number came from some rank"
        else:
            ranks = [rank for rank, value in enumerate(fingerprints) if value != own]
            others = f"ranks {ranks} called something else"
        return Disagreement(
            f"the ranks disagree: rank {self._rank} called operation {self.description.text}; "
            f"{others} (aggregator {self._session.ticket.host}:{self._session.ticket.port})",
            number=self.description.number,
            description=self.description.text,
            fingerprint=own,
            fingerprints=fingerprints,
        )


def _check(
    elements: NDArray[Any], dtype: wire.Dtype, reduction: Reduction, shape: tuple[int, ...]
) -> None:
    expected = floats.storage_dtype(dtype)
    if elements.ndim != 1 or elements.dtype != expected or not elements.flags.c_contiguous:
        raise ValueError(
            f"{dtype.name.lower()} elements are a contiguous 1-D array of {expected}, "
            f"not {elements.ndim}-D of {elements.dtype}"
        )
    size = 1
    for length in shape:
        if length < 0:
            raise ValueError(f"shape {shape} has a negative size")
        size *= length
    if size != len(elements):
        raise ValueError(f"shape {shape} has {size} elements, {len(elements)} were given")
    if dtype is wire.Dtype.INT32 and reduction is Reduction.AVG:
        raise ValueError("the average of int32 is not defined; reduce with sum and divide")
