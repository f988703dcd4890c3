"""Tensors in memory that the other ranks of the host can reach: all-reduced in one pass.

An ordinary tensor lies where only its own rank can read it, so that rank copies it, a batch at a
time, into shared memory, and the result out again. A reachable one is read and written in place.

    gradients = afflux.reachable_gradients(model)     # once; p.grad of all parameters from now on
    for x, y in batches:
        gradients.zero()                              # not optimiser.zero_grad(): see below
        loss(model(x), y).backward()
        gradients.all_reduce()                        # the average, one pass
        optimiser.step()
"""

import math
from typing import Any

import torch
import torch.distributed as dist

from afflux.group_statistics import group_of
from afflux_hdl.contract import wire

__all__ = ["ReachableGradients", "empty", "reachable_gradients"]


def empty(
    *shape: Any, dtype: torch.dtype | None = None, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    """Make a tensor that every rank of the group reaches. Collective: all ranks ask for the same.

    It is an ordinary CPU tensor in all other respects. Its memory is the group's, zero at first,
    and goes back to the system with the last tensor that shares it; it may outlive the group. In a
    group whose ranks share no memory it is a tensor like any other. An all-reduce takes one pass if
    at every rank the tensor is the same part of the same reachable one.

    Args:
        shape: As for `torch.empty`.
        dtype: Default: torch's default dtype.
        group: Of backend "afflux"; default: the default group.

    Raises:
        AffluxError: The ranks asked for different tensors, or there is no memory. The group has
            failed.
    """
    sizes = torch.Size(shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)
    kind = torch.get_default_dtype() if dtype is None else dtype
    return group_of(group).empty(math.prod(sizes), kind).view(sizes)


class ReachableGradients:
    """Gradients of a module's parameters, side by side in reachable tensors.

    Made by `reachable_gradients`.

    Attributes:
        flat: One 1-D tensor for each dtype, with all gradients of that dtype. Each gradient begins
            at a block of its own, so that none shares its exponent with another.
    """

    def __init__(self, module: torch.nn.Module, group: dist.ProcessGroup | None) -> None:
        self._group = group
        self.flat: list[torch.Tensor] = []
        self._views: list[tuple[torch.nn.Parameter, torch.Tensor]] = []
        by_dtype: dict[torch.dtype, list[torch.nn.Parameter]] = {}
        for parameter in module.parameters():
            if parameter.requires_grad:
                by_dtype.setdefault(parameter.dtype, []).append(parameter)
        for dtype, parameters in by_dtype.items():
            lengths = [_whole_blocks(parameter.numel(), dtype) for parameter in parameters]
            flat = empty(sum(lengths), dtype=dtype, group=group)
            self.flat.append(flat)
            for parameter, piece in zip(parameters, flat.split(lengths), strict=True):
                view = piece[: parameter.numel()].view(parameter.shape)
                if parameter.grad is not None:
                    view.copy_(parameter.grad)
                self._views.append((parameter, view))
                parameter.grad = view

    def zero(self) -> None:
        """Set all gradients to zero.

        In place of the optimiser's `zero_grad()`, which by default drops the gradients; backward
        would then put new ones into ordinary memory.
        """
        for flat in self.flat:
            flat.zero_()

    def all_reduce(self, op: Any = dist.ReduceOp.AVG) -> None:
        """Reduce all gradients over the ranks of the group.

        Raises:
            ValueError: A parameter's gradient has been replaced.
            AffluxError: As for any collective.
        """
        for parameter, view in self._views:
            if parameter.grad is None or parameter.grad.data_ptr() != view.data_ptr():
                raise ValueError(
                    f"the gradient of a parameter of shape {tuple(parameter.shape)} was replaced: "
                    "use zero(), or zero_grad(set_to_none=False)"
                )
        for flat in self.flat:
            dist.all_reduce(flat, op=op, group=self._group)


def _whole_blocks(elements: int, dtype: torch.dtype) -> int:
    of = wire.BLOCK_BYTES // dtype.itemsize
    return -(-elements // of) * of


def reachable_gradients(
    module: torch.nn.Module, group: dist.ProcessGroup | None = None
) -> ReachableGradients:
    """Put the gradients of all parameters that require one into reachable tensors. Collective.

    Backward adds to gradients that exist where they are, so they stay there. For a training loop
    without DistributedDataParallel, which keeps gradients in buckets of its own.

    Args:
        module: The same at all ranks, on the CPU.
        group: Of backend "afflux"; default: the default group.

    Raises:
        AffluxError: The ranks' modules differ, or there is no memory. The group has failed.
    """
    return ReachableGradients(module, group)
