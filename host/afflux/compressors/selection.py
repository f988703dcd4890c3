"""Which elements of a tensor to send: the largest."""

import torch

from afflux_drivers import selection

__all__ = ["Bounds", "largest", "largest_of_sums"]

_LOW_BITS = 32


class Bounds:
    """From which value on elements were among the largest, by size of tensor.

    Where a tensor's largest are sought step after step, its last bound is a good guess of the next
    one, and spares a sample: OkTopk's reused thresholds (Li and Hoefler, PPoPP 2022). There a
    threshold is taken as it is for many steps; here it only says where to look first, so the
    selection is the same as without.
    """

    def __init__(self) -> None:
        self._guesses: dict[int, int] = {}

    def largest(self, tensor: torch.Tensor, count: int) -> torch.Tensor:
        """Return what the function of this name does."""
        if tensor.device.type != "cpu":
            return largest(tensor, count)
        guess = self._guesses.get(len(tensor), 0)
        places, self._guesses[len(tensor)] = selection.largest_from(tensor.numpy(), count, guess)
        return torch.from_numpy(places)


def largest(tensor: torch.Tensor, count: int) -> torch.Tensor:
    """Return the places of the elements with the largest absolute values, ascending, on the CPU.

    NaN counts as larger than all. Of elements that are equal to the least of them the first are
    taken; on another device than the CPU, which torch does and nobody has tried here, any.

    Args:
        tensor: Flat float32, contiguous.
        count: How many, from 1 to all.
    """
    if tensor.device.type != "cpu":
        found = torch.topk(tensor.abs(), count, sorted=False).indices
        return found.sort().values.cpu()
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
