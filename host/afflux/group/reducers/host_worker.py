"""One stream for each host: ranks whose tensors are in packets as one worker's.

The ranks of a host put their elements into memory that they share. The *leader*, the least of them,
has the host's only worker, which sends what all of them would have sent: the bits are those of a
job of all ranks (`drivers/native/worker/beside.hpp`). The leader's own tensor is summed where it
lies; as results come they also go into the memory, for the others (`drivers/native/worker/
mirror.hpp`). Blocks of zeros are neither put in nor handed out: there is a byte for each block that
says what is there.

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
from collections.abc import Callable, Iterator, Sequence
from enum import Enum, auto
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from afflux_drivers import _native
from afflux_drivers.collective import Description, Reduction
from afflux_drivers.errors import AffluxError, Interrupted
from afflux_drivers.shared.call import SharedCall
from afflux_drivers.shared.worker import SharedWorker
from afflux_drivers.worker.statistics import WorkerStatistics
from afflux_drivers.worker.worker import Worker
from afflux_hdl.contract import wire

__all__ = ["PIECE_BYTES", "HostWorker", "pieces"]

PIECE_BYTES = 16 << 20
"""The same at all hosts. Between two pieces the network waits for some round trips, and where most
blocks are zeros also for slots that by chance have more rounds than others. Pieces of 4 MiB, which
the others could put in sooner, cost more by that than they saved."""

_SPARE_BYTES = 4096
"""The last piece may be longer than the others by what must not be a piece of its own."""

_SMALL = wire.LANES_MAX * wire.BLOCK_ELEMENTS
"""Pieces of so many elements may be exact or direct, which takes whole ones."""

_LEAST_BLOCK_BYTES = 2 * wire.BLOCK_ELEMENTS
_PAGE = 4096

_GRACE_S = 1.0
"""The leader knows best what is wrong with the network: the others give it time to say so."""

Interruption = Callable[[], str | None]


def pieces(count: int, itemsize: int) -> list[tuple[int, int]]:
    """Return where each piece of so many elements begins and ends.

    Pieces are whole blocks, and none is so short that it alone would be summed in exact mode: the
    bits are those of the whole.
    """
    each = PIECE_BYTES // itemsize
    cuts = [*range(0, count, each), count] if count else [0, 0]
    if len(cuts) > 2 and cuts[-1] - cuts[-2] <= wire.EXACT_ELEMENTS:
        del cuts[-2]
    return list(itertools.pairwise(cuts))


def _blocks(elements: NDArray[Any]) -> int:
    return -(-len(elements) // wire.BLOCK_ELEMENTS)


def _half_bytes() -> int:
    """Return what a rank has for a piece: its elements, then a byte for each block."""
    elements = PIECE_BYTES + _SPARE_BYTES
    return elements + -(-elements // _LEAST_BLOCK_BYTES // _PAGE) * _PAGE


class _Kind(Enum):
    CALL = auto()
    PHASE = auto()
    SUM = auto()


class _Step(NamedTuple):
    kind: _Kind
    number: int = 0
    function: Callable[..., object] | None = None
    arguments: tuple[Any, ...] = ()


class _Sum(NamedTuple):
    """What the leader's worker is asked for, for each piece."""

    elements: NDArray[Any]
    others: list[NDArray[Any]]
    exponents: list[NDArray[np.uint8]]
    mirror: tuple[NDArray[Any], NDArray[np.uint8]] | None


class _Operation:
    """An all-reduce of this host's ranks as steps, of which each may be repeated.

    Attributes:
        step: The next step.
    """

    def __init__(
        self,
        dtype: wire.Dtype,
        reduction: Reduction,
        shape: tuple[int, ...],
        timeout_s: float,
        whole: bool,
    ) -> None:
        self.dtype = dtype
        self.reduction = reduction
        self.shape = shape
        self.call = SharedCall.of(dtype, reduction, shape)
        self.timeout_s = timeout_s
        self.started = time.monotonic()
        self.whole = whole
        self.steps: list[_Step] = []
        self.sums: dict[int, _Sum] = {}
        self.step = 0

    @property
    def skips_zeros(self) -> bool:
        return self.reduction.opcode == wire.Opcode.SUM

    @property
    def over(self) -> bool:
        return self.step >= len(self.steps)

    @property
    def waited_s(self) -> float:
        return time.monotonic() - self.started


class HostWorker:
    """A rank's part in the worker of its host: does what a `Worker` does, for all of them.

    Args:
        rank: Own rank.
        ranks: Those of the host, the leader first.
        shared: Their memory; None if the rank is alone.
        worker: The host's, at the leader.
    """

    def __init__(
        self,
        rank: int,
        ranks: Sequence[int],
        shared: SharedWorker | None,
        worker: Worker | None,
    ) -> None:
        self.rank = rank
        self._leads = rank == ranks[0]
        self._shared = shared
        self._worker = worker
        self._slices: list[NDArray[Any]] = []
        if shared is not None:
            self._slices = shared.allocate_all(2 * _half_bytes())
        self._own = list(ranks).index(rank)
        self._phases_past = 0
        self._operation: _Operation | None = None
        self._operations_over = 0

    @property
    def statistics(self) -> WorkerStatistics:
        """What has been done so far; the packets are the leader's."""
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
        operation = self._planned(result, dtype, reduction, shape, timeout_s)
        self._operation = operation
        try:
            self._drive(operation, interrupted)
        except AffluxError as error:
            error.operation = Description(
                self._operations_over, reduction, dtype, shape
            ).text  # Not that of a piece.
            raise
        self._operation = None
        self._operations_over += 1
        return result

    def complete(self, timeout_s: float, interrupted: Interruption = lambda: None) -> None:
        """Bring the operation in progress, if there is one, to its end; see `Worker.complete`."""
        if self._operation is not None:
            self._drive(self._operation, interrupted)

    def fail(self, reason: str) -> None:
        """Let the other ranks of the host know that operations will not end. Any thread."""
        if self._shared is not None:
            self._shared.fail(reason)

    def close(self) -> None:
        """Close the sockets, and leave the memory. May be called more than once."""
        if self._worker is not None:
            self._worker.close()
        self._slices = []
        if self._shared is not None:
            self._shared.close()

    def _planned(
        self,
        elements: NDArray[Any],
        dtype: wire.Dtype,
        reduction: Reduction,
        shape: tuple[int, ...],
        timeout_s: float,
    ) -> _Operation:
        cuts = pieces(len(elements), elements.itemsize)
        operation = _Operation(dtype, reduction, shape, timeout_s, len(cuts) == 1)
        made = self._leaders_steps if self._leads else self._others_steps
        operation.steps = list(made(operation, [elements[a:b] for a, b in cuts]))
        return operation

    def _leaders_steps(
        self, operation: _Operation, parts: Sequence[NDArray[Any]]
    ) -> Iterator[_Step]:
        assert self._worker is not None
        first = self._worker.number
        yield from self._phase()
        for n, part in enumerate(parts):
            others, exponents, mirror = range(1, len(self._slices)), [], None
            if self._shared is not None and len(part) > _SMALL:
                mirror = self._half(0, n, part)[: len(part)], self._marks(0, n, part)
                yield _Step(_Kind.CALL, 0, mirror[1].fill, (0,))
                if operation.skips_zeros:
                    exponents = [self._marks(index, n, part) for index in others]
            elements = [self._half(index, n, part)[: len(part)] for index in others]
            operation.sums[first + n] = _Sum(part, elements, exponents, mirror)
            yield _Step(_Kind.SUM, first + n)
            if self._shared is not None and mirror is None:
                yield _Step(_Kind.CALL, 0, np.copyto, (self._half(0, n, part)[: len(part)], part))
            yield from self._phase()

    def _others_steps(
        self, operation: _Operation, parts: Sequence[NDArray[Any]]
    ) -> Iterator[_Step]:
        def put(n: int) -> Iterator[_Step]:
            if n >= len(parts):
                return
            part = parts[n]
            half = self._half(self._own, n, part)
            if len(part) > _SMALL and operation.skips_zeros:
                marks = self._marks(self._own, n, part)
                yield _Step(
                    _Kind.CALL, 0, _native.scan_clear, (int(operation.dtype), part, half, marks)
                )
            else:
                yield _Step(_Kind.CALL, 0, np.copyto, (half[: len(part)], part))

        def take(n: int) -> _Step:
            part = parts[n]
            half = self._half(0, n, part)[: len(part)]
            if len(part) <= _SMALL:
                return _Step(_Kind.CALL, 0, np.copyto, (part, half))
            # Blocks that no rank has are zeros here already.
            return _Step(_Kind.CALL, 0, _native.copy_marked, (half, self._marks(0, n, part), part))

        yield from put(0)
        yield from self._phase()
        yield from put(1)
        for n in range(len(parts)):
            yield from self._phase()
            # Before the next one goes in: that is awaited by all hosts.
            yield take(n)
            yield from put(n + 2)

    def _phase(self) -> Iterator[_Step]:
        if self._shared is not None:
            self._phases_past += 1
            yield _Step(_Kind.PHASE, self._phases_past)

    def _half(self, index: int, n: int, like: NDArray[Any]) -> NDArray[Any]:
        """Return where piece n of a rank of the host is, in whole blocks: two halves, by turns."""
        start = n % 2 * _half_bytes()
        length = _blocks(like) * wire.BLOCK_ELEMENTS * like.itemsize
        found = self._slices[index][start : start + length].view(like.dtype)
        return found

    def _marks(self, index: int, n: int, like: NDArray[Any]) -> NDArray[np.uint8]:
        """Return a byte for each block of the same: of the leader's, whether it is there.

        Of another rank's, what `_native.scan` finds.
        """
        start = n % 2 * _half_bytes() + PIECE_BYTES + _SPARE_BYTES
        return self._slices[index][start : start + _blocks(like)]

    def _drive(self, operation: _Operation, interrupted: Interruption) -> None:
        """Take the steps that are left.

        A signal handler may do so while this waits, in any step; then nothing is left.
        """
        steps = operation.steps
        try:
            while (n := operation.step) < len(steps):
                step = steps[n]
                if step.kind is _Kind.PHASE:
                    self._pass_phase(operation, step.number, n, interrupted)
                elif step.kind is _Kind.SUM:
                    self._sum(operation, step.number, interrupted)
                else:
                    function, arguments = step.function, step.arguments
                    # No handler comes between the look and the call. Once more does no harm until
                    # the next step.
                    if operation.step == n:
                        function(*arguments)  # type: ignore[misc]
                if operation.step == n:
                    operation.step = n + 1
        except BaseException as error:
            self.fail(str(error) or type(error).__name__)
            raise

    def _pass_phase(
        self, operation: _Operation, number: int, n: int, interrupted: Interruption
    ) -> None:
        assert self._shared is not None
        # In the first phase, who does not come has not called.
        grace_s = 0.0 if self._leads or n <= 1 else _GRACE_S
        waited_s = operation.waited_s - grace_s
        self._shared.pass_phase(number, operation.call, operation.timeout_s, interrupted, waited_s)

    def _sum(self, operation: _Operation, number: int, interrupted: Interruption) -> None:
        worker, shared = self._worker, self._shared
        assert worker is not None
        found: AffluxError | None = None

        def watching() -> str | None:
            nonlocal found
            if shared is not None:
                found = shared.trouble()
            return interrupted() or (str(found) if found is not None else None)

        try:
            if worker.busy or worker.number > number:
                worker.complete(operation.timeout_s - operation.waited_s, watching)
                return
            asked = operation.sums[number]
            worker.all_reduce(
                asked.elements,
                operation.dtype,
                operation.reduction,
                operation.shape,
                operation.timeout_s,
                watching,
                in_place=True,
                others=asked.others,
                exponents=asked.exponents,
                mirror=asked.mirror,
                part=not operation.whole,
                number=number,
                waited_s=operation.waited_s,
            )
        except Interrupted:
            if found is not None:
                raise found from None
            raise
