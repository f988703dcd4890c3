"""Collectives by Gloo for ranks that have lost their aggregators: the same bits, or an error.

Gloo moves elements, and the ranks sum them (`exact_sums`), or reduce them as engines and streams
do. Their calls are compared before, as Gloo itself compares nothing.

Tested: `tests/host/test_fail_over.py`, `tests/host/test_fail_over_streams.py`.
"""

import zlib
from datetime import timedelta
from typing import Any, NamedTuple

import torch
from torch._C._distributed_c10d import AllgatherOptions, BroadcastOptions

from afflux.group.call.collectives import Asked
from afflux.group.call.description import Call
from afflux.group.call.tensors import ENGINE_DTYPES, dtype_name, plain
from afflux.group.reducers.fallback import GlooFallback
from afflux.group.reducers.gloo_reducer import GlooReducer
from afflux.group.reducers.reducer import Interruption
from afflux.group.reducers.topology import Topology
from afflux.group.settings.aggregator_url import AggregatorUrl
from afflux_drivers import _native
from afflux_drivers._native import Turn
from afflux_drivers.collectives.call import REDUCED_DTYPES, REDUCTIONS
from afflux_drivers.errors import Disagreement
from afflux_hdl.contract import wire

__all__ = ["GlooSums"]

_PIECE_BYTES = 4 << 20
"""So much of each rank's tensor is held at a time where elements themselves are gathered."""

_EXTREMES = ("max", "min")


class _SumPlan(NamedTuple):
    asked: Asked
    call: Call


class GlooSums(GlooReducer):
    """A `Reducer` of what aggregators and streams carry out, by a Gloo group of its own.

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
        self._turn = Turn()

    def follow(self, turn: Turn) -> None:
        """Compare, before each operation, what the group has called of Gloo, too."""
        self._turn = turn

    def plan(self, asked: Asked) -> Any:
        """Return the call with its words; None for what is not reduced elsewhere either."""
        dtype = dtype_name(asked.dtype)
        if asked.reduction and (dtype not in REDUCED_DTYPES or asked.reduction not in REDUCTIONS):
            return None
        text = f"{asked.collective} {asked.reduction} {dtype} {asked.shape} root {asked.root}"
        return _SumPlan(asked, Call(asked.collective, dtype, text, text))

    def run(
        self,
        plan: Any,
        inputs: list[torch.Tensor],
        outputs: list[torch.Tensor],
        timeout_s: float,
        interrupted: Interruption,
    ) -> bool:
        """Carry a collective out once the ranks have called the same."""
        self._compare(plan.call.agreed, plan.call.agreed_number, timeout_s, interrupted)
        asked = plan.asked
        if not any(each.numel() for each in outputs):
            return True
        if asked.collective == "all_reduce":
            self._reduce(asked, outputs[0], timeout_s, interrupted)
        elif asked.collective == "reduce_scatter":
            count = outputs[0].numel()
            whole = torch.cat([plain(each.data).reshape(-1) for each in inputs])
            self._reduce(asked, whole, timeout_s, interrupted)
            own = whole[self._rank * count :][:count]
            with torch.inference_mode(outputs[0].is_inference()):
                outputs[0].data.copy_(own.view(outputs[0].shape))
        elif asked.collective == "broadcast":
            options = BroadcastOptions()
            options.rootRank = asked.root
            options.timeout = timedelta(seconds=timeout_s)
            of_call = [outputs[0].data], options
            self._fallback.run("broadcast", of_call, plan.call, timeout_s, interrupted)
        else:
            self._all_gather(plan.call, inputs[0].data, outputs, timeout_s, interrupted)
        return True

    def _all_gather(
        self,
        call: Call,
        own: torch.Tensor,
        outputs: list[torch.Tensor],
        timeout_s: float,
        interrupted: Interruption,
    ) -> None:
        data = [each.data for each in outputs]
        of_one = len(data) == 1 < self._size
        tensors = (data[0], own) if of_one else ([data], [own])
        options = AllgatherOptions()
        options.timeout = timedelta(seconds=timeout_s)
        method = "_allgather_base" if of_one else "allgather"
        self._fallback.run(method, (*tensors, options), call, timeout_s, interrupted)

    def _reduce(
        self, asked: Asked, tensor: torch.Tensor, timeout_s: float, interrupted: Interruption
    ) -> None:
        extreme = asked.reduction in _EXTREMES and tensor.is_floating_point()
        if extreme or asked.dtype not in ENGINE_DTYPES:
            self._reduce_gathered(asked, tensor, timeout_s, interrupted)
        else:
            self._fallback.all_reduce(tensor, asked.reduction, timeout_s, interrupted)

    def agree(self, number: int, timeout_s: float, interrupted: Interruption) -> None:
        """Gather the ranks' numbers."""
        self._compare(f"call {number}", number, timeout_s, interrupted)

    def _compare(self, text: str, word: int, timeout_s: float, interrupted: Interruption) -> None:
        self._number += 1
        word = zlib.crc32(f"{self._number}:{word}:{self._turn.history}".encode())
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

    def _reduce_gathered(
        self, asked: Asked, tensor: torch.Tensor, timeout_s: float, interrupted: Interruption
    ) -> None:
        """Reduce the elements of all ranks here, where Gloo's result has other bits."""
        flat = plain(tensor.data).reshape(-1)
        for piece in flat.split(max(1, _PIECE_BYTES // flat.element_size())):
            # Bits: numpy has no bfloat16, and Gloo moves them all the same. In whole blocks.
            octets = piece.view(torch.uint8)
            own = torch.zeros(
                -(-len(octets) // wire.BLOCK_BYTES) * wire.BLOCK_BYTES, dtype=torch.uint8
            )
            own[: len(octets)] = octets
            ranks = self._gather(own, timeout_s, interrupted)
            dtype, reduction = REDUCED_DTYPES[dtype_name(asked.dtype)], REDUCTIONS[asked.reduction]
            arrays = [each.numpy() for each in ranks]
            _native.reduce_in_order(dtype, reduction, arrays, own.numpy())
            octets.copy_(own[: len(octets)])
        if flat.data_ptr() != tensor.data_ptr():
            with torch.inference_mode(tensor.is_inference()):
                tensor.data.copy_(flat.view(tensor.shape))

    def statistics(self) -> dict[str, Any]:
        """Return nothing: there is no engine that counts."""
        return {}

    def leave(self) -> None:
        """Let go of Gloo."""
        self._fallback.close()
