"""Common parts of the Verilated engine, node and board: a handle, an end, frames; and registers."""

import ctypes
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from afflux_hdl.contract.registers import WriteRefused

__all__ = ["AccessRefused", "ModelHandle", "SimulationError", "VerilatedModel"]

_REFUSED = 1
"""Status of an access that a model answers with an error."""


class SimulationError(RuntimeError):
    """The simulated engine or node broke a rule, such as to become idle in the end."""


class AccessRefused(SimulationError, WriteRefused):
    """The simulated engine or node answered a register access with an error."""


class ModelHandle:
    """One model in simulation, behind its shim.

    Instances are independent, and each may be used by any thread: a lock makes the calls on one
    instance take turns. The interpreter's lock is released while the model runs, so several
    instances use several cores.

    Attributes:
        kind: Its kind, for messages.
        prefix: That of the names of the shim's functions.
    """

    kind = ""
    prefix = ""

    def _open(self, library: ctypes.CDLL, path: Path, *arguments: Any) -> None:
        self._lock = threading.Lock()
        self._library = library
        self._handle: int | None = self._function("open")(*arguments)
        if self._handle is None:
            raise SimulationError(f"no memory for another {self.kind} of {path}")

    def close(self) -> None:
        """Free the model. Further calls except this one raise `ValueError`."""
        with self._lock:
            if self._handle is not None:
                self._function("close")(self._handle)
                self._handle = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # If the constructor has failed, nothing needs to be freed.
        if getattr(self, "_handle", None) is not None:
            self.close()

    def _function(self, name: str) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(self._library, f"{self.prefix}_{name}")
        return function

    def _use(self) -> int:
        if self._handle is None:
            raise ValueError(f"the {self.kind} is closed")
        return self._handle

    def _check(self, status: int) -> None:
        if status != 0:
            message = self._function("error")(self._use()).decode()
            kind = AccessRefused if status == _REFUSED else SimulationError
            raise kind(f"the simulated {self.kind} failed: {message}")

    def _take_frames(self, *port: int) -> list[bytes]:
        """Return the whole frames that have been sent since the last call, at one port of several.

        Args:
            port: An argument of the shim's `output` and `clear_output` besides the handle.
        """
        data = ctypes.POINTER(ctypes.c_uint8)()
        lengths = ctypes.POINTER(ctypes.c_uint32)()
        handle = self._use()
        count = self._function("output")(handle, *port, ctypes.byref(data), ctypes.byref(lengths))
        sizes = lengths[:count]
        whole = ctypes.string_at(data, sum(sizes)) if count else b""
        self._function("clear_output")(handle, *port)
        frames, start = [], 0
        for size in sizes:
            frames.append(whole[start : start + size])
            start += size
        return frames


class VerilatedModel(ModelHandle):
    """A model whose registers are pins."""

    def read(self, address: int) -> int:
        """Return the 32-bit register at byte `address`: an engine's takes one clock cycle.

        Raises:
            AccessRefused: There is none.
        """
        value = ctypes.c_uint32()
        with self._lock:
            self._check(self._function("read")(self._use(), address, ctypes.byref(value)))
        return value.value

    def write(self, address: int, value: int) -> None:
        """Write the 32-bit `value` to the register at byte `address`: an engine's takes one cycle.

        Raises:
            AccessRefused: There is none that can be written, or it cannot be written now.
        """
        with self._lock:
            self._check(self._function("write")(self._use(), address, value))
