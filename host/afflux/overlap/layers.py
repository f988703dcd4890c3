"""Records how long each layer of a model computes."""

import time
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from afflux.overlap.hook import WeakHook
from afflux.overlap.record import Record, layer_of

__all__ = ["LayerTimes"]


class LayerTimes:
    """Hooks in a model that add its layers' times to a record.

    A layer is a module with parameters of its own. Its backward pass is over when the gradient of a
    parameter of its is there, and has begun when that of another one before was.

    Args:
        model: The model, unwrapped.
        record: Gets the times.
    """

    def __init__(self, model: nn.Module, record: Record) -> None:
        self._record = record
        self._mark_s = time.monotonic()
        self._begun: dict[str, list[float]] = {}
        for name, module in model.named_modules():
            if any(True for _ in module.parameters(recurse=False)):
                self._watch(name, module)
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                self._watch_gradient(layer_of(name), parameter)

    def _watch(self, name: str, module: nn.Module) -> None:
        self._begun[name] = []
        module.register_forward_pre_hook(WeakHook(self, "_before", name))
        module.register_forward_hook(WeakHook(self, "_after", name), always_call=True)

    def _before(self, name: str, *_: Any) -> None:
        self._begun[name].append(time.monotonic())

    def _after(self, name: str, *_: Any) -> None:
        if self._begun[name]:
            self._record.add("forward", name, self._begun[name].pop(), time.monotonic())

    def _watch_gradient(self, layer: str, parameter: torch.Tensor) -> None:
        parameter.register_post_accumulate_grad_hook(WeakHook(self, "_there", layer))

    def _there(self, layer: str, _: torch.Tensor) -> None:
        now = time.monotonic()
        self._record.add("backward", layer, self._mark_s, now)
        self._mark_s = now

    def watch_output(self, output: Any) -> None:
        """Let the backward pass begin when the gradient of the model's output is there."""
        for each in tree_leaves(output):
            if isinstance(each, torch.Tensor) and each.requires_grad:
                each.register_hook(self._output_gradient)

    def _output_gradient(self, _: torch.Tensor) -> None:
        self.resume()

    def resume(self) -> None:
        """Note that computing goes on, after something else."""
        self._mark_s = time.monotonic()
