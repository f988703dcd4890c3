"""A rank's end of a shared-memory group: all-reduces in place, and errors in words."""

import functools
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

from numpy.typing import NDArray

from afflux_drivers import _native
from afflux_drivers.collective import Description, Reduction
from afflux_drivers.errors import (
    AffluxError,
    DeadlineExceeded,
    Disagreement,
    Interrupted,
    RanksMissing,
    WorkerFailed,
)
from afflux_hdl.contract import wire

__all__ = ["RanksEnded", "SharedCall", "SharedWorker"]

_SLICE_S = 0.1
"""The native part waits no longer at a time, so that signals and `interrupted` are heeded."""


class RanksEnded(RanksMissing):
    """Ranks cannot contribute any more: their processes have ended, or they left the group."""


@dataclass(frozen=True, slots=True)
class SharedCall:
    """One kind of operation, prepared: for tensors of the same dtype and shape, reduced alike.

    Attributes:
        count: Elements.
        dtype: Number of the dtype.
        reduction: Number of the reduction.
        fingerprint: What the ranks compare. The operation's number is not part of it, because ranks
            go from operation to operation together.
        description: Describes the call in messages; its number is 0.
    """

    count: int
    dtype: int
    reduction: int
    fingerprint: int
    description: Description

    @classmethod
    def of(cls, dtype: wire.Dtype, reduction: Reduction, shape: tuple[int, ...]) -> "SharedCall":
        """Return the call for a tensor of this dtype and shape."""
        description = Description(0, reduction, dtype, shape)
        return cls(prod(shape), int(dtype), reduction.number, description.fingerprint, description)


class SharedWorker:
    """One rank of one group of ranks that share memory. Used by one thread at a time.

    After any error the worker has failed: every later call raises `WorkerFailed`.

    Args:
        descriptor: File descriptor of the group's segment, which belongs to the worker from now on.
        rank: Own rank.
        ranks: Number of ranks in the group.

    Raises:
        OSError: The segment cannot be mapped.
        ValueError: It is not one for so many ranks, or the rank's place is taken.
    """

    def __init__(self, descriptor: int, rank: int, ranks: int) -> None:
        self.rank = rank
        self.ranks = ranks
        self._number = 0
        self._pid = os.getpid()
        self._failure = ""
        self._group = _native.SharedGroup(descriptor, rank, ranks)
        self._run = self._group.all_reduce_address
        self._next_offset = 0

    def all_reduce(
        self,
        address: int,
        call: SharedCall,
        timeout_s: float,
        interrupted: Callable[[], str | None],
    ) -> None:
        """Reduce a tensor over all ranks, in place.

        Args:
            address: Address of the first of `call.count` contiguous elements.
            call: What to do.
            timeout_s: How long the operation may take, other ranks' delays included.
            interrupted: Called ten times a second while waiting; a text that it returns ends the
                operation with that text as error.

        Raises:
            Disagreement: Another rank called something else. No rank's tensor has changed.
            RanksMissing: Ranks have not come in time; the error names them.
            RanksEnded: Ranks will not come; the error names them.
            DeadlineExceeded: The time is over, though all ranks have come.
            Interrupted: `interrupted` gave a reason, or another rank has failed.
            WorkerFailed: This worker had failed before.
        """
        if self._failure:
            raise WorkerFailed(f"rank {self.rank}'s shared memory failed earlier: {self._failure}")
        try:
            if not self._run(
                address,
                call.count,
                call.dtype,
                call.reduction,
                call.fingerprint,
                _SLICE_S if timeout_s > _SLICE_S else timeout_s,
            ):
                self._wait(timeout_s, interrupted)
        except _native.SharedDisagreement:
            disagreement = self._disagreement(call)
            self._failure = str(disagreement)
            raise disagreement from None
        except _native.SharedFailed as error:
            lost = self._lost(str(error))
            lost.operation = self._text(call)
            self._failure = str(lost)
            raise lost from None
        except BaseException as error:
            if isinstance(error, AffluxError):
                error.operation = self._text(call)
            self._failure = str(error) or type(error).__name__
            raise
        self._number += 1

    def agree(self, number: int, timeout_s: float, interrupted: Callable[[], str | None]) -> None:
        """Wait until all ranks have called this with the same number, at most 32 bits wide.

        Raises:
            AffluxError: As for `all_reduce`.
        """
        self.all_reduce(0, _agreement(number), timeout_s, interrupted)

    def allocate(self, length: int) -> NDArray[Any]:
        """Return zeroed memory that all ranks reach. Collective: all ranks pass the same length.

        Args:
            length: Number of bytes.

        Returns:
            1-D uint8, of whole pages. The memory goes back to the system with the last array or
            tensor that refers to it.
        """
        page = os.sysconf("SC_PAGE_SIZE")
        whole = max(-(-length // page), 1) * page
        offset = self._next_offset
        # Never used again, as another rank may still have the old one; a hole in a memfd is free.
        self._next_offset += whole * self.ranks
        return self._group.allocate(offset, whole)

    def fail(self, reason: str) -> None:
        """Make the other ranks leave their operations now. Any thread."""
        self._group.fail(reason)

    def statistics(self) -> dict[str, int]:
        """Return counts since the worker was made. Any thread."""
        return dict(self._group.statistics())

    def close(self) -> None:
        """Leave the group. Reachable tensors that still exist keep their memory."""
        self._failure = self._failure or "it is closed"
        if os.getpid() == self._pid:
            self._group.close()

    def _text(self, call: SharedCall) -> str:
        about = call.description
        return Description(self._number, about.reduction, about.dtype, about.shape).text

    def _wait(self, timeout_s: float, interrupted: Callable[[], str | None]) -> None:
        deadline = time.monotonic() + timeout_s - _SLICE_S
        while True:
            reason = interrupted()
            if reason is not None:
                raise Interrupted(f"rank {self.rank}: {reason}")
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise self._too_late(timeout_s)
            if self._group.advance(min(left_s, _SLICE_S)):
                return

    def _too_late(self, timeout_s: float) -> DeadlineExceeded:
        ranks = tuple(self._group.missing())
        if not ranks:
            return DeadlineExceeded(
                f"timed out after {timeout_s:g} s at rank {self.rank} (shared memory)"
            )
        return RanksMissing(
            f"timed out after {timeout_s:g} s: rank {self.rank} still waits for the contributions "
            f"of rank(s) {_names(ranks)} (shared memory)",
            ranks,
        )

    def _lost(self, reason: str) -> AffluxError:
        ended = tuple(self._group.dead())
        if ended:
            return RanksEnded(
                f"rank(s) {_names(ended)} ended or left the group; rank {self.rank} waited for "
                "their contributions (shared memory)",
                ended,
            )
        return Interrupted(f"rank {self.rank}: {reason}")

    def _disagreement(self, call: SharedCall) -> Disagreement:
        fingerprints = tuple(self._group.fingerprints())
        ranks = [rank for rank, value in enumerate(fingerprints) if value != call.fingerprint]
        return Disagreement(
            f"the ranks disagree: rank {self.rank} called this operation, but ranks {ranks} "
            "called something else (shared memory)",
            number=self._number,
            description=self._text(call),
            fingerprint=call.fingerprint,
            fingerprints=fingerprints,
        )


@functools.lru_cache(maxsize=1024)
def _agreement(number: int) -> SharedCall:
    return SharedCall.of(wire.Dtype.INT32, Reduction.SUM, (0, number))


def _names(ranks: tuple[int, ...]) -> str:
    return ", ".join(str(rank) for rank in ranks)
