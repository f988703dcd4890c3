"""What a scheme keeps for each gradient, from one step to the next."""

import torch
from torch._C._distributed_c10d import GradBucket

__all__ = ["BucketMemory"]


class BucketMemory:
    """A tensor of zeros beside each of DDP's buckets, which follows the bucket's parameters.

    DDP forms its buckets anew after the first step. What was kept for a parameter then moves on to
    the bucket that has it. To be used for one model.
    """

    def __init__(self) -> None:
        self._buckets: dict[tuple[int, ...], torch.Tensor] = {}
        self._pieces: dict[int, torch.Tensor] = {}

    def of(self, bucket: GradBucket) -> torch.Tensor:
        """Return the bucket's tensor: flat, with the bucket's elements, always the same one."""
        parameters = bucket.parameters()
        key = tuple(map(id, parameters))
        if key not in self._buckets:
            made = torch.zeros_like(bucket.buffer())
            pieces = made.split([each.numel() for each in parameters])
            for number, piece in zip(key, pieces, strict=True):
                if number in self._pieces:
                    piece.copy_(self._pieces[number])
                self._pieces[number] = piece
            kept = set(key)
            self._buckets = {
                other: tensor for other, tensor in self._buckets.items() if not kept & set(other)
            }
            self._buckets[key] = made
        return self._buckets[key]
