"""How ranks that have lost their aggregators find out which results are still to be had.

Every rank has fenced itself off: it takes no result any more, so its state is final. Ranks differ
by one call at most, as no result of a call comes before all have begun it. So either

* some have ended a call in which others still are: a rank that has ended it has kept what those
  may lack, and gives it to them; or
* all are in the same call, and some have results of it: who has one gives it to the others, and
  blocks of which nobody has the result are unchanged everywhere, to be summed anew; or
* nobody has a result of the call that is running: it is carried out anew.

These are the decisions; `tests/models/fail_over_model.py` has every order of events for them.

Tested: `tests/host/test_fail_over.py`, `tests/sim/test_fail_over_model.py`.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from afflux_drivers.errors import AffluxError
from afflux_hdl.contract import wire

__all__ = ["Plan", "Results", "Rows", "State", "complete", "plan_of"]


class Results(Protocol):
    """The aggregators' results at a rank; final behind the fence."""

    @property
    def over(self) -> int:
        """How many calls have come to a good end."""

    @property
    def running(self) -> bool:
        """Whether a call is running."""

    @property
    def result(self) -> NDArray[np.uint8]:
        """The bytes of the running call's result, as long as its tensor lives."""

    @property
    def taken(self) -> bytes:
        """A byte for each block of it: 1 if it is a result."""

    @property
    def taken_before(self) -> int:
        """How many blocks of the call that was over last were results."""

    @property
    def kept(self) -> list[int]:
        """Blocks of that call which another rank may lack."""

    @property
    def contents(self) -> bytes:
        """Their bytes, one after the other, in a block's room each."""


class State(NamedTuple):
    """A rank's state behind the fence.

    Attributes:
        over: Calls that have come to a good end here.
        running: Whether the next one is running.
        taken: How many blocks of that one are results here.
        call: That call, as the ranks compare it.
        left: Whether the rank has left the group: it takes part in nothing more.
    """

    over: int
    running: bool
    taken: int
    call: str = ""
    left: bool = False

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "State":
        """Return what a rank has written."""
        return cls(*(fields[each] for each in cls._fields))


class Plan(NamedTuple):
    """The next steps of the ranks; the same at all of them, as all see the same states.

    Attributes:
        behind: Ranks that are in a call which others have ended.
        giver: The rank that gives them what they lack; None if there are none.
        together: Whether all are in one call, of which some have results.
        ends: Whether a rank has left: no call can follow.
    """

    behind: tuple[int, ...]
    giver: int | None
    together: bool
    ends: bool


def plan_of(states: Mapping[int, State]) -> Plan:
    """Return what ranks with these states do.

    Raises:
        AffluxError: Results are lost, or the ranks are not where they can be: no way on is safe.
    """
    top = max(each.over for each in states.values())
    behind = tuple(rank for rank, each in states.items() if each.over < top)
    ends = any(each.left for each in states.values())
    taken = [rank for rank, each in states.items() if each.taken]
    if behind:
        lost = [each for each in behind if states[each].over < top - 1 or not states[each].running]
        ahead = [rank for rank in taken if rank not in behind]
        if lost or ahead:
            raise AffluxError(f"the ranks are not within a call of each other: {_told(states)}")
        giver = min(rank for rank in states if rank not in behind)
        return Plan(behind, giver, False, ends)
    if not taken:
        return Plan((), None, False, ends)
    if not all(each.running for each in states.values()):
        raise AffluxError(f"there are results of a call that not all have begun: {_told(states)}")
    if len({each.call for each in states.values()}) > 1:
        calls = ", ".join(f"rank {rank}: {each.call}" for rank, each in states.items())
        raise AffluxError(f"the ranks disagree, and parts of a result are there already: {calls}")
    return Plan((), None, True, ends)


def _told(states: Mapping[int, State]) -> str:
    return "; ".join(
        f"rank {rank} has ended {each.over} calls"
        + (f", and has {each.taken} blocks of the next one" if each.running else "")
        for rank, each in states.items()
    )


class Rows:
    """The blocks of a tensor, the last of which may be shorter, as rows of bytes.

    Args:
        elements: The bytes of the tensor's elements.
    """

    def __init__(self, elements: NDArray[np.uint8]) -> None:
        self.count = -(-len(elements) // wire.BLOCK_BYTES)
        whole = len(elements) // wire.BLOCK_BYTES
        self._whole = elements[: whole * wire.BLOCK_BYTES].reshape(whole, wire.BLOCK_BYTES)
        self._rest = elements[whole * wire.BLOCK_BYTES :]

    def read(self, blocks: NDArray[np.intp]) -> NDArray[np.uint8]:
        """Return these blocks, in ascending order, a row each; behind the tensor's end are zeros.

        Args:
            blocks: Their numbers, ascending.
        """
        found = np.zeros((len(blocks), wire.BLOCK_BYTES), np.uint8)
        whole = blocks < len(self._whole)
        found[whole] = self._whole[blocks[whole]]
        if len(blocks) and not whole[-1]:
            found[-1, : len(self._rest)] = self._rest
        return found

    def write(self, blocks: NDArray[np.intp], rows: NDArray[np.uint8]) -> None:
        """Put rows in the places of these blocks; see `read`."""
        whole = blocks < len(self._whole)
        self._whole[blocks[whole]] = rows[whole]
        if len(blocks) and not whole[-1]:
            self._rest[:] = rows[-1, : len(self._rest)]


def complete(
    result: NDArray[np.uint8],
    taken: NDArray[np.uint8],
    rank: int,
    size: int,
    move: Callable[[NDArray[np.uint8]], None],
    reduce: Callable[[NDArray[np.uint8]], None],
) -> None:
    """Bring a call that all ranks are in to its end. Collective.

    Args:
        result: The bytes of its tensor, in place.
        taken: A byte for each block: 1 if it is a result.
        rank: Own rank.
        size: Ranks of the group.
        move: Sums words of 32 bits over all ranks, in place.
        reduce: Does what the call asks for, in place, to blocks of its elements.
    """
    rows = Rows(result)
    bits = np.packbits(taken)
    everyones = np.zeros((size, -(-len(bits) // 4) * 4), np.uint8)
    everyones[rank, : len(bits)] = bits
    move(everyones)
    has = np.unpackbits(everyones, axis=1)[:, : len(taken)].astype(bool)
    anywhere = has.any(axis=0)
    some = np.flatnonzero(anywhere & ~has.all(axis=0))
    if len(some):
        # Zeros of all but one rank: the sum of bits as integers is that rank's.
        moved = np.zeros((len(some), wire.BLOCK_BYTES), np.uint8)
        mine = has.argmax(axis=0)[some] == rank
        moved[mine] = rows.read(some[mine])
        move(moved)
        lack = ~has[rank, some]
        rows.write(some[lack], moved[lack])
    rest = np.flatnonzero(~anywhere)
    if len(rest):
        of_rest = rows.read(rest)
        reduce(of_rest)
        rows.write(rest, of_rest)
