"""The functions of `shim.cpp` as Python sees them. ctypes releases the GIL during each call."""

import ctypes
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p
from functools import cache
from pathlib import Path

__all__ = ["ShimStatistics", "ShimStimulus", "ShimWrite", "load"]


class ShimStimulus(ctypes.Structure):
    """`Stimulus` of the shim. Shares are in units of 2**-32."""

    _fields_ = (
        ("seed", c_uint64),
        ("ready_share", c_uint64),
        ("gap_share", c_uint64),
        ("max_cycles", c_uint64),
        ("drain", c_uint64),
        ("reset_at", c_uint64),
    )


class ShimStatistics(ctypes.Structure):
    """`Statistics` of the shim."""

    _fields_ = (
        ("cycles", c_uint64),
        ("frames_in", c_uint64),
        ("frames_out", c_uint64),
        ("beats_in", c_uint64),
        ("beats_out", c_uint64),
        ("receive_stalls", c_uint64),
        ("digest", c_uint64),
        ("frames_cut", c_uint64),
        ("long_waits", c_uint64),
    )


class ShimWrite(ctypes.Structure):
    """`Write` of the shim."""

    _fields_ = (("cycle", c_uint64), ("address", c_uint32), ("value", c_uint32))


PROTOTYPES = {
    "afflux_open": (c_void_p, []),
    "afflux_close": (None, [c_void_p]),
    "afflux_error": (c_char_p, [c_void_p]),
    "afflux_read": (c_int, [c_void_p, c_uint32, POINTER(c_uint32)]),
    "afflux_write": (c_int, [c_void_p, c_uint32, c_uint32]),
    "afflux_reset": (c_int, [c_void_p]),
    "afflux_run": (c_int, [c_void_p, c_uint64]),
    "afflux_schedule": (None, [c_void_p, POINTER(ShimWrite), c_size_t]),
    "afflux_play": (
        c_int,
        [c_void_p, c_char_p, POINTER(c_uint32), c_char_p, c_size_t, POINTER(ShimStimulus)],
    ),
    "afflux_output": (
        c_size_t,
        [c_void_p, POINTER(POINTER(c_uint8)), POINTER(POINTER(c_uint32))],
    ),
    "afflux_clear_output": (None, [c_void_p]),
    "afflux_statistics": (None, [c_void_p, POINTER(ShimStatistics)]),
}
# Only where the library was built for it.
EXTRA_PROTOTYPES = {
    "afflux_write_coverage": (c_int, [c_void_p, c_char_p]),
    "afflux_open_waves": (c_int, [c_void_p, c_char_p, c_uint64, c_uint64]),
    "afflux_close_waves": (c_int, [c_void_p]),
}


@cache
def load(path: Path) -> ctypes.CDLL:
    """Load the library at `path`, and declare the types of its functions."""
    library = ctypes.CDLL(str(path))
    prototypes = dict(PROTOTYPES)
    prototypes |= {name: each for name, each in EXTRA_PROTOTYPES.items() if hasattr(library, name)}
    for name, (result, arguments) in prototypes.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library
