"""Notices which tensors an operation takes, before it takes them.

torch lets a *mode* see every function of its Python interface. One that does nothing but look at
the arguments tells when a parameter is first used: in whichever module, by whichever name. It costs
about a microsecond for each function while it is on. Gradients are watched in the same way.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch._C import _len_torch_function_stack
from torch.overrides import TorchFunctionMode, _pop_mode, _push_mode
from torch.utils._device import DeviceContext

__all__ = ["UseTracker"]

_PROPERTIES = frozenset(
    {
        "_base",
        "_backward_hooks",
        "_grad",
        "_post_accumulate_grad_hooks",
        "_version",
        "device",
        "dtype",
        "grad",
        "grad_dtype",
        "grad_fn",
        "is_cpu",
        "is_cuda",
        "is_leaf",
        "is_meta",
        "is_mkldnn",
        "is_nested",
        "is_quantized",
        "is_sparse",
        "is_sparse_csr",
        "itemsize",
        "layout",
        "name",
        "names",
        "nbytes",
        "ndim",
        "output_nr",
        "requires_grad",
        "retains_grad",
        "shape",
        "volatile",
    }
)
"""Properties of a tensor that do not show its elements."""

_METHODS = frozenset(
    {
        "__hash__",
        "__len__",
        "_is_view",
        "dim",
        "element_size",
        "get_device",
        "is_complex",
        "is_contiguous",
        "is_floating_point",
        "ndimension",
        "nelement",
        "numel",
        "register_hook",
        "register_post_accumulate_grad_hook",
        "requires_grad_",
        "size",
        "storage_offset",
        "stride",
    }
)
"""Methods and functions that do not."""

_OVERWRITING = frozenset({"_foreach_zero_", "detach_", "zero_"})
"""Operators that ignore the elements that they replace."""


class UseTracker(TorchFunctionMode):
    """Calls a function with the tensors, of those that are looked for, that an operation takes.

    Args:
        touched: Gets them. Its own operators are not looked at.

    Attributes:
        wanted: The tensors to look for, by `id`. Others may change it.
        replaceable: The same, of tensors that may be overwritten without being noticed.
    """

    def __init__(self, touched: Callable[[list[torch.Tensor]], None]) -> None:
        super().__init__()
        self.wanted: dict[int, Any] = {}
        self.replaceable: dict[int, Any] = {}
        self._touched = touched
        self._inside = threading.local()

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Look at the arguments, then call."""
        if self.wanted or self.replaceable:
            found: list[torch.Tensor] = []
            self._look(args, found)
            if kwargs:
                self._look(kwargs.values(), found)
            if found and getattr(func, "__name__", "") in _OVERWRITING:
                found = [each for each in found if id(each) in self.wanted]
            if found and not _only_asks(func):
                self._touched(found)
        self._inside.now = True
        try:
            return func(*args, **(kwargs or {}))
        finally:
            self._inside.now = False

    def _look(self, values: Iterable[Any], found: list[torch.Tensor]) -> None:
        for value in values:
            if isinstance(value, torch.Tensor):
                number = id(value)
                if (number in self.wanted or number in self.replaceable) and not any(
                    value is each for each in found
                ):
                    found.append(value)
            elif isinstance(value, (list, tuple)):
                self._look(value, found)
            elif isinstance(value, dict):
                self._look(value.values(), found)

    @property
    def on(self) -> bool:
        """Whether it looks, in this thread."""
        return any(torch._C._get_function_stack_at(place) is self for place in _places())

    @property
    def goes_on(self) -> bool:
        """Whether it looks, or will again after the function that it has let pass last."""
        return getattr(self._inside, "now", False) or self.on

    def turn_on(self) -> None:
        """Look from now on, in this thread. Once is enough."""
        if not self.goes_on:
            # Below the modes of the user's, each of which takes the uppermost one for its own when
            # it ends; above a device context, which is the lowest by its own rule.
            above = _popped()
            if above and isinstance(above[-1], DeviceContext):
                _push_mode(above.pop())
            _push_mode(self)
            _pushed(above)

    def turn_off(self) -> None:
        """Look no more, in this thread."""
        if self.on:
            _pushed([each for each in _popped() if each is not self])


def _places() -> range:
    return range(_len_torch_function_stack())


def _popped() -> list[Any]:
    return [_pop_mode() for _ in _places()]


def _pushed(modes: Iterable[Any]) -> None:
    for mode in reversed(list(modes)):
        _push_mode(mode)


def _only_asks(func: Any) -> bool:
    name = getattr(func, "__name__", "")
    if name in ("__get__", "__set__"):
        return getattr(getattr(func, "__self__", None), "__name__", "") in _PROPERTIES
    return name in _METHODS
