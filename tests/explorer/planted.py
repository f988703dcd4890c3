"""Bugs in what ranks do when an aggregator dies or comes back, of which the explorer finds each."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from afflux.group.reducers import continued_reducer
from afflux.group.reducers.continued_reducer import ContinuedReducer
from afflux.group.reducers.fail_back import FailBack
from afflux.group.store.epoch import Epoch

__all__ = ["BUGS", "planted"]


def _sum_all_anew(
    result: Any, _taken: Any, _rank: int, _size: int, _move: Any, reduce: Any
) -> None:
    reduce(result)


def _keep_nothing(_self: ContinuedReducer) -> dict[str, Any]:
    return {"blocks": [], "contents": "", "all": 0}


def _as_far_as_this_rank(self: FailBack, *_: object) -> int:
    return self._begun


def _what_is_there(self: Epoch, ranks: Any, at_once: bool = False) -> dict[int, dict[str, Any]]:
    found = _states(self, ranks, at_once)
    nothing = {"over": 0, "running": False, "taken": 0, "call": "", "left": False}
    return {rank: found.get(rank, nothing) for rank in ranks}


_states = Epoch.states

BUGS: dict[str, tuple[Any, str, Any]] = {
    "blocks that are results are summed anew": (continued_reducer, "complete", _sum_all_anew),
    "nothing is kept for ranks that are behind": (ContinuedReducer, "_kept", _keep_nothing),
    "a rank does not wait for the states of others": (Epoch, "states", _what_is_there),
    "a rank that leaves leaves nothing": (ContinuedReducer, "bequeath", lambda _: None),
    "calls on the way back are not counted": (FailBack, "call_begins", lambda _: None),
    "a rank goes back at once": (FailBack, "_find_target", _as_far_as_this_rank),
}


@contextmanager
def planted(bug: str) -> Iterator[None]:
    """Plant a bug; none if the name is empty."""
    if not bug:
        yield
        return
    with mock.patch.object(*BUGS[bug]):
        yield
