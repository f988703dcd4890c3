"""Pieces of a collective: parts of its tensors that are carried out one after the other.

While one is on the network, the next ones come down from the device, and the ones before go up. No
sum depends on how its tensors are cut, as each is rounded once. Where they are cut, follows from
what is the same at all ranks: the collective, the dtype and the number of elements.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch

from afflux.group.call.collectives import Asked, Part

__all__ = ["PIECE_BYTES", "pieces_count", "pieces_of"]

PIECE_BYTES = 4 << 20
"""Of a rank's share of a piece: long enough for full speed of bus and network."""


def _step(small: torch.Tensor) -> int:
    return max(1, PIECE_BYTES // small.element_size())


def pieces_count(part: Part) -> int:
    """Return how many pieces a collective has."""
    return max(1, -(-part.small.numel() // _step(part.small)))


def pieces_of(part: Part, size: int) -> Iterator[Part]:
    """Yield the pieces of a collective whose tensors are contiguous.

    Args:
        part: The collective.
        size: Ranks of the group.
    """
    if pieces_count(part) == 1:
        yield part
        return
    small, large = part.small.view(-1), _large(part, size)
    count, step = small.numel(), _step(small)
    for start in range(0, count, step):
        end = min(start + step, count)
        asked = replace(part.asked, shape=(end - start,))
        mine = [small[start:end]]
        theirs = [each[start:end] for each in large]
        yield _with(part, asked, mine, theirs)


def _with(part: Part, asked: Asked, mine: list[torch.Tensor], theirs: list[torch.Tensor]) -> Part:
    if not part.inputs:
        return Part(asked, [], mine)
    if asked.collective == "all_gather":
        return Part(asked, mine, theirs)
    return Part(asked, theirs, mine)


def _large(part: Part, size: int) -> list[torch.Tensor]:
    """Return the tensors of all ranks' elements, flat and one for each; none if there are none."""
    if not part.inputs:
        return []
    all_ranks = part.outputs if part.asked.collective == "all_gather" else part.inputs
    large = [each.view(-1) for each in all_ranks]
    return list(large[0].view(size, -1)) if len(large) == 1 and size > 1 else large
