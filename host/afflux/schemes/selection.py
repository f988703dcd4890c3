"""Which elements of a tensor to send: the largest."""

import torch

from afflux_drivers import selection

__all__ = ["largest", "largest_of_sums"]

_LOW_BITS = 32


def largest(tensor: torch.Tensor, count: int) -> torch.Tensor:
    """Return the places of the elements with the largest absolute values, ascending.

    NaN counts as larger than all. Of elements that are equally large any may be
    taken.

    Args:
        tensor: Flat float32, contiguous.
        count: How many, from 1 to all.
    """
    return torch.from_numpy(selection.largest(tensor.numpy(), count))


def largest_of_sums(sums: torch.Tensor, count: int) -> torch.Tensor:
    """Return the places of the largest integers by absolute value, ascending.

    Of those that are equally large the first are taken, so that all ranks take the same.

    Args:
        sums: Flat int32, of fewer than 2**32 elements.
        count: How many, from 1 to all.
    """
    places = torch.arange(len(sums) - 1, -1, -1, dtype=torch.int64)
    keys = (sums.to(torch.int64).abs() << _LOW_BITS) + places
    return torch.topk(keys, count, sorted=False).indices.sort().values
