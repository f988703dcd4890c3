"""MSTopK: about the k largest elements, by a search for the value from which on they are.

After S. Shi et al., "Towards Scalable Distributed Training of Deep Learning on Public Cloud
Clusters", MLSys 2021 (arXiv 2010.10458), algorithm 1. Between the mean and the maximum of the
absolute values it halves a range of thresholds, and counts the elements above each, some 30 times.
It ends with a threshold that too few elements reach, and a lower one that enough reach; it takes
all of the first, and of those between the two as many as lack, next to each other at a random
place. Each pass is a comparison and a sum, which a GPU does fast, where it has to sort for an exact
selection. On a CPU every pass costs as much as all of `selection.largest`, which is exact: it is
here to compare, and for tensors on other devices.
"""

from typing import NamedTuple

import torch

__all__ = ["Search", "mstopk", "search"]

PASSES = 30
"""The paper's number of samplings."""


class Search(NamedTuple):
    """Where the largest elements end, as far as a search has come.

    Attributes:
        high: Fewer than wanted reach it, or as many as wanted.
        above: How many reach it.
        low: More than wanted reach it, or all do.
        at_least: How many reach it.
    """

    high: float
    above: int
    low: float
    at_least: int


def search(magnitudes: torch.Tensor, count: int, passes: int = PASSES) -> Search:
    """Search between the mean and the maximum.

    Args:
        magnitudes: Flat, none negative, all finite.
        count: Number of elements to take, from 1 to all.
        passes: How many thresholds are tried.
    """
    mean, most = float(magnitudes.mean()), float(magnitudes.max())
    found = Search(float("inf"), 0, 0.0, len(magnitudes))
    least_share, most_share = 0.0, 1.0
    for _ in range(passes):
        share = (least_share + most_share) / 2
        threshold = mean + share * (most - mean)
        reached = int((magnitudes >= threshold).count_nonzero())
        if reached <= count:
            most_share = share
            if reached >= found.above:
                found = found._replace(high=threshold, above=reached)
        else:
            least_share = share
            if reached <= found.at_least:
                found = found._replace(low=threshold, at_least=reached)
    return found


def mstopk(
    tensor: torch.Tensor,
    count: int,
    *,
    passes: int = PASSES,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """Return the places of about the largest elements by absolute value, ascending.

    They are as many as asked for. How many of them are not among the largest is at most what the
    search has left between its two thresholds: `count - Search.above`.

    Args:
        tensor: Flat, of numbers that are finite.
        count: How many, from 1 to all.
        passes: How many thresholds are tried.
        generator: For the place from which the last ones are taken; None for torch's own.
    """
    magnitudes = tensor.abs()
    found = search(magnitudes, count, passes)
    sure = (magnitudes >= found.high).nonzero().view(-1)
    lacking = count - len(sure)
    between = ((magnitudes >= found.low) & (magnitudes < found.high)).nonzero().view(-1)
    first = int(torch.randint(len(between) - lacking + 1, (1,), generator=generator))
    return torch.cat((sure, between[first : first + lacking])).sort().values
