"""The structs of `afflux_drivers/c_api.h`, as another library would see them."""

import ctypes
from typing import Any

from afflux_drivers.collectives.call import GroupCall
from afflux_drivers.worker.request import WorkerCall

__all__ = ["CCalls"]


class Request(ctypes.Structure):
    """struct afflux_request."""

    _fields_ = (
        ("collective", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("reduction", ctypes.c_int32),
        ("root", ctypes.c_int32),
        ("count", ctypes.c_uint64),
        ("fingerprint", ctypes.c_uint64),
        ("history", ctypes.c_uint64),
        ("inputs", ctypes.POINTER(ctypes.c_void_p)),
        ("outputs", ctypes.POINTER(ctypes.c_void_p)),
        ("input_count", ctypes.c_uint32),
        ("output_count", ctypes.c_uint32),
    )


class Outcome(ctypes.Structure):
    """struct afflux_outcome."""

    _fields_ = (("operation", ctypes.c_uint64), ("text", ctypes.c_char * 512))


_RUN = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.POINTER(Request),
    ctypes.c_int64,
    ctypes.POINTER(Outcome),
)


class _Calls(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("group", ctypes.c_void_p),
        ("rank", ctypes.c_int32),
        ("ranks", ctypes.c_int32),
        ("begin", ctypes.c_void_p),
        ("advance", ctypes.c_void_p),
        ("run", _RUN),
        ("in_progress", ctypes.c_void_p),
    )


class CCalls:
    """A user of the capsule, which it keeps.

    Args:
        capsule: The result of `SharedWorker.calls`.
    """

    def __init__(self, capsule: Any) -> None:
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype = ctypes.c_void_p
        pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
        self._capsule = capsule
        self._calls = _Calls.from_address(pointer(capsule, b"afflux.calls"))
        assert self._calls.version == 3
        assert self._calls.size == ctypes.sizeof(_Calls)

    def run(
        self, call: GroupCall | WorkerCall, output: int, timeout_s: float
    ) -> tuple[int, int, str]:
        """Do a collective in place: the status, the operation's number and the text."""
        outputs = (ctypes.c_void_p * 1)(output)
        request = Request(
            collective=call.collective,
            dtype=call.dtype,
            reduction=call.reduction,
            root=call.root,
            count=call.count,
            fingerprint=call.fingerprint,
            outputs=outputs,
            output_count=1,
        )
        outcome = Outcome()
        status = self._calls.run(
            self._calls.group,
            ctypes.byref(request),
            int(timeout_s * 1e9),
            ctypes.byref(outcome),
        )
        return status, outcome.operation, outcome.text.decode()
