"""Random collectives, the same at every rank, each of whose results is judged element by element.

A call is drawn from the campaign's seed, the trial and its own number. So a rank knows what every
other one gives, and needs nobody to know the result.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from tests.chaos.data import FORMS, MOST_ELEMENTS, Form, Units, difference, total, units

__all__ = ["KINDS", "Call", "WrongResult", "drawn", "play"]

KINDS = (
    "all_reduce",
    "all_reduce, several at once",
    "all_reduce_coalesced",
    "broadcast",
    "all_gather",
    "reduce_scatter",
    "barrier",
)
_WEIGHTS = (8, 4, 2, 2, 2, 2, 1)
_AT_ONCE = 4
_OPS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}
_GARBAGE = 77


class WrongResult(Exception):
    """A collective has returned a result that is not the right one: the worst of all outcomes."""


@dataclass(frozen=True)
class Call:
    """One collective.

    Attributes:
        number: Its place among those of the trial.
        kind: One of KINDS.
        dtype: A name in `FORMS`.
        op: sum, avg, max or min.
        count: Elements that a rank gives, or for a scatter gets.
        root: A random number, which modulo the ranks is the root.
    """

    number: int
    kind: str
    dtype: str
    op: str
    count: int
    root: int

    def __str__(self) -> str:
        return f"call {self.number}, {self.kind} {self.op} {self.dtype} ({self.count},)"


def drawn(seed: int, trial: int, number: int, most: int = MOST_ELEMENTS) -> Call:
    """Return a call of a trial, of `most` elements at most."""
    choose = random.Random(f"{seed} {trial} {number}")
    kind = choose.choices(KINDS, _WEIGHTS)[0]
    op = choose.choices(("sum", "avg", "max", "min"), (12, 2, 1, 1))[0]
    # As many small tensors as large ones, by the logarithm.
    count = round(2 ** choose.uniform(0, (most - 1).bit_length()))
    dtypes = (8, 3, 3, 1, 3, 1)
    return Call(
        number,
        kind,
        choose.choices(tuple(FORMS), dtypes)[0],
        op if kind.startswith(("all_reduce", "reduce")) else "",
        max(1, min(count, most) // (8 if kind in ("all_gather", "reduce_scatter") else 1)),
        choose.randrange(2520),
    )


def play(call: Call, rank: int, members: Sequence[int], key: tuple[object, ...]) -> int:
    """Carry out a call at this rank of the default group; return how many elements were judged.

    Args:
        call: The call.
        rank: This rank's place among the members.
        members: Who is in the group, by numbers that stay when ranks get others.
        key: What else the contributions depend on.

    Raises:
        WrongResult: A result is not the exact one.
    """
    return _Played(call, rank, members, key).run()


class _Played:
    def __init__(
        self, call: Call, rank: int, members: Sequence[int], key: tuple[object, ...]
    ) -> None:
        self.call, self.rank, self.members, self.key = call, rank, members, key
        self.form: Form = FORMS[call.dtype]
        self.size = len(members)
        whole = self.size & (self.size - 1) == 0 and self.form.dtype.is_floating_point
        self.op = call.op if call.op != "avg" or whole else "sum"

    def run(self) -> int:
        kind = self.call.kind
        if kind == "barrier":
            dist.barrier()
            return 0
        if kind in ("all_reduce", "all_reduce, several at once", "all_reduce_coalesced"):
            return self._all_reduces(kind)
        return {
            "broadcast": self._broadcast,
            "all_gather": self._all_gather,
            "reduce_scatter": self._reduce_scatter,
        }[kind]()

    def _brought(self, count: int, part: int = 0) -> list[Units]:
        key = (*self.key, self.call.number, part)
        return [units(self.call.dtype, count, *key, each) for each in self.members]

    def _judge(self, found: torch.Tensor, exact: Units, brought: Sequence[Units] = ()) -> int:
        form = self.form
        if self.op == "avg":
            # A power of two: the same digits, of smaller units.
            shift = self.size.bit_length() - 1
            form = Form(form.dtype, form.digits, form.spread, form.unit - shift)
        told = difference(form, found, exact, brought, self.op)
        if told:
            raise WrongResult(f"{self.call} at rank {self.rank} of {self.size}: {told}")
        return found.numel()

    def _all_reduces(self, kind: str) -> int:
        several = 1 if kind == "all_reduce" else _AT_ONCE
        op = dist.ReduceOp.AVG if self.op == "avg" else _OPS[self.op]
        everything = [self._brought(max(1, self.call.count >> n), n) for n in range(several)]
        tensors = [self.form.tensor(each[self.rank]) for each in everything]
        if kind == "all_reduce":
            dist.all_reduce(tensors[0], op)
        elif kind == "all_reduce_coalesced":
            dist.all_reduce_coalesced(tensors, op)
        else:
            works = [dist.all_reduce(each, op, async_op=True) for each in tensors]
            for work in works:
                assert work is not None
                work.wait()
        reduction = "sum" if self.op == "avg" else self.op
        return sum(
            self._judge(each, total(reduction, brought), brought)
            for each, brought in zip(tensors, everything, strict=True)
        )

    def _broadcast(self) -> int:
        root = self.call.root % self.size
        brought = self._brought(self.call.count)
        tensor = self.form.tensor(brought[self.rank])
        dist.broadcast(tensor, root)
        return self._judge(tensor, brought[root], brought)

    def _all_gather(self) -> int:
        brought = self._brought(self.call.count)
        found = torch.full((self.size * self.call.count,), _GARBAGE, dtype=self.form.dtype)
        dist.all_gather_into_tensor(found, self.form.tensor(brought[self.rank]))
        for rank, each in enumerate(brought):
            self._judge(found[rank * len(each) : (rank + 1) * len(each)], each)
        return found.numel()

    def _reduce_scatter(self) -> int:
        count = self.call.count
        brought = self._brought(self.size * count)
        found = torch.full((count,), _GARBAGE, dtype=self.form.dtype)
        op = dist.ReduceOp.AVG if self.op == "avg" else _OPS[self.op]
        dist.reduce_scatter_tensor(found, self.form.tensor(brought[self.rank]), op)
        own = slice(self.rank * count, (self.rank + 1) * count)
        parts = [each[own] for each in brought]
        reduction = "sum" if self.op == "avg" else self.op
        return self._judge(found, total(reduction, parts), parts)
