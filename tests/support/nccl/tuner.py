"""One version's table of tuners, from a reading of its own of NCCL's public headers."""

import ctypes
import os
from typing import Any

from tests.support.nccl.node import LIBRARY
from tests.support.nccl.tables import Logger

__all__ = [
    "ALGORITHMS",
    "ALL_GATHER",
    "ALL_REDUCE",
    "BROADCAST",
    "CHAIN",
    "COLLNET",
    "REDUCE_SCATTER",
    "SIMPLE",
    "Tuner",
]

ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE, BROADCAST = 2, 3, 4, 0
ALGORITHMS, PROTOCOLS, SIMPLE = 7, 3, 2
DIRECT, CHAIN, NVLS = 2, 3, 4
COLLNET = (DIRECT, CHAIN, NVLS)

_P, _I, _Z = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
POINTERS = {2: 4, 3: 4, 4: 4, 5: 4, 6: 5}


class Tuner:
    """One version's table, from a reading of its own."""

    def __init__(self, version: int, logger: Any, nodes: int = 2) -> None:
        library = ctypes.CDLL(os.environ.get("NCCL_NET_PLUGIN", LIBRARY))
        words = (_P * POINTERS[version]).in_dll(library, f"ncclTunerPlugin_v{version}")
        self.version, context = version, ctypes.c_void_p()
        out = ctypes.byref(context)
        if version >= 5:
            init = ctypes.CFUNCTYPE(_I, _P, ctypes.c_uint64, _Z, _Z, Logger, _P, _P)(words[1] or 0)
            assert init(out, 7, 4, nodes, logger, None, None) == 0
        else:
            init = ctypes.CFUNCTYPE(_I, _Z, _Z, Logger, _P)(words[1] or 0)
            assert init(4, nodes, logger, out) == 0
        self.context = context
        self._function, self._end = words[2] or 0, words[3] or 0

    def costs(self, collective: int, size: int, before: float = 5.0) -> list[float]:
        """Return the costs of all algorithms with the simple protocol, after the tuner has seen."""
        table = (ctypes.c_float * (ALGORITHMS * PROTOCOLS))(*[before] * ALGORITHMS * PROTOCOLS)
        more: tuple[Any, ...] = (_I,) if self.version >= 4 else ()
        call = ctypes.CFUNCTYPE(_I, _P, _I, _Z, _I, _P, _I, _I, *more, _P)(self._function)
        address, channels = ctypes.addressof(table), ctypes.c_int(3)
        words = (0,) if more else ()
        assert (
            call(self.context, collective, size, 1, address, ALGORITHMS, PROTOCOLS, *words,
                 ctypes.addressof(channels)) == 0
        )  # fmt: skip
        assert channels.value == 3
        others = [table[i] for i in range(len(table)) if i % PROTOCOLS != SIMPLE]
        assert set(others) == {before}
        return [table[each * PROTOCOLS + SIMPLE] for each in range(ALGORITHMS)]

    def end(self) -> None:
        """Give the context back."""
        assert ctypes.CFUNCTYPE(_I, _P)(self._end)(self.context) == 0
