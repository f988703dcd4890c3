"""One stream for each host: ranks whose tensors are in packets as one worker's.

The ranks of a host put their elements into memory that they share. The *leader*, the least of them,
has the host's only worker, which sends what all of them would have sent: the bits are those of a
job of all ranks (`drivers/native/worker/host_ranks.hpp`). The leader's own tensor is summed where
it lies; as results come they also go into the memory, for the others (`drivers/native/worker/
mirror.hpp`). Blocks of zeros are neither put in nor handed out: there is a byte for each block that
says what is there.

With rounding="host" the leader first reduces what its host has, rounds it, and sends it as its own:
the bits are those of two steps, and packets have numbers in place of partial sums. Of an average
2**-k is taken off before the host rounds, and every rank divides what comes back.

A tensor is taken in pieces, so that a rank's memory is bounded. While the network carries one
piece, the others put in the next one, and take out the last.

    leader                            others
                                      put in piece 0
    ──────────────────── all have come: phase 0 ────────────────────
    sum piece 0, hand it out          put in piece 1
    ─────────────── phase 1: piece 0 is out, piece 1 in ────────────
    sum piece 1, hand it out          take out piece 0, put in piece 2
    ───────────────────────────── … ────────────────────────────────
"""

import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from afflux.group.reducers.host_journal import HostJournal
from afflux_drivers import _native
from afflux_drivers.collective import Description, Reduction
from afflux_drivers.collectives.call import GroupCall
from afflux_drivers.errors import AffluxError, AggregatorUnreachable, Interrupted
from afflux_drivers.shared.worker import SharedWorker
from afflux_drivers.worker.operation import HostPiece
from afflux_drivers.worker.statistics import WorkerStatistics
from afflux_drivers.worker.worker import Worker
from afflux_hdl.contract import wire

__all__ = ["PIECE_BYTES", "HostWorker", "pieces"]

PIECE_BYTES = 16 << 20
"""The same at all hosts. Between two pieces the network waits for some round trips, and where most
blocks are zeros also for slots that by chance have more rounds than others. Pieces of 4 MiB, which
the others could put in sooner, cost more by that than they saved."""

_SMALL_BYTES = wire.LANES_MAX * wire.BLOCK_BYTES
"""Pieces of so many bytes may travel with the opening round, which takes whole ones."""

_PAGE = 4096

_GRACE_S = 1.0
"""The leader knows best what is wrong with the network: the others give it time to say so."""

Interruption = Callable[[], str | None]


def pieces(count: int, itemsize: int) -> list[tuple[int, int]]:
    """Return where each piece of so many elements begins and ends.

    All but the last one are whole blocks.
    """
    each = PIECE_BYTES // itemsize
    cuts = [*range(0, count, each), count] if count else [0, 0]
    return list(itertools.pairwise(cuts))


def _blocks(elements: NDArray[Any]) -> int:
    return -(-elements.nbytes // wire.BLOCK_BYTES)


def _half_bytes() -> int:
    """Return what a rank has for a piece: its elements, then a byte for each block."""
    return PIECE_BYTES + -(-PIECE_BYTES // wire.BLOCK_BYTES // _PAGE) * _PAGE


class _Buffers:
    """Where the pieces of a host's ranks lie in the memory that they share: each has two halves.

    Args:
        slices: The ranks' parts of the memory; none if the rank is alone.
        own: Which of them is this rank's.
    """

    def __init__(self, slices: Sequence[NDArray[Any]], own: int) -> None:
        self._slices = slices
        self.own = own
        self.others = range(1, len(slices))

    def half(self, index: int, n: int, like: NDArray[Any]) -> NDArray[Any]:
        """Return where piece n of a rank of the host is, in whole blocks."""
        start = n % 2 * _half_bytes()
        length = _blocks(like) * wire.BLOCK_BYTES
        found = self._slices[index][start : start + length].view(like.dtype)
        return found

    def marks(self, index: int, n: int, like: NDArray[Any]) -> NDArray[np.uint8]:
        """Return a byte for each block of the same: of the leader's, whether it is there.

        Of another rank's, what `_native.scan_into` finds.
        """
        start = n % 2 * _half_bytes() + PIECE_BYTES
        return self._slices[index][start : start + _blocks(like)]

    def take_out(self, n: int, part: NDArray[Any]) -> None:
        """Write the leader's piece n to where a rank's own is."""
        half = self.half(0, n, part)[: len(part)]
        if part.nbytes <= _SMALL_BYTES:
            np.copyto(part, half)
        else:
            _native.copy_marked(half, self.marks(0, n, part), part)


class HostWorker:
    """A rank's part in the worker of its host: does what a `Worker` does, for all of them.

    Args:
        rank: Own rank.
        ranks: Those of the host, the leader first.
        shared: Their memory; None if the rank is alone.
        worker: The host's, at the leader.
        rounds_for: Ranks of the group, if each host reduces its ranks' elements and rounds, and its
            worker sends only what that gives; None if the sums are to be exact.
        journal: Learns what comes of the calls, for ranks that go on when the aggregators end; None
            if these do not. The sums are exact then.
    """

    def __init__(
        self,
        rank: int,
        ranks: Sequence[int],
        shared: SharedWorker | None,
        worker: Worker | None,
        rounds_for: int | None = None,
        journal: HostJournal | None = None,
    ) -> None:
        self.rank = rank
        self._goes_on = journal is not None
        self._journal = journal or HostJournal(None)
        self._rounds_for = rounds_for
        self._leads = rank == ranks[0]
        self._shared = shared
        self._worker = worker
        slices = [] if shared is None else shared.allocate_all(2 * _half_bytes())
        self._buffers = _Buffers(slices, list(ranks).index(rank))
        self._operations_over = 0

    @property
    def statistics(self) -> WorkerStatistics:
        """The counts so far; the packets are the leader's."""
        found = self._worker.statistics if self._worker is not None else WorkerStatistics()
        found.operations = self._operations_over
        return found

    def all_reduce(
        self,
        elements: NDArray[Any],
        dtype: wire.Dtype,
        reduction: Reduction,
        shape: tuple[int, ...],
        timeout_s: float,
        interrupted: Interruption = lambda: None,
        *,
        in_place: bool = False,
    ) -> NDArray[Any]:
        """Reduce a tensor over all ranks of the group; see `Worker.all_reduce`."""
        result = elements if in_place else elements.copy()
        of_host = self._shared, self._worker, self._buffers, self._rounds_for, self._journal
        operation = _Operation(*of_host, dtype, reduction, shape, timeout_s, interrupted)
        parts = [result[a:b] for a, b in pieces(len(result), result.itemsize)]
        self._journal.begin(result, parts)
        try:
            (operation.lead if self._leads else operation.follow)(parts)
        except BaseException as error:
            if not self._goes_on or not isinstance(error, AggregatorUnreachable):
                self.fail(str(error) or type(error).__name__)
            if isinstance(error, AffluxError):
                # Not that of a piece.
                about = Description(self._operations_over, reduction, dtype, shape)
                error.operation = about.text
            raise
        self._end()
        return result

    def fence(self) -> None:
        """Take nothing more of the aggregators, and leave to the host's others what has come.

        After a call that they have ended. For the leader.
        """
        journal, worker = self._journal, self._worker
        assert worker is not None
        worker.close()
        if journal.running and journal.done == len(journal.parts):
            self._end()
        # The others may still take out what is there before a piece begins.
        elif journal.begun and self._shared is not None:
            n, part = journal.done, journal.parts[journal.done]
            marks = self._buffers.marks(0, n, part)
            marks[:] = journal.here
            _native.copy_marked(part, marks, self._buffers.half(0, n, part)[: len(part)])

    def take_out(self, over: int, running: bool, begun: bool, done: int) -> None:
        """Take what the leader has left, of the call that is running here. For the others.

        Args:
            over: Calls that the leader has ended.
            running: Whether the next one is running there.
            begun: Whether it has summed something of the piece behind those that are done.
            done: So many pieces are whole.
        """
        journal = self._journal
        if not journal.running:
            return
        if over > journal.over:
            done = len(journal.parts)
        elif not running:
            return
        while journal.done < done:
            self._buffers.take_out(journal.done, journal.parts[journal.done])
            journal.take_piece()
        if done == len(journal.parts):
            self._end()
        elif begun:
            n, part = done, journal.parts[done]
            marks = self._buffers.marks(0, n, part)
            _native.copy_marked(self._buffers.half(0, n, part)[: len(part)], marks, part)
            journal.take(marks)

    def _end(self) -> None:
        self._operations_over += 1
        self._journal.end()

    def fail(self, reason: str) -> None:
        """Let the other ranks of the host know that operations will not end. Any thread."""
        if self._shared is not None:
            self._shared.fail(reason)

    def close(self) -> None:
        """Close the sockets, and leave the memory. May be called more than once."""
        if self._worker is not None:
            self._worker.close()
        self._buffers = _Buffers([], 0)
        if self._shared is not None:
            self._shared.close()


class _Operation:
    """One all-reduce of this host's ranks."""

    def __init__(
        self,
        shared: SharedWorker | None,
        worker: Worker | None,
        buffers: _Buffers,
        rounds_for: int | None,
        journal: HostJournal,
        dtype: wire.Dtype,
        reduction: Reduction,
        shape: tuple[int, ...],
        timeout_s: float,
        interrupted: Interruption,
    ) -> None:
        self._shared = shared
        self._worker = worker
        self._buffers = buffers
        self._dtype = dtype
        self._reduction = reduction
        self._shape = shape
        self._call = GroupCall.barrier(GroupCall.of(dtype, reduction, shape).name)
        self._timeout_s = timeout_s
        self._interrupted = interrupted
        self._started_s = time.monotonic()
        self._rounds_for = rounds_for
        self._journal = journal
        self._averages = reduction is Reduction.AVG
        self._skips_zeros = reduction.opcode == wire.Opcode.SUM

    def lead(self, parts: Sequence[NDArray[Any]]) -> None:
        """Sum each piece of the tensor, with those of the others, and hand it out."""
        buffers = self._buffers
        self._pass_phase()
        for n, part in enumerate(parts):
            exponents, mirror = [], None
            if self._shared is not None and part.nbytes > _SMALL_BYTES:
                mirror = buffers.half(0, n, part)[: len(part)], buffers.marks(0, n, part)
                mirror[1].fill(0)
                if self._skips_zeros:
                    exponents = [buffers.marks(index, n, part) for index in buffers.others]
            others = [buffers.half(index, n, part)[: len(part)] for index in buffers.others]
            self._journal.begun = True
            self._sum(
                part, self._rounded(part, HostPiece(others, exponents, mirror, len(parts) > 1))
            )
            if self._shared is not None and mirror is None:
                np.copyto(buffers.half(0, n, part)[: len(part)], part)
            self._divide(part)
            self._journal.take_piece()
            self._pass_phase()

    def follow(self, parts: Sequence[NDArray[Any]]) -> None:
        """Give the leader each piece of the tensor, and take its sum."""
        self._put(parts, 0)
        # A rank that does not come here has not called: the leader knows no more of it.
        self._pass_phase()
        self._put(parts, 1)
        for n, part in enumerate(parts):
            self._pass_phase(_GRACE_S)
            # Before the next one goes in: that is awaited by all hosts. Blocks that no rank has are
            # zeros here already; but a host's sum may be zero.
            if self._rounds_for is not None:
                part.fill(0)
            self._buffers.take_out(n, part)
            self._divide(part)
            self._journal.take_piece()
            self._put(parts, n + 2)

    def _put(self, parts: Sequence[NDArray[Any]], n: int) -> None:
        if n >= len(parts):
            return
        buffers, part = self._buffers, parts[n]
        half = buffers.half(buffers.own, n, part)
        if part.nbytes > _SMALL_BYTES and self._skips_zeros:
            marks = buffers.marks(buffers.own, n, part)
            _native.scan_into(int(self._dtype), part, half, marks)
        else:
            np.copyto(half[: len(part)], part)

    def _rounded(self, part: NDArray[Any], piece: HostPiece) -> HostPiece:
        """Make a piece of the leader's the host's, if hosts round; return what else goes along."""
        if self._rounds_for is None:
            return piece
        scale = _native.average_scale(self._rounds_for) if self._averages else 0
        of_call = int(self._dtype), self._reduction.number, scale
        _native.reduce_host(*of_call, part, list(piece.others), list(piece.exponents))
        return HostPiece((), (), piece.mirror, piece.partial, self._reduction)

    def _divide(self, part: NDArray[Any]) -> None:
        """Make scaled sums averages, which hosts that round have left undone."""
        if self._rounds_for is not None and self._averages:
            _native.divide_sums(int(self._dtype), self._rounds_for, part)

    def _pass_phase(self, grace_s: float = 0.0) -> None:
        """Wait until all ranks of the host have come here."""
        if self._shared is not None:
            waited_s = time.monotonic() - self._started_s - grace_s
            of_call = self._call, self._timeout_s, self._interrupted
            self._shared.run((), (), *of_call, waited_s=waited_s)

    def _sum(self, part: NDArray[Any], piece: HostPiece) -> None:
        shared, worker = self._shared, self._worker
        assert worker is not None
        found: AffluxError | None = None

        def watching() -> str | None:
            nonlocal found
            if shared is not None:
                found = shared.trouble()
            return self._interrupted() or (str(found) if found is not None else None)

        try:
            worker.all_reduce(
                part,
                self._dtype,
                Reduction.SUM if piece.called is Reduction.AVG else self._reduction,
                self._shape,
                self._timeout_s,
                watching,
                in_place=True,
                host=piece,
                waited_s=time.monotonic() - self._started_s,
            )
        except Interrupted:
            if found is not None:
                raise found from None
            raise
