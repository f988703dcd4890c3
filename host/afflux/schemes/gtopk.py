"""gTop-k: the k largest elements of the sum, of which nothing is lost.

After S. Shi et al., "A Distributed Synchronous SGD Algorithm with Global Top-k Sparsification for
Low Bandwidth Networks", ICDCS 2019. Each rank offers its k largest elements, the sum of all offers
is made, and all ranks take the same k largest elements of that. Where the paper merges offers in a
tree, and drops elements at each step, here the group sums them all: so any number of ranks will do,
and no offer is dropped on its way.

**Conservation.** What was in a rank's tensor before is in the sum that all ranks take, or still in
that tensor, exactly. For that the offers are integers, multiples of a power of two that all ranks
agree on, and so few bits wide that neither their sum nor its conversion to float32 rounds; what an
offer leaves of an element stays behind with the rank.
"""

import math
from typing import NamedTuple

import torch
import torch.distributed as dist

from afflux.schemes.selection import largest, largest_of_sums

__all__ = ["Taken", "take_global_top_k"]

_MANTISSA_BITS = 24
"""Of a float32."""

_LEAST = -149
"""Every float32 is a multiple of two to this."""


class Taken(NamedTuple):
    """The elements of the sum that all ranks take.

    Attributes:
        places: In the tensor, ascending, int64.
        sums: Over the ranks, float32.
    """

    places: torch.Tensor
    sums: torch.Tensor


def take_global_top_k(
    tensor: torch.Tensor, count: int, group: dist.ProcessGroup | None = None
) -> Taken:
    """Take the largest elements of the ranks' sum out of the ranks' tensors.

    It takes an all-reduce of one number, and one of a sparse tensor with `count` elements.

    Args:
        tensor: Flat float32. What is taken is subtracted from it.
        count: How many elements each rank offers, and how many are taken at most; the same at all
            ranks. Fewer are taken where the sums of others are zero.
        group: The group; None for the default group.

    Returns:
        What was taken; the same at all ranks.

    Raises:
        ValueError: The count is not from 1 to all elements; or the tensor is not flat float32.
        FloatingPointError: A rank's tensor has an infinite element or NaN among the largest, or a
            sum is beyond float32; at all ranks, and no tensor has changed.
    """
    if tensor.dim() != 1 or tensor.dtype != torch.float32:
        raise ValueError(f"the tensor is {tensor.dtype} {tuple(tensor.shape)}, not flat float32")
    if not 1 <= count <= len(tensor):
        raise ValueError(f"count is {count}: it must be from 1 to the {len(tensor)} elements")
    places = largest(tensor, count)
    offered = tensor[places]
    quantum = _agreed_quantum(offered, group)
    if quantum is None:
        return Taken(places[:0], offered[:0])
    # Exact but for the rounding: both are powers of two.
    quanta = torch.round(offered.to(torch.float64) / quantum).to(torch.int32)
    offers = torch.sparse_coo_tensor(
        places.unsqueeze(0), quanta, tensor.shape, is_coalesced=True, check_invariants=False
    )
    dist.all_reduce(offers, group=group)
    union, sums = offers.indices()[0], offers.values()
    chosen = largest_of_sums(sums, min(count, len(sums)))
    chosen = chosen[sums[chosen] != 0]
    taken = union[chosen]
    of_taken = (sums[chosen].to(torch.float64) * quantum).to(torch.float32)
    if of_taken.isinf().any():
        raise FloatingPointError("a sum is beyond the range of float32")
    # Of the own offers those that all ranks take. The rest of an element is exact: it is less than
    # a quantum, and a multiple of what the element is a multiple of.
    at = torch.searchsorted(taken, places).clamp_(max=max(len(taken) - 1, 0))
    mine = taken[at] == places if len(taken) else torch.zeros(len(places), dtype=torch.bool)
    left = offered.to(torch.float64) - quanta.to(torch.float64) * quantum
    tensor[places[mine]] = left[mine].to(torch.float32)
    return Taken(taken, of_taken)


def _agreed_quantum(offered: torch.Tensor, group: dist.ProcessGroup | None) -> float | None:
    """Return the quantum of all ranks' offers; None if these are all zero."""
    most = offered.abs().max().reshape(1)
    # The maximum of what is no number is not defined; infinity is.
    most.nan_to_num_(nan=math.inf, posinf=math.inf)
    dist.all_reduce(most, op=dist.ReduceOp.MAX, group=group)
    (limit,) = most.tolist()
    if math.isinf(limit):
        raise FloatingPointError("a rank's tensor has an infinite element or NaN")
    if limit == 0:
        return None
    ranks = dist.get_world_size(group)
    # Offers are at most 2**(24 - bits) quanta, so that sums have 24 bits.
    bits = (ranks - 1).bit_length() if ranks > 1 else 0
    exponent = math.frexp(limit)[1] - (_MANTISSA_BITS - bits)
    return math.ldexp(1.0, max(exponent, _LEAST))
