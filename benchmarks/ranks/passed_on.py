"""Calls that Afflux passes on to Gloo: what that costs beside Gloo itself."""

import functools
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from afflux.commands.bench.registry import Row
from benchmarks.ranks.comparison import compare
from benchmarks.ranks.family import Family, FamilyCase
from benchmarks.ranks.session import BACKENDS, Session
from benchmarks.report.sides import Side

__all__ = ["PASSED_ON"]

_SIZES = {"1K": 1 << 10, "256K": 256 << 10}
_TITLES = {"1K": "1 KB", "256K": "256 KB"}
_WANTED = 0.95
_RANKS = (2, 4)
# Ratios near 1 need more pairs of runs.
_REPEATS = 15

_Make = Callable[[Session, Any, int], Side]


def _of(rank: int, count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return what a rank contributes, of small whole numbers: every sum of them is exact."""
    generator = torch.Generator().manual_seed(rank + 1)
    return torch.randint(-99, 100, (count,), generator=generator).to(dtype)


def _unequal(got: torch.Tensor, expected: torch.Tensor) -> int:
    return int((got != expected).sum())


def _gather(session: Session, group: Any, count: int) -> Side:
    mine = _of(session.rank, count)
    parts = [torch.zeros(count) for _ in range(session.ranks)] if session.rank == 0 else None
    call = partial(dist.gather, mine, parts, dst=0, group=group)

    def wrong() -> int:
        for part in parts or []:
            part.zero_()
        call()
        return sum(_unequal(part, _of(rank, count)) for rank, part in enumerate(parts or []))

    return Side(call, wrong)


def _scatter(session: Session, group: Any, count: int) -> Side:
    result = torch.zeros(count)
    parts = [_of(rank, count) for rank in range(session.ranks)] if session.rank == 0 else None
    call = partial(dist.scatter, result, parts, src=0, group=group)

    def wrong() -> int:
        result.zero_()
        call()
        return _unequal(result, _of(session.rank, count))

    return Side(call, wrong)


def _reduce(session: Session, group: Any, count: int) -> Side:
    source, tensor = _of(session.rank, count), torch.zeros(count)
    call = partial(dist.reduce, tensor, dst=0, group=group)

    def wrong() -> int:
        tensor.copy_(source)
        call()
        total = torch.stack([_of(rank, count) for rank in range(session.ranks)]).sum(0)
        return _unequal(tensor, total) if session.rank == 0 else 0

    # Zeros take as long as any other numbers, and do not grow.
    return Side(call, wrong, tensor.zero_)


def _all_reduce(dtype: torch.dtype, op: Any, session: Session, group: Any, count: int) -> Side:
    # Neither grows: products of ones and minus ones, and bits that all ranks have.
    values = [_of(rank, count, dtype) for rank in range(session.ranks)]
    if op == dist.ReduceOp.PRODUCT:
        values = [torch.where(each < 0, -1, 1).to(dtype) for each in values]
    combine = torch.mul if op == dist.ReduceOp.PRODUCT else torch.bitwise_and
    tensor = torch.zeros(count, dtype=dtype)
    call = partial(dist.all_reduce, tensor, op=op, group=group)

    def restore() -> None:
        tensor.copy_(values[session.rank])

    def wrong() -> int:
        restore()
        call()
        return _unequal(tensor, functools.reduce(combine, values))

    return Side(call, wrong, restore)


def _all_to_all(session: Session, group: Any, count: int) -> Side:
    ranks, each = session.ranks, max(1, count // session.ranks)
    given = list(_of(session.rank, each * ranks).chunk(ranks))
    taken = list(torch.zeros(each * ranks).chunk(ranks))
    call = partial(dist.all_to_all, taken, given, group=group)
    return Side(call, partial(_wrong_exchange, session, call, taken))


def _all_to_all_single(session: Session, group: Any, count: int) -> Side:
    ranks, each = session.ranks, max(1, count // session.ranks)
    given, taken = _of(session.rank, each * ranks), torch.zeros(each * ranks)
    call = partial(dist.all_to_all_single, taken, given, group=group)
    return Side(call, partial(_wrong_exchange, session, call, list(taken.chunk(ranks))))


def _wrong_exchange(session: Session, call: Callable[[], object], taken: list[torch.Tensor]) -> int:
    for part in taken:
        part.zero_()
    call()
    ranks, each = session.ranks, taken[0].numel()
    return sum(
        _unequal(part, _of(rank, each * ranks).chunk(ranks)[session.rank])
        for rank, part in enumerate(taken)
    )


def _ping_pong(session: Session, group: Any, count: int) -> Side:
    rank = session.rank
    other = rank ^ 1
    there, back = _of(rank & ~1, count), torch.zeros(count)

    def call() -> None:
        if other >= session.ranks:
            return
        if rank < other:
            dist.send(there, other, group)
            dist.recv(back, other, group)
        else:
            dist.recv(back, other, group)
            dist.send(back, other, group)

    def wrong() -> int:
        back.zero_()
        call()
        return _unequal(back, there) if other < session.ranks else 0

    return Side(call, wrong)


def _batch_isend_irecv(session: Session, group: Any, count: int) -> Side:
    rank, ranks = session.rank, session.ranks
    after, before = (rank + 1) % ranks, (rank - 1) % ranks
    given, taken = _of(rank, count), torch.zeros(count)

    def call() -> None:
        sent = dist.P2POp(dist.isend, given, after, group)
        received = dist.P2POp(dist.irecv, taken, before, group)
        for work in dist.batch_isend_irecv([sent, received]):
            work.wait()

    def wrong() -> int:
        taken.zero_()
        call()
        return _unequal(taken, _of(before, count))

    return Side(call, wrong)


def _object(rank: int, count: int) -> dict[str, Any]:
    return {"rank": rank, "bytes": bytes([rank]) * (4 * count)}


def _all_gather_object(session: Session, group: Any, count: int) -> Side:
    mine = _object(session.rank, count)
    found: list[Any] = [None] * session.ranks
    call = partial(dist.all_gather_object, found, mine, group=group)

    def wrong() -> int:
        found[:] = [None] * session.ranks
        call()
        return sum(each != _object(rank, count) for rank, each in enumerate(found))

    return Side(call, wrong)


def _broadcast_object_list(session: Session, group: Any, count: int) -> Side:
    objects = [_object(session.rank, count)]
    call = partial(dist.broadcast_object_list, objects, src=0, group=group)

    def wrong() -> int:
        objects[0] = _object(session.rank, count)
        call()
        return int(objects[0] != _object(0, count))

    return Side(call, wrong)


def _gather_object(session: Session, group: Any, count: int) -> Side:
    mine = _object(session.rank, count)
    found: list[Any] | None = [None] * session.ranks if session.rank == 0 else None
    call = partial(dist.gather_object, mine, found, dst=0, group=group)

    def wrong() -> int:
        if found is not None:
            found[:] = [None] * session.ranks
        call()
        return sum(each != _object(rank, count) for rank, each in enumerate(found or []))

    return Side(call, wrong)


def _scatter_object_list(session: Session, group: Any, count: int) -> Side:
    result: list[Any] = [None]
    given = [_object(rank, count) for rank in range(session.ranks)]
    objects = given if session.rank == 0 else None
    call = partial(dist.scatter_object_list, result, objects, src=0, group=group)

    def wrong() -> int:
        result[0] = None
        call()
        return int(result[0] != _object(session.rank, count))

    return Side(call, wrong)


_CALLS: dict[str, _Make] = {
    "gather": _gather,
    "scatter": _scatter,
    "reduce": _reduce,
    "all_to_all": _all_to_all,
    "all_to_all_single": _all_to_all_single,
    "all_reduce_product": partial(_all_reduce, torch.float32, dist.ReduceOp.PRODUCT),
    "all_reduce_band": partial(_all_reduce, torch.int32, dist.ReduceOp.BAND),
    "send_recv": _ping_pong,
    "batch_isend_irecv": _batch_isend_irecv,
    "all_gather_object": _all_gather_object,
    "broadcast_object_list": _broadcast_object_list,
    "gather_object": _gather_object,
    "scatter_object_list": _scatter_object_list,
}


def _measure(what: str, label: str, session: Session) -> Row:
    size = min(_SIZES[label], _SIZES["1K"]) if session.quick else _SIZES[label]

    def make(backend: str) -> Side:
        return _CALLS[what](session, session.group(backend), size // 4)

    row: Row = {"what": what, "bytes": size, "size": label}
    makes = {backend: partial(make, backend) for backend in BACKENDS}
    return row | compare(session, makes, {}, repeats=_REPEATS)


PASSED_ON = Family(
    "passed_on",
    tuple(
        FamilyCase(
            f"{what}_{label}",
            f"{what}, {_TITLES[label]}",
            partial(_measure, what, label),
            dict.fromkeys(_RANKS, _WANTED),
        )
        for what in _CALLS
        for label in _SIZES
    ),
)
