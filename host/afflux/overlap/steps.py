"""An optimiser's step, parameter by parameter, when each one's gradient is known.

The user calls `optimizer.step()` as ever. A hook hides the gradients that are still being averaged,
so that the step leaves their parameters alone, and notes the settings of that moment. Later the
same optimiser is applied to some of these parameters alone, with these settings.
"""

import logging
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from afflux_drivers.errors import AffluxError

__all__ = ["DeferredSteps", "GradientsChanged", "check_deferrable"]

_log = logging.getLogger("afflux")

_EACH_ALONE = frozenset(
    {
        "ASGD",
        "Adadelta",
        "Adafactor",
        "Adagrad",
        "Adam",
        "AdamW",
        "Adamax",
        "Muon",
        "NAdam",
        "RAdam",
        "RMSprop",
        "Rprop",
        "SGD",
    }
)
"""Optimisers of torch whose step of a parameter depends on no other parameter."""


class GradientsChanged(AffluxError):
    """Gradients were changed while they were not yet averaged; the message names the parameter."""


@dataclass(frozen=True)
class _Deferred:
    """The needs of a parameter's step, beside its gradient."""

    parameter: torch.Tensor
    optimizer: Optimizer
    group: int
    settings: Mapping[str, Any]


class DeferredSteps:
    """The steps of a model's optimisers.

    Args:
        optimizers: All that change the model's parameters.
        names: Of the model's parameters, by `id`.
        averages: Waits until the gradients of some parameters are averaged, and returns these.
        changed: Called when there are others to be watched than before.
        applied: Called when the steps of some are done, with them and when that began.
        any_optimizer: Whether optimisers of unknown kinds are taken.

    Attributes:
        pending: Parameters whose step was asked for and has not been done, by `id`.
        owned: The `id` of each parameter that the optimisers have.
        wanted: The tensors to watch, by `id`: these parameters, and gradients before a step.
        replaceable: The gradients of steps that are deferred, by `id`: they may be overwritten.

    Raises:
        ValueError: An optimiser cannot be applied to some parameters alone.
    """

    def __init__(
        self,
        optimizers: Sequence[Optimizer],
        names: Mapping[int, str],
        averages: Callable[[Sequence[torch.Tensor]], list[torch.Tensor]],
        changed: Callable[[], None],
        applied: Callable[[Sequence[torch.Tensor], float], None],
        any_optimizer: bool = False,
    ) -> None:
        self._names = names
        self._averages = averages
        self._changed = changed
        self._applied = applied
        self.pending: dict[int, _Deferred] = {}
        self.wanted: dict[int, Any] = {}
        self.replaceable: dict[int, torch.Tensor] = {}
        self._waiting_gradients: dict[int, torch.Tensor] = {}
        self._gathered: dict[int, tuple[torch.Tensor, torch.Tensor, int]] = {}
        self._spent: dict[int, tuple[torch.Tensor, int]] = {}
        self._hidden: list[tuple[torch.Tensor, torch.Tensor]] = []
        # Another thread waits for the one that applies; that one itself must not begin again.
        self._lock = threading.RLock()
        self._applying = False
        self._told = False
        self.owned: set[int] = set()
        for optimizer in optimizers:
            _check_kind(optimizer, any_optimizer)
            for parameter in _parameters(optimizer):
                if id(parameter) in self.owned:
                    raise ValueError(f"{self._name(parameter)} is in two optimizers")
                self.owned.add(id(parameter))
        for optimizer in optimizers:
            self._handle(optimizer)

    def _handle(self, optimizer: Optimizer) -> None:
        handle = optimizer.register_step_pre_hook(self._before_step)
        # Other hooks must see the output of this one.
        hooks: Any = optimizer._optimizer_step_pre_hooks
        hooks.move_to_end(handle.id, last=False)
        optimizer.register_step_post_hook(self._after_step)
        optimizer.register_state_dict_pre_hook(lambda _: self.apply_all())
        optimizer.register_load_state_dict_pre_hook(lambda *_: self.apply_all())
        # A copy, too, is to have what is still to come.
        optimizer.__getstate__ = _CompleteState(self, optimizer)  # type: ignore[method-assign]

    def _name(self, parameter: torch.Tensor) -> str:
        return self._names.get(id(parameter), "a parameter that is not the model's")

    def gathered(self, parameters: Iterable[torch.Tensor]) -> None:
        """Note, at the end of a backward pass, gradients whose averages are still to come."""
        self._reveal()
        self._gathered = {}
        for each in parameters:
            # A parameter that no rank has used has none.
            if each.grad is not None:
                self._gathered[id(each)] = each, each.grad, each.grad._version
        self._spent = {}
        self._watch()

    @property
    def waiting(self) -> bool:
        """Whether there are gradients, or steps, that wait for averages."""
        return bool(self._gathered or self.pending)

    def write_averages(self) -> None:
        """Replace the gradients by their averages, if there has been no step since.

        Raises:
            GradientsChanged: They have been changed since the backward pass.
        """
        with self._lock:
            left = [each for each in self._gathered.values() if self._unchanged(each[0])]
            averages = self._averages([parameter for parameter, _, _ in left]) if left else []
            self._gathered = {}
            self._watch()
            if left:
                with torch.no_grad():
                    torch._foreach_copy_([gradient for _, gradient, _ in left], averages)

    def touch(self, tensors: Collection[torch.Tensor]) -> None:
        """Have all done that must be before an operation takes parameters or gradients."""
        with self._lock:
            if self._applying:
                return
            if any(id(each) in self._waiting_gradients for each in tensors):
                self.write_averages()
            if any(id(each) in self.replaceable for each in tensors):
                self.apply_all()
        self.apply(tensors)

    def _watch(self) -> None:
        """Say anew what is watched."""
        self._waiting_gradients = {id(each): each for _, each, _ in self._gathered.values()}
        self.wanted = {**self.pending, **self._waiting_gradients}
        self.replaceable = {id(each): each for each, _ in self._spent.values()}
        self._changed()

    def apply_all(self) -> None:
        """Do all steps that have been asked for."""
        self.apply([each.parameter for each in self.pending.values()])

    def apply(self, parameters: Collection[torch.Tensor]) -> None:
        """Do the steps of parameters; of those that are not `pending` there is none to do."""
        with self._lock:
            found = [self.pending[id(each)] for each in parameters if id(each) in self.pending]
            if not found or self._applying:
                return
            self._applying = True
            try:
                averages = self._averages([each.parameter for each in found])
                started_s = time.monotonic()
                by_optimizer: dict[int, list[tuple[_Deferred, torch.Tensor]]] = {}
                for each, average in zip(found, averages, strict=True):
                    by_optimizer.setdefault(id(each.optimizer), []).append((each, average))
                for some in by_optimizer.values():
                    _apply(some[0][0].optimizer, some)
                    # Only now: what is interrupted is still to be done.
                    for each, average in some:
                        del self.pending[id(each.parameter)]
                        self.wanted.pop(id(each.parameter), None)
                        self._give(each.parameter, average)
                self._applied([each.parameter for each in found], started_s)
            finally:
                self._applying = False

    def _give(self, parameter: torch.Tensor, average: torch.Tensor) -> None:
        """Write the average where the gradient still is that its step has left."""
        gradient, version = self._spent.pop(id(parameter), (None, 0))
        self.replaceable.pop(id(gradient), None)
        if gradient is None or parameter.grad is not gradient or gradient._version != version:
            return
        with (
            temporarily_clear_interpreter_stack(),
            torch.inference_mode(False),
            torch.no_grad(),
        ):
            gradient.copy_(average)

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self._reveal()
        places = [
            (number, each)
            for number, group in enumerate(optimizer.param_groups)
            for each in group["params"]
        ]
        if any(self._is_spent(parameter) for _, parameter in places):
            # A second step with the same gradients: it needs what the first one has left.
            self.apply_all()
        due = [(number, each) for number, each in places if self._unchanged(each)]
        if not due:
            return
        if len(args) > 1 or kwargs.get("closure") is not None:
            raise RuntimeError(
                "step(closure) computes gradients in the step, whose averages would come too "
                "late: call step() without a closure, or use Priorities without an optimizer"
            )
        if getattr(optimizer, "grad_scale", None) is not None:
            raise RuntimeError(
                "a GradScaler must see averaged gradients: call flush() before scaler.step()"
            )
        if self._others_watch(optimizer):
            self.write_averages()
            return
        settings = [_settings(group) for group in optimizer.param_groups]
        self.apply([each for _, each in due])
        for number, parameter in due:
            del self._gathered[id(parameter)]
            self.pending[id(parameter)] = _Deferred(parameter, optimizer, number, settings[number])
            assert parameter.grad is not None
            self._hidden.append((parameter, parameter.grad))
            parameter.grad = None
        self._watch()

    def _after_step(self, *_: Any) -> None:
        for parameter, gradient in self._hidden:
            self._spent[id(parameter)] = gradient, gradient._version
        self._reveal()
        self._watch()

    def _reveal(self) -> None:
        """Give parameters back the gradients that a step has not seen, be it over or failed."""
        for parameter, gradient in self._hidden:
            if parameter.grad is None:
                parameter.grad = gradient
        self._hidden = []

    def _unchanged(self, parameter: torch.Tensor) -> bool:
        """Return whether a gradient still waits for its average.

        Raises:
            GradientsChanged: It has been changed meanwhile.
        """
        if id(parameter) not in self._gathered or parameter.grad is None:
            # A parameter that has lost its gradient has no step either.
            return False
        _, gradient, version = self._gathered[id(parameter)]
        if parameter.grad is not gradient or gradient._version != version:
            raise GradientsChanged(
                f"the gradient of {self._name(parameter)} was changed between backward() and "
                "step(), out of sight, when it was this rank's and not yet the average: call "
                "flush() before whatever changes gradients so"
            )
        return True

    def _is_spent(self, parameter: torch.Tensor) -> bool:
        gradient, version = self._spent.get(id(parameter), (None, 0))
        return gradient is not None and parameter.grad is gradient and gradient._version == version

    def _others_watch(self, optimizer: Optimizer) -> bool:
        """Return whether other hooks see the step; they must see what it would be without this."""
        from torch.optim.optimizer import (
            _global_optimizer_post_hooks,
            _global_optimizer_pre_hooks,
        )

        watch = (
            len(optimizer._optimizer_step_pre_hooks) > 1
            or len(optimizer._optimizer_step_post_hooks) > 1
            or bool(_global_optimizer_pre_hooks or _global_optimizer_post_hooks)
        )
        if watch and not self._told:
            self._told = True
            _log.info("the optimizer has other step hooks: its steps are not deferred")
        return watch


class _CompleteState:
    """The methods that copy or pickle an optimiser, once its deferred steps are done."""

    def __init__(self, steps: DeferredSteps, optimizer: Optimizer) -> None:
        self._steps = weakref.ref(steps)
        self._optimizer = weakref.ref(optimizer)

    def __call__(self) -> dict[str, Any]:
        steps, optimizer = self._steps(), self._optimizer()
        assert optimizer is not None
        if steps is not None:
            steps.apply_all()
        return type(optimizer).__getstate__(optimizer)


def _check_kind(optimizer: Optimizer, any_optimizer: bool) -> None:
    if not isinstance(optimizer, Optimizer):
        raise ValueError(f"not an optimizer of torch: {type(optimizer).__name__}")
    kind = type(optimizer)
    known = kind.__name__ in _EACH_ALONE and getattr(torch.optim, kind.__name__, None) is kind
    if not (known or any_optimizer):
        raise ValueError(
            f"{kind.__name__} is not known to treat each parameter by itself; if it does, and "
            "keeps no reference to gradients, give any_optimizer=True"
        )


def _parameters(optimizer: Optimizer) -> list[torch.Tensor]:
    return [each for group in optimizer.param_groups for each in group["params"]]


def _settings(group: Mapping[str, Any]) -> dict[str, Any]:
    """Return a group's settings as they are now."""
    return {
        key: value.clone() if isinstance(value, torch.Tensor) else value
        for key, value in group.items()
        if key != "params"
    }


def _apply(optimizer: Optimizer, some: Iterable[tuple[_Deferred, torch.Tensor]]) -> None:
    """Apply an optimiser to some of its parameters, as if it had no others."""
    groups: dict[int, dict[str, Any]] = {}
    before: list[tuple[torch.Tensor, torch.Tensor | None]] = []
    for each, average in some:
        group = groups.setdefault(each.group, {**each.settings, "params": []})
        group["params"].append(each.parameter)
        before.append((each.parameter, each.parameter.grad))
        each.parameter.grad = average
    all_groups = optimizer.param_groups
    # Without the hooks around it, which have seen the step that was asked for.
    step = type(optimizer).step
    if getattr(step, "hooked", False):
        step = step.__wrapped__  # type: ignore[attr-defined]
    try:
        optimizer.param_groups = list(groups.values())
        # Whatever the forward pass runs in, the step runs as where it was asked for.
        with (
            temporarily_clear_interpreter_stack(),
            torch.inference_mode(False),
            torch.no_grad(),
            torch.autocast("cpu", enabled=False),
        ):
            step(optimizer)
    finally:
        optimizer.param_groups = all_groups
        for parameter, gradient in before:
            parameter.grad = gradient


def check_deferrable(ddp: DistributedDataParallel) -> None:
    """Check that a model shows when it uses a parameter.

    Raises:
        ValueError: It does not.
    """
    if ddp.find_unused_parameters:
        raise ValueError(
            "with find_unused_parameters=True DDP must know all averages at the end of the "
            "backward pass: use Priorities(ddp) without an optimizer"
        )
    scripted = [
        name or "the model"
        for name, each in ddp.module.named_modules()
        if isinstance(each, torch.jit.ScriptModule)
    ]
    if scripted:
        raise ValueError(
            f"{scripted[0]} is TorchScript, which does not show when it uses a parameter: use "
            "Priorities(ddp) without an optimizer"
        )
