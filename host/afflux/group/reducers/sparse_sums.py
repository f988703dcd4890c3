"""All-reduce of sparse tensors in a group: which calls they are, and what dense ones they take."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import AllgatherOptions

from afflux.group.call.collectives import Asked
from afflux.group.call.description import Call, reduction_name
from afflux.group.call.errors import CallRefused
from afflux.group.call.tensors import dtype_name
from afflux.group.reducers.fallback import GlooFallback
from afflux.group.reducers.reducer import Comparison, Interruption, Reducer
from afflux.sparse.kinds import Kinds
from afflux.sparse.row_sums import all_reduce_coo
from afflux.sparse.sums import Sums, Way
from afflux_hdl.contract import wire

__all__ = ["SparseSums", "sparse_call"]

_REDUCTIONS = ("sum", "avg")

_GLOO_DTYPES = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16,
    torch.int32, torch.int64, torch.int8, torch.uint8, torch.bool,
)  # fmt: skip
"""Which Gloo sums."""

_EIGHTH = 3
"""Bits of a size that are kept behind its first one."""


@dataclass(frozen=True)
class SparseCall(Call):
    """A call that sums a sparse tensor.

    Attributes:
        reduction: "sum" or "avg".
    """

    reduction: str


def sparse_call(method: str, arguments: tuple[Any, ...]) -> SparseCall | None:
    """Return the call if it sums one sparse COO tensor in CPU memory; else None."""
    if method != "allreduce":
        return None
    tensors, options = arguments
    reduction = reduction_name(options.reduceOp)
    if len(tensors) != 1 or reduction not in _REDUCTIONS:
        return None
    (tensor,) = tensors
    if not tensor.is_cpu or tensor.layout is not torch.sparse_coo:
        return None
    name = dtype_name(tensor.dtype)
    text = f"all_reduce {reduction} sparse {name} {tuple(tensor.shape)}"
    agreed = f"{text} {tensor.sparse_dim()}"
    return SparseCall("all_reduce", name, text, agreed, reduction)


class SparseSums(Sums):
    """A group's sums of sparse tensors, as steps of one operation that has the turn.

    Args:
        reducer: The group's.
        fallback: The group's, for calls that the reducer does not take.
        interrupted: See `Reducer.run`.
        rank: Own rank.
        size: Ranks.
        count: Called for each step that the engine has carried out.
    """

    def __init__(
        self,
        reducer: Reducer[Any],
        fallback: GlooFallback,
        interrupted: Interruption,
        rank: int,
        size: int,
        count: Callable[[], None],
    ) -> None:
        self.rank = rank
        self.size = size
        self.columns_shared = len(reducer.tickets) > 1 or reducer.topology.streamed
        self.kinds = Kinds(size)
        self._reducer = reducer
        self._fallback = fallback
        self._interrupted = interrupted
        self._count = count
        self._until = 0.0

    def limit(self, timeout_s: float) -> None:
        """Let the next steps have so much time, together."""
        self._until = time.monotonic() + timeout_s

    def replace(
        self, call: SparseCall, tensor: torch.Tensor, timeout_s: float
    ) -> list[torch.Tensor]:
        """Replace a sparse tensor by the group's sum, if all ranks have made the same call.

        Args:
            call: The result of `sparse_call`.
            tensor: Its tensor.
            timeout_s: For all steps together.

        Returns:
            The tensor.

        Raises:
            AffluxError: As for any all-reduce.
        """
        self.limit(timeout_s)
        self._reducer.agree(call.agreed_number, timeout_s, self._interrupted)
        self._check(call, tensor.dtype)
        result = all_reduce_coo(tensor, call.reduction, self, self.kinds)
        # A collective is not a step of autograd. Nor is the result copied once more.
        with torch.no_grad(), torch.inference_mode(tensor.is_inference()):
            if tensor._is_view() and tensor._base is not None and tensor._base.is_complex():
                # torch hands over `view_as_real` of a complex tensor, and looks at that no more.
                values = torch.view_as_complex(result.values().contiguous())
                tensor._base.data = torch.sparse_coo_tensor(
                    result.indices(), values, tensor._base.shape, is_coalesced=True,
                    check_invariants=False,
                )  # fmt: skip
            tensor.data = result
        return [tensor]

    def _check(self, call: SparseCall, dtype: torch.dtype) -> None:
        """Check, at every rank alike, that the last step can be carried out."""
        if dtype not in _GLOO_DTYPES and self.way(dtype, call.reduction) is Way.GLOO:
            raise CallRefused(f"{call.text}: neither the engine nor Gloo sums {call.dtype}")

    def way(self, dtype: torch.dtype, reduction: str) -> Way:
        """See `Sums`."""
        reducer = self._reducer
        if reducer.plan(Asked("all_reduce", dtype, (1,), reduction)) is None:
            return Way.GLOO
        if not reducer.tickets:
            return Way.STREAMS if reducer.topology.streamed else Way.MEMORY
        return Way.AGGREGATOR

    def capacity(self, elements: int, element_bytes: int = 4) -> int:
        """Return the least number from `elements` on with at most four significant bits.

        Where aggregators share the columns, the next whole row of their grid: then all have as many
        blocks (`docs/protocol.md`, section 3).
        """
        shift = max(0, elements.bit_length() - 1 - _EIGHTH)
        size = -(-elements >> shift) << shift if shift else elements
        tickets = self._reducer.tickets
        if len(tickets) < 2:
            return size
        slots = min(each.slots for each in tickets)
        row = len(tickets) * slots * tickets[0].lanes * wire.BLOCK_BYTES // element_bytes
        return size if size <= row else -(-size // row) * row

    def all_reduce(self, tensor: torch.Tensor, reduction: str) -> None:
        """See `Sums`."""
        asked = Asked("all_reduce", tensor.dtype, tuple(tensor.shape), reduction)
        if not self._by_reducer(asked, [], [tensor]):
            options = dist.AllreduceOptions()
            options.reduceOp = getattr(dist.ReduceOp, reduction.upper())
            self._by_gloo("allreduce", asked, [tensor], options)

    def all_gather(self, tensor: torch.Tensor, counts: list[int]) -> torch.Tensor:
        """See `Sums`."""
        most = self.capacity(max(counts))
        asked = Asked("all_gather", tensor.dtype, (most,))
        plan = self._reducer.plan(asked)
        if plan is None and self._reducer.comparison is not Comparison.NEVER:
            return self._summed_up(tensor, counts)
        padded = tensor.new_zeros(most)
        padded[: tensor.numel()] = tensor
        gathered = list(tensor.new_empty((self.size, most)))
        if not self._by_reducer(asked, [padded], gathered):
            self._by_gloo("allgather", asked, [gathered], [padded], AllgatherOptions())
        return torch.cat([each[:count] for each, count in zip(gathered, counts, strict=True)])

    def _summed_up(self, tensor: torch.Tensor, counts: list[int]) -> torch.Tensor:
        """Gather by a sum to which each rank gives its part, and zeros, which are not sent."""
        total = sum(counts)
        gathered = tensor.new_zeros(self.capacity(total))
        before = sum(counts[: self.rank])
        gathered[before : before + tensor.numel()] = tensor
        self.all_reduce(gathered, "sum")
        return gathered[:total]

    def _by_reducer(
        self, asked: Asked, inputs: list[torch.Tensor], outputs: list[torch.Tensor]
    ) -> bool:
        plan = self._reducer.plan(asked)
        if plan is None:
            return False
        if self._reducer.run(plan, inputs, outputs, self._left_s(), self._interrupted):
            self._count()
        return True

    def _by_gloo(self, method: str, asked: Asked, *arguments: Any) -> None:
        options = arguments[-1]
        options.timeout = timedelta(seconds=self._left_s())
        name = dtype_name(asked.dtype)
        text = f"{asked.collective} {asked.reduction} {name} {asked.shape} of a sparse all_reduce"
        call = Call(asked.collective, name, text, text)
        self._fallback.run(method, arguments, call, self._left_s(), self._interrupted)

    def _left_s(self) -> float:
        return max(self._until - time.monotonic(), 0.001)
