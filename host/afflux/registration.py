"""How torch comes to know the backend "afflux"."""

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["register", "register_with_torch"]


def register() -> None:
    """Register the backend "afflux", unless it is: for the CPU, and for the machine's GPUs.

    A device that the machine lacks is left out, though torch may be built for it: torch takes all
    that one is registered for as devices that it can carry tensors on, state dicts among others.
    """
    import torch
    import torch.distributed as dist

    if "afflux" not in dist.Backend.backend_list:
        devices, found = ["cpu"], torch.accelerator.current_accelerator()
        # For CUDA this asks NVML, and begins nothing that a process could not fork with.
        if found is not None and found.type != "mps" and torch.accelerator.device_count():
            devices.append(found.type)
        dist.Backend.register_backend("afflux", _create, extended_api=True, devices=devices)
        import_module("afflux.by_name")


def register_with_torch() -> None:
    """Register the backend as soon as torch is imported: now, if it is.

    From 2.14 on torch would find it by its entry point; before, somebody must register it.
    """
    if "torch" in sys.modules:
        register()
    else:
        sys.meta_path.insert(0, _After("torch", register))


class _After(MetaPathFinder):
    """Does something once, after a module has been imported.

    Args:
        name: The module's.
        action: Called when all of the module has run.
    """

    def __init__(self, name: str, action: Callable[[], None]) -> None:
        self._name = name
        self._action = action

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec that the other finders have, with a loader that acts afterwards."""
        if fullname != self._name:
            return None
        others = [each for each in sys.meta_path if each is not self]
        found = (each.find_spec(fullname, path, target) for each in others)
        spec = next((each for each in found if each is not None), None)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_act(module: ModuleType) -> None:
            execute(module)
            # Not earlier: an import that fails may be tried again.
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            self._action()

        spec.loader.exec_module = execute_and_act  # type: ignore[method-assign]
        return spec


def _create(options: Any, backend_options: Any = None) -> Any:
    # Only now, as some of what a group needs is made when it is first needed.
    from afflux.adapters.choice import create_backend
    from afflux.by_name import serve_modules_by_name
    from afflux.short_report import report_shortly
    from afflux_drivers.errors import AffluxError

    serve_modules_by_name()
    try:
        return create_backend(options, backend_options)
    except AffluxError as error:
        report_shortly(error)
        raise
