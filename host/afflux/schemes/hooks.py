"""Schemes as communication hooks of DistributedDataParallel."""

import math
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket

from afflux.schemes.gtopk import take_global_top_k
from afflux.schemes.memory import BucketMemory

__all__ = ["GlobalTopK", "gtopk_hook"]


class GlobalTopK:
    """Settings of gTop-k, and what one model's gradients have left over at this rank.

    Args:
        density: Share of a bucket's elements that is taken in a step, above 0 and at most 1.
        warm_up: Densities of the first steps instead, one after the other, each for
            `warm_up_steps`. Deep Gradient Compression (Lin et al., ICLR 2018, section 3.3) takes
            0.25, 0.0625, 0.015625, 0.004 for an epoch each.
        warm_up_steps: How many steps each of these lasts.
        momentum: If not 0, what is summed up at the rank is the gradients' momentum, and the
            optimiser must have none (momentum correction, the same, section 3.1). Elements that are
            taken lose their momentum (section 3.2).
        group: As for `register_comm_hook`; None for the default group.

    Raises:
        ValueError: A number is out of its range.
    """

    def __init__(
        self,
        density: float = 0.001,
        *,
        warm_up: Sequence[float] = (),
        warm_up_steps: int = 0,
        momentum: float = 0.0,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        for each in (density, *warm_up):
            if not 0.0 < each <= 1.0:
                raise ValueError(f"density is {each}: it must be above 0 and at most 1")
        if warm_up_steps < 0 or not 0.0 <= momentum < 1.0:
            raise ValueError(
                f"warm_up_steps is {warm_up_steps}, and momentum {momentum}: they must be from 0 "
                "on, and momentum below 1"
            )
        self.group = group
        self.steps = 0
        self._density = density
        self._warm_up = tuple(warm_up)
        self._warm_up_steps = warm_up_steps
        self._momentum = momentum
        self._kept = BucketMemory()
        self._velocity = BucketMemory()

    @property
    def density(self) -> float:
        """Share of the elements that is taken in this step."""
        phase = self.steps // self._warm_up_steps if self._warm_up_steps else len(self._warm_up)
        return self._warm_up[phase] if phase < len(self._warm_up) else self._density

    def average(self, bucket: GradBucket) -> torch.Tensor:
        """Return the bucket's average over the ranks: of what is taken; the rest is zero.

        Raises:
            FloatingPointError: A gradient is not finite. Nothing of this bucket is kept.
        """
        gradients = bucket.buffer()
        kept = self._kept.of(bucket)
        count = max(1, math.ceil(self.density * len(kept)))
        # If this step fails, because a gradient is not finite, what is kept stays as it was.
        if self._momentum:
            velocity = self._velocity.of(bucket)
            moved = velocity * self._momentum + gradients
            left = kept + moved
        else:
            left = kept + gradients
        taken = take_global_top_k(left, count, self.group)
        kept.copy_(left)
        if self._momentum:
            moved[taken.places] = 0.0
            velocity.copy_(moved)
        gradients.zero_()
        gradients[taken.places] = taken.sums / dist.get_world_size(self.group)
        self.steps += bucket.is_last()
        return gradients


def gtopk_hook(state: GlobalTopK, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average the k largest elements of a bucket's sum, as a communication hook.

        ddp.register_comm_hook(afflux.GlobalTopK(density=0.001), afflux.gtopk_hook)

    Args:
        state: Used for this model alone.
        bucket: Flat float32 gradients. (DDP calls by this name.)
    """
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(state.average(bucket))
    return future
