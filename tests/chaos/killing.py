"""A SIGKILL that the kernel sends to this process some nanoseconds from now, whatever runs then."""

import ctypes
import os
import signal

__all__ = ["kill_after"]

_SIGEV_SIGNAL = 0
_MONOTONIC = 1
_NANO = 1_000_000_000


class _Event(ctypes.Structure):
    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("rest", ctypes.c_byte * 48),
    )


class _Times(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_long) for name in ("again_s", "again_ns", "first_s", "first_ns")
    )


def kill_after(nanoseconds: int) -> None:
    """Let the kernel kill this process then. No code of the process runs after that."""
    library = ctypes.CDLL(None, use_errno=True)
    timer = ctypes.c_void_p()
    event = _Event(signal=signal.SIGKILL, notify=_SIGEV_SIGNAL)
    times = _Times(first_s=nanoseconds // _NANO, first_ns=max(1, nanoseconds % _NANO))
    for status in (
        library.timer_create(_MONOTONIC, ctypes.byref(event), ctypes.byref(timer)),
        library.timer_settime(timer, 0, ctypes.byref(times), None),
    ):
        if status != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
