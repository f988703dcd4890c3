"""Compiles the device "late" and makes it known to torch."""

import functools
import importlib.machinery
import importlib.util
import shlex
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.utils.backend_registration import rename_privateuse1_backend

from afflux.adapters.native import compiler_flags
from afflux.group.staging.copies import on_stream
from afflux_sim.rtl.compile.attended import run_attended
from afflux_sim.rtl.compile.cache import BuildError, cached, default_folder, digest

__all__ = ["NAME", "load"]

NAME = "late"

_SOURCE = Path(__file__).with_name("late.cpp")
_MODULE = "late_device"


@functools.cache
def load() -> ModuleType:
    """Return the device's module; tensors may be on "late" from then on."""
    # Nothing in it takes time but the compiler.
    command = ["g++", *compiler_flags(_MODULE), "-O0", str(_SOURCE)]
    key = digest(torch.__version__, sys.prefix, *command, _SOURCE.read_text(encoding="utf-8"))
    made = cached(default_folder("late_device"), key, functools.partial(_compile, command))
    path = made / f"{_MODULE}.so"
    loader = importlib.machinery.ExtensionFileLoader(_MODULE, str(path))
    spec = importlib.util.spec_from_file_location(_MODULE, path, loader=loader)
    assert spec is not None
    rename_privateuse1_backend(NAME)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    torch._register_device_module(NAME, _TorchModule(NAME))
    return module


class _TorchModule(ModuleType):
    """torch.late: what torch asks a device's module.

    Attributes:
        capturing: Whether its streams say that they capture a graph, of which it has none.
    """

    capturing = False

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return 0

    def set_device(self, device: Any) -> None:
        pass

    def current_stream(self, device: Any = None) -> torch.Stream:
        return torch.accelerator.current_stream()

    def stream(self, stream: torch.Stream | None) -> Any:
        return on_stream(stream)

    def Stream(self, device: Any = NAME, priority: int = 0) -> torch.Stream:
        return torch.Stream(device=device, priority=priority)

    def Event(self, **_: Any) -> torch.Event:
        return torch.Event(device=NAME)

    def synchronize(self, device: Any = None) -> None:
        torch.accelerator.synchronize()

    def manual_seed_all(self, seed: int) -> None:
        pass

    def _is_in_bad_fork(self) -> bool:
        return False


def _compile(command: list[str], folder: Path) -> None:
    log = folder / "compiler.log"
    libraries = ["-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python"]
    whole = [*command, "-o", str(folder / f"{_MODULE}.so"), *libraries]
    with log.open("w", encoding="utf-8") as output:
        print(shlex.join(whole), file=output, flush=True)
        done = run_attended(whole, stdout=output, limit_s=900)
    if done.returncode != 0:
        raise BuildError(log.read_text(encoding="utf-8"))
