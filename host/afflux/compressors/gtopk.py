"""gTop-k: the k largest elements of the sum, of which nothing is lost.

After S. Shi et al., "A Distributed Synchronous SGD Algorithm with Global Top-k Sparsification for
Low Bandwidth Networks", ICDCS 2019. Each rank offers its k largest elements, the sum of all offers
is made, and all ranks take the same k largest elements of that. Where the paper merges offers in a
tree, and drops elements at each step, here all are summed: so any number of ranks will do, and no
offer is dropped on its way. (`gtopk_tree` is the paper's tree.) They are summed in one of two ways,
with the same result to the bit:

* by **lists**: every rank gets every rank's offers, and adds them up. It is one all-gather.
* in the **network**: the group agrees on the union of the places, and sums the offers there, as it
  does with any sparse tensor; an aggregator does the adding. It is less where ranks offer the same
  places, or nearly all.

**Conservation.** What was in a rank's tensor before is in the sum that all ranks take, or still in
that tensor, exactly. For that the offers are integers, multiples of a power of two that all ranks
agree on, and so few bits wide that neither their sum nor its conversion to float32 rounds; the
remainder of an element stays with the rank.
"""

import math
from typing import Literal, NamedTuple

import torch
import torch.distributed as dist

from afflux.compressors.selection import Bounds, largest_of_sums
from afflux_drivers import selection

__all__ = ["Taken", "Way", "agreed_quantum", "take_global_top_k", "way_of"]

_MANTISSA_BITS = 24
"""Of a float32."""

_LEAST = -149
"""Every float32 is a multiple of two to this."""

_HALF = 0x7FFFFFFF
"""Sizes are compared in halves of 31 bits."""

_WORD = 4
_OFFER = 6
"""Bytes of an offer in a list: the low half of its place, and its value."""

Way = Literal["lists", "network"]

# The newer name, where torch has it; it warns of the older one.
_all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)


class Taken(NamedTuple):
    """The elements of the sum that all ranks take, on the CPU.

    Attributes:
        places: In the tensor, ascending, int64.
        sums: Over the ranks, float32.
    """

    places: torch.Tensor
    sums: torch.Tensor


def take_global_top_k(
    tensor: torch.Tensor,
    count: int,
    group: dist.ProcessGroup | None = None,
    *,
    way: Way | None = None,
    bounds: Bounds | None = None,
) -> Taken:
    """Take the largest elements of the ranks' sum out of the ranks' tensors.

    It takes an all-gather; or an all-reduce of one number and one of a sparse tensor with `count`
    elements.

    Args:
        tensor: Flat float32, contiguous. The elements that are taken are subtracted from it.
        count: How many elements each rank offers, and how many are taken at most; the same at all
            ranks. Fewer are taken where the sums of others are zero.
        group: The group; None for the default group.
        way: How offers are summed, the same at all ranks; None for `way_of`. It does not change
            what is taken.
        bounds: This rank's, of the steps before. They do not change what is taken.

    Returns: The elements that were taken; the same at all ranks.

    Raises:
        ValueError: The count is not from 1 to all elements; or the tensor is not flat float32. Or
            counts or tensors' sizes differ between the ranks: then at all of them.
        FloatingPointError: A rank's tensor has an infinite element or NaN among the largest, or a
            sum is beyond float32; at all ranks, and no tensor has changed.
        AffluxError: Counts differ: then at all ranks, unless the group's backend is another.
    """
    if tensor.dim() != 1 or tensor.dtype != torch.float32:
        raise ValueError(f"the tensor is {tensor.dtype} {tuple(tensor.shape)}, not flat float32")
    if not 1 <= count <= len(tensor):
        raise ValueError(f"count is {count}: it must be from 1 to the {len(tensor)} elements")
    tensor = tensor.detach()
    places = (bounds or Bounds()).largest(tensor, count)
    offered = tensor[places.to(tensor.device)].cpu()
    ranks = dist.get_world_size(group)
    if (way or way_of(len(tensor), count, ranks)) == "lists":
        taken, quantum = _by_lists(offered, places, len(tensor), group)
    else:
        taken, quantum = _in_the_network(offered, places, len(tensor), group)
    if len(taken.places):
        selection.settle(offered.numpy(), places.numpy(), taken.places.numpy(), quantum)
        tensor[places.to(tensor.device)] = offered.to(tensor.device)
    return taken


def way_of(elements: int, count: int, ranks: int) -> Way:
    """Return the way by which a rank has less to receive, if offers are at random places.

    Args:
        elements: Of the tensor.
        count: Offers of each rank.
        ranks: How many there are.
    """
    # Multiplied out: powers by a library may differ between hosts.
    free = math.prod([1.0 - count / elements] * ranks)
    union = elements * (1.0 - free)
    network = min((ranks * count + union) * _WORD, elements * _WORD)
    return "lists" if ranks * count * _OFFER <= network else "network"


def _by_lists(
    offered: torch.Tensor, places: torch.Tensor, elements: int, group: dist.ProcessGroup | None
) -> tuple[Taken, float]:
    message = torch.from_numpy(selection.pack(offered.numpy(), places.numpy(), elements))
    ranks = dist.get_world_size(group)
    messages = message.new_empty(ranks * len(message))
    _all_gather(messages, message, group=group)
    sums = selection.largest_sums(messages.numpy(), ranks, elements, len(places))
    return Taken(torch.from_numpy(sums.places), torch.from_numpy(sums.sums)), sums.quantum


def _in_the_network(
    offered: torch.Tensor, places: torch.Tensor, elements: int, group: dist.ProcessGroup | None
) -> tuple[Taken, float]:
    quantum = agreed_quantum(offered, elements, group)
    if quantum is None:
        return Taken(places[:0], offered[:0]), 0.0
    # Exact but for the rounding: both are powers of two.
    quanta = torch.round(offered.to(torch.float64) / quantum).to(torch.int32)
    offers = torch.sparse_coo_tensor(
        places.unsqueeze(0), quanta, (elements,), is_coalesced=True, check_invariants=False
    )
    dist.all_reduce(offers, group=group)
    # Backends other than Afflux may leave it as they like.
    offers = offers.coalesce()
    union, sums = offers.indices()[0], offers.values()
    chosen = largest_of_sums(sums, min(len(places), len(sums)))
    chosen = chosen[sums[chosen] != 0]
    of_taken = (sums[chosen].to(torch.float64) * quantum).to(torch.float32)
    if of_taken.isinf().any():
        raise FloatingPointError("a sum is beyond the range of float32")
    return Taken(union[chosen], of_taken), quantum


def agreed_quantum(
    offered: torch.Tensor, elements: int, group: dist.ProcessGroup | None
) -> float | None:
    """Return the quantum of all ranks' offers; None if these are all zero. A collective.

    Args:
        offered: This rank's: at least one.
        elements: Of the tensor that they are from.
        group: The group; None for the default group.

    Raises:
        ValueError: The ranks offer different numbers of elements, or of different tensors; at all
            ranks.
        FloatingPointError: An offer is infinite or NaN, at any rank.
    """
    # A maximum with NaN is undefined, so NaN becomes infinity.
    most = offered.abs().max().nan_to_num(nan=math.inf, posinf=math.inf)
    halves = [len(offered) >> 31, len(offered) & _HALF, elements >> 31, elements & _HALF]
    # Floats that are not negative are in the order of their bits.
    bits = int(most.view(torch.int32))
    not_finite = dist.get_rank(group) + 1 if most.isinf() else 0
    sizes = [*halves, *(-each for each in halves)]
    agreed = torch.tensor([bits, not_finite, *sizes], dtype=torch.int32)
    dist.all_reduce(agreed, op=dist.ReduceOp.MAX, group=group)
    largest, not_finite, *sizes = agreed.tolist()
    highest, lowest = sizes[: len(halves)], [-each for each in sizes[len(halves) :]]
    if highest != lowest:
        raise ValueError(
            f"ranks offer from {_text(lowest)} to {_text(highest)} elements; this one "
            f"{_text(halves)}"
        )
    limit = torch.tensor(largest, dtype=torch.int32).view(torch.float32).item()
    if not_finite:
        raise FloatingPointError(f"rank {not_finite - 1} has an infinite element or NaN")
    if limit == 0:
        return None
    ranks = dist.get_world_size(group)
    # Offers are at most 2**(24 - bits) quanta, so that sums have 24 bits.
    more_bits = (ranks - 1).bit_length() if ranks > 1 else 0
    exponent = math.frexp(limit)[1] - (_MANTISSA_BITS - more_bits)
    return math.ldexp(1.0, max(exponent, _LEAST))


def _text(halves: list[int]) -> str:
    count_high, count_low, elements_high, elements_low = halves
    return f"{(count_high << 31) + count_low} of {(elements_high << 31) + elements_low}"
