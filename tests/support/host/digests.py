"""Sums as hashes: groups of the same ranks have the same, whatever was before."""

import hashlib

import torch
import torch.distributed as dist

__all__ = ["ENGINES", "digest", "fresh"]

ENGINES = {
    "shm": {"AFFLUX_AGGREGATOR": "shm://"},
    "streams": {"AFFLUX_AGGREGATOR": "streams://"},
    "soft": {"AFFLUX_AGGREGATOR": "soft://"},
    "gloo": {"AFFLUX_AGGREGATOR": "gloo://"},
}
"""Environments, by the way that a group's sums take."""


def digest(number: int) -> str:
    """Return a hash of a sum, to which each rank gives elements that its number determines."""
    generator = torch.Generator().manual_seed(number)
    tensor = torch.randn(20_000, generator=generator).exp()
    dist.all_reduce(tensor)
    return hashlib.sha256(tensor.numpy().tobytes()).hexdigest()


def fresh(rank: int, _size: int, numbers: tuple[int, ...]) -> str:
    """Return the digest of a new group whose ranks have these numbers."""
    return digest(numbers[rank])
