"""How fast shards and Gloo are on this network: a short calibration when a group is made.

On a slow network both wait for the wire, shards for fewer bytes unless a tensor is dense; on a fast
one both take processor time, of which Gloo needs less for each byte of a dense tensor. How fast a
network is shows in no setting of a host, so tensors of some sizes take both ways, in turns. Their
times decide, for each tensor later, which way it takes (`afflux.group.autotune.path_history`); or,
if shards are never as fast, that the group goes on with Gloo alone.
"""

import hashlib
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from afflux.group.autotune.deadlock import DeadlockDetector
from afflux.group.autotune.either_reducer import EitherReducer
from afflux.group.autotune.rates import Point, Rates
from afflux.group.call.collectives import Asked
from afflux.group.reducers.fallback import GlooFallback
from afflux.group.reducers.gloo_reducer import GlooReducer
from afflux.group.reducers.reducer import Reducer
from afflux.group.reducers.topology import Topology
from afflux.group.store.bounded import BoundedStore
from afflux.group.store.exchange import RendezvousError
from afflux.group.store.introduction import Introduction
from afflux_drivers.errors import AffluxError
from afflux_hdl.contract import wire

__all__ = ["Tuning", "calibration_key", "known", "settle"]

_log = logging.getLogger("afflux")

_SIZES = (64 << 10, 1 << 20, 8 << 20)
_ENOUGH_S = 0.06
"""If a size took as long, the next one, many times as large, is not tried."""

_SPARSE = 100
"""Of so many blocks of a sparse tensor one is not zero."""

_TURNS = 2
_LIMIT_S = 5.0
_GLOO_LIMIT_S = 20.0
"""Then Gloo fails, and with it the group, at every rank: no other call could go that way."""

_WORTH_IT = 0.85
"""Shards may be slower than Gloo by a tenth, and by what such short runs differ."""

_outcomes: dict[str, Topology | Rates] = {}
"""Of earlier contests between the same hosts, by their key: all ranks that took part know them."""


class Tuning(NamedTuple):
    """How a group's shards are to compete with Gloo.

    Attributes:
        calibration: Key of the calibration.
        rates: Of an earlier one with this key; None if it is still to be.
    """

    calibration: str
    rates: Rates | None


def settle(
    shards: Reducer[Any],
    tuning: Tuning,
    gloo: Any,
    fallback: GlooFallback,
    store: BoundedStore,
    rank: int,
    size: int,
) -> Reducer[Any]:
    """Return the reducer with which a group is to go on: both ways, or Gloo alone. Collective.

    Args:
        shards: The group's, so far.
        tuning: How they are to compete with Gloo.
        gloo: The group's Gloo.
        fallback: The same, as it carries out calls.
        store: The group's.
        rank: Own rank.
        size: Ranks of the group.
    """
    rates = tuning.rates or _measured(shards, gloo, rank)
    took = _told(rates.points[-1])
    failed = any(map(_failed, rates.points))
    if failed or not any(map(_worth_it, rates.points)):
        # Every rank knows the outcome: nobody sends to the shards any more.
        shards.leave()
        topology = Topology("gloo", took)
        if not failed:
            # The next group of these ranks may have better luck.
            _outcomes[tuning.calibration] = topology
        _tell(rank, str(topology))
        return GlooReducer(shards.url, topology)
    shards.topology = Topology(shards.topology.name, took)
    waiting = DeadlockDetector(store.under("waiting"), rank, size)
    if tuning.rates is None:
        _outcomes[tuning.calibration] = rates
        _tell(rank, f"{shards.topology}, or Gloo, by tensor")
    return EitherReducer(shards, fallback, rates, waiting, rank, size)


def calibration_key(everyone: Sequence[Introduction], interfaces: Sequence[str] = ()) -> str:
    """Return the key of a calibration between the hosts of these ranks, as many of them on each.

    Args:
        everyone: The introductions of all ranks.
        interfaces: Those of rank 0's AFFLUX_INTERFACE: other ones may be faster.
    """
    hosts = sorted(Counter(each.host for each in everyone).items())
    words = "\n".join([*(f"{ranks} on {host}" for host, ranks in hosts), *interfaces])
    return hashlib.sha256(words.encode()).hexdigest()[:16]


def known(calibration: str) -> Topology | Rates | None:
    """Return how an earlier calibration between the same hosts has ended."""
    return _outcomes.get(calibration)


def _tell(rank: int, way: str) -> None:
    if rank == 0:
        _log.info("AFFLUX_AGGREGATOR=auto takes %s", way)


def _told(point: Point) -> str:
    return (
        f"shards take {_shown(point.dense_s)} for {_size(point.bytes)}, dense, "
        f"{_shown(point.sparse_s)} if 1 % of its blocks are not zero, and Gloo "
        f"{_shown(point.gloo_s)}"
    )


def _failed(point: Point) -> bool:
    return point.dense_s == math.inf


def _worth_it(point: Point) -> bool:
    return min(point.dense_s, point.sparse_s) * _WORTH_IT <= point.gloo_s


def _measured(reducer: Reducer[Any], gloo: Any, rank: int) -> Rates:
    """Return what each size took, up to one that took long. Each time is the same at all ranks."""
    points: list[Point] = []
    for size in _SIZES:
        points.append(_compete(reducer, gloo, size, rank))
        if max(points[-1].dense_s, points[-1].gloo_s) > _ENOUGH_S:
            break
    return Rates(points)


def _compete(reducer: Reducer[Any], gloo: Any, size: int, rank: int) -> Point:
    """Return what the slowest rank took, of the best turn each; shards that fail take for ever."""
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
                f"{_size(size)}: {error}"
            ) from error

    def dense() -> None:
        tensor.fill_(1.0)

    def sparse() -> None:
        tensor.zero_()
        tensor.view(-1, wire.BLOCK_ELEMENTS)[::_SPARSE] = 1.0

    best = [math.inf, math.inf, math.inf]
    for _ in range(_TURNS):
        turns = (dense, by_shards), (sparse, by_shards), (dense, by_gloo)
        for number, (fill, call) in enumerate(turns):
            fill()
            took_s = _timed(gloo, call, rank)
            if took_s == math.inf:
                return Point(size, math.inf, math.inf, 0.0)
            best[number] = min(best[number], took_s)
    return Point(size, *best)


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
        _log.info("rank %d: shards are out of the calibration: %s", rank, error)
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


def _size(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"
