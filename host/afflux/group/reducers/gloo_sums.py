"""All-reduces by Gloo for ranks that have lost their aggregators: the same bits, or an error.

Gloo moves elements, and the ranks sum them (`exact_sums`), or take their greatest and least as
engines do. Their calls are compared before, as Gloo itself compares nothing.

Tested: `tests/host/test_fail_over.py`.
"""

import zlib
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np
import torch
from torch._C._distributed_c10d import AllgatherOptions

from afflux.group.call.collectives import Asked
from afflux.group.call.description import Call
from afflux.group.call.tensors import ENGINE_DTYPES, dtype_name, elements_of, write_back
from afflux.group.reducers.fallback import GlooFallback
from afflux.group.reducers.gloo_reducer import GlooReducer
from afflux.group.reducers.reducer import Interruption
from afflux.group.reducers.topology import Topology
from afflux.group.settings.aggregator_url import AggregatorUrl
from afflux_drivers import _native
from afflux_drivers.collective import Reduction
from afflux_drivers.errors import Disagreement

__all__ = ["GlooSums"]

_PIECE_BYTES = 4 << 20
"""So much of each rank's tensor is held at a time where elements themselves are gathered."""

_EXTREMES = {"max": Reduction.MAX, "min": Reduction.MIN}


class _SumPlan(NamedTuple):
    asked: Asked
    call: Call


class GlooSums(GlooReducer):
    """A `Reducer` of what aggregators reduce, by a Gloo group of its own.

    Args:
        fallback: Its group is used by nothing else.
        rank: Own rank.
        size: Ranks of the group.
        url: AFFLUX_AGGREGATOR.
        topology: That of Gloo, with the reason.
    """

    def __init__(
        self,
        fallback: GlooFallback,
        rank: int,
        size: int,
        url: AggregatorUrl,
        topology: Topology,
    ) -> None:
        super().__init__(url, topology)
        self._fallback = fallback
        self._rank = rank
        self._size = size
        self._number = 0

    def plan(self, asked: Asked) -> Any:
        """Return the call with its words; None for what aggregators do not reduce."""
        if asked.collective != "all_reduce" or asked.dtype not in ENGINE_DTYPES:
            return None
        dtype = dtype_name(asked.dtype)
        text = f"all_reduce {asked.reduction} {dtype} {asked.shape}"
        return _SumPlan(asked, Call("all_reduce", dtype, text, text))

    def run(
        self,
        plan: Any,
        inputs: list[torch.Tensor],
        outputs: list[torch.Tensor],
        timeout_s: float,
        interrupted: Interruption,
    ) -> bool:
        """Reduce a tensor in place once the ranks have called the same."""
        (tensor,) = outputs
        self._compare(plan.call.agreed, plan.call.agreed_number, timeout_s, interrupted)
        if plan.asked.reduction in _EXTREMES and tensor.is_floating_point():
            self._take_extremes(plan, tensor, timeout_s, interrupted)
        else:
            reduction = plan.asked.reduction
            self._fallback.all_reduce(tensor, reduction, timeout_s, interrupted)
        return True

    def agree(self, number: int, timeout_s: float, interrupted: Interruption) -> None:
        """Gather the ranks' numbers."""
        self._compare(f"call {number}", number, timeout_s, interrupted)

    def _compare(self, text: str, word: int, timeout_s: float, interrupted: Interruption) -> None:
        self._number += 1
        word = zlib.crc32(f"{self._number}:{word}".encode())
        words = self._gather(torch.tensor([word]), timeout_s, interrupted)
        found = [int(each) for each in words]
        if len(set(found)) == 1:
            return
        others = [rank for rank, each in enumerate(found) if each != found[self._rank]]
        raise Disagreement(
            f"the ranks disagree: rank {self._rank} called this operation, but ranks {others} "
            "called something else",
            number=self._number,
            description=f"{self._number}:{text}",
            fingerprint=found[self._rank],
            fingerprints=tuple(found),
        )

    def _gather(
        self, own: torch.Tensor, timeout_s: float, interrupted: Interruption
    ) -> list[torch.Tensor]:
        """Return this tensor of all ranks, which are as long."""
        found = [torch.empty_like(own) for _ in range(self._size)]
        options = AllgatherOptions()
        options.timeout = timedelta(seconds=timeout_s)
        call = Call("allgather", dtype_name(own.dtype), "the ranks' own elements", "")
        arguments = [found], [own], options
        self._fallback.run("allgather", arguments, call, timeout_s, interrupted)
        return found

    def _take_extremes(
        self, plan: _SumPlan, tensor: torch.Tensor, timeout_s: float, interrupted: Interruption
    ) -> None:
        """Take the greatest or least of each element, and NaN, as engines do; Gloo does not."""
        elements = elements_of(tensor)
        dtype = ENGINE_DTYPES[plan.asked.dtype]
        number = _EXTREMES[plan.asked.reduction].number
        each = _PIECE_BYTES // elements.itemsize
        for start in range(0, len(elements), each):
            piece = elements[start : start + each]
            # Bits: numpy has no bfloat16, and Gloo moves them all the same.
            own = torch.from_numpy(piece.view(np.uint8))
            gathered = self._gather(own, timeout_s, interrupted)
            ranks = [found.numpy().view(piece.dtype) for found in gathered]
            others = [found for rank, found in enumerate(ranks) if rank != self._rank]
            _native.reduce_host(int(dtype), number, 0, piece, others, [])
        write_back(tensor, elements)

    def statistics(self) -> dict[str, Any]:
        """Return nothing: there is no engine that counts."""
        return {}

    def leave(self) -> None:
        """Let go of Gloo."""
        self._fallback.close()
