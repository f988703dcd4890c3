"""Which of shards and Gloo is faster on this network: a short contest when a group is made.

On a slow network both wait for the wire, shards for fewer bytes unless a tensor is dense; on a fast
one both take processor time, of which Gloo needs less for each byte of a dense tensor. How fast a
network is shows in no setting of a host, so a dense tensor takes both ways, in turns.
"""

import hashlib
import logging
import math
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from afflux.group.collectives import Asked
from afflux.group.exchange import Introduction, RendezvousError
from afflux.group.gloo_reducer import GlooReducer
from afflux.group.reducer import JobReducer, Reducer
from afflux.group.topology import Topology
from afflux_drivers.errors import AffluxError

__all__ = ["contest_of", "known", "settle"]

_log = logging.getLogger("afflux")

_SIZES = (1 << 20, 8 << 20)
_ENOUGH_S = 0.06
"""A size that took as long tells enough; the next one would take eight times as long."""

_TURNS = 2
_LIMIT_S = 5.0
_GLOO_LIMIT_S = 20.0
"""Then Gloo fails, and with it the group, at every rank: no other call could go that way."""

_WORTH_IT = 0.85
"""Shards may be slower than Gloo by a tenth, and by what such short runs differ."""

_outcomes: dict[str, Topology] = {}
"""Of earlier contests between the same hosts, by their key: all ranks that took part know them."""


def settle(reducer: Reducer[Any], gloo: Any, rank: int) -> Reducer[Any]:
    """Return the reducer with which a group is to go on. Collective.

    Args:
        reducer: The group's. If nobody has asked for shards, they compete with Gloo.
        gloo: The group's Gloo.
        rank: Own rank.
    """
    if not isinstance(reducer, JobReducer) or not reducer.contest:
        return reducer
    contest = reducer.contest
    shards_s, gloo_s = math.inf, 0.0
    for size in _SIZES:
        shards_s, gloo_s = _compete(reducer, gloo, size, rank)
        if max(shards_s, gloo_s) > _ENOUGH_S:
            break
    took = f"{_shown(shards_s)} for {size >> 20} MiB, dense, and Gloo {_shown(gloo_s)}"
    if shards_s * _WORTH_IT <= gloo_s:
        reducer.topology = Topology(reducer.topology.name, f"shards take {took}")
        return _noted(contest, reducer, rank)
    found = GlooReducer(reducer.url, Topology("gloo", f"shards take {took}"))
    # Every rank knows the outcome: nobody sends to the shards any more.
    reducer.leave()
    return _noted(contest, found, rank)


def contest_of(everyone: Sequence[Introduction]) -> str:
    """Return the key of a contest between the hosts of these ranks."""
    hosts = sorted({each.host for each in everyone})
    return hashlib.sha256("\n".join(hosts).encode()).hexdigest()[:16]


def known(contest: str) -> Topology | None:
    """Return how an earlier contest between the same hosts has ended."""
    return _outcomes.get(contest)


def _noted(contest: str, reducer: Reducer[Any], rank: int) -> Reducer[Any]:
    _outcomes[contest] = reducer.topology
    if rank == 0:
        _log.info("AFFLUX_AGGREGATOR=auto takes %s", reducer.topology)
    return reducer


def _compete(reducer: JobReducer, gloo: Any, size: int, rank: int) -> tuple[float, float]:
    """Return how long the slowest rank took, by shards and by Gloo: of the best turn of each."""
    tensor = torch.ones(size // 4)
    plan = reducer.plan(Asked("all_reduce", tensor.dtype, tuple(tensor.shape), "sum"))
    assert plan is not None

    def by_shards() -> None:
        reducer.run(plan, [], [tensor], _LIMIT_S, lambda: None)

    def by_gloo() -> None:
        options = dist.AllreduceOptions()
        options.timeout = timedelta(seconds=_GLOO_LIMIT_S)
        try:
            gloo.allreduce([tensor], options).wait()
        except RuntimeError as error:
            raise RendezvousError(
                f"rank {rank}: Gloo, which carries what shards do not, fails with a tensor of "
                f"{size >> 20} MiB: {error}"
            ) from error

    best = [math.inf, math.inf]
    for _ in range(_TURNS):
        for way, call in enumerate((by_shards, by_gloo)):
            tensor.fill_(1.0)
            took_s = _timed(gloo, call, rank)
            if took_s == math.inf:
                return math.inf, 0.0
            best[way] = min(best[way], took_s)
    return best[0], best[1]


def _timed(gloo: Any, call: Callable[[], None], rank: int) -> float:
    """Return how long a call takes from when all ranks are there to the end of the last one."""
    _slowest(gloo, 0.0)
    started = time.monotonic()
    try:
        call()
        own_s = time.monotonic() - started
    except RendezvousError:
        raise
    except AffluxError as error:
        _log.info("rank %d: shards are out of the contest: %s", rank, error)
        own_s = math.inf
    return _slowest(gloo, own_s)


def _slowest(gloo: Any, own_s: float) -> float:
    found = torch.tensor([own_s], dtype=torch.float64)
    options = dist.AllreduceOptions()
    options.reduceOp = dist.ReduceOp(dist.ReduceOp.MAX)
    gloo.allreduce([found], options).wait()
    return float(found.item())


def _shown(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms" if seconds < math.inf else "no end"
