"""NCCL's tables of network plugins, versions 8 to 12, as ctypes: a reading of its own.

It is written from NCCL's public headers (`src/include/plugin/net/net_v8.h` to `net_v12.h`), member
by member, and shares nothing with the plugin's declarations, so a mistake in those shows.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["HANDLE_BYTES", "VERSIONS", "Logger", "PluginLibrary", "properties_of"]

VERSIONS = (8, 9, 10, 11, 12)
HANDLE_BYTES = 128

_P, _I, _Z, _U64 = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_uint64
_PP = ctypes.POINTER(_P)
_IP = ctypes.POINTER(_I)

Logger = ctypes.CFUNCTYPE(None, _I, ctypes.c_ulong, ctypes.c_char_p, _I, ctypes.c_char_p, _P)
"""The variable arguments of NCCL's logger are, from this plugin, always one text."""

COLLNET_POINTERS = {8: 17, 9: 18, 10: 18, 11: 19, 12: 19}
NET_POINTERS = {8: 19, 9: 20, 10: 20, 11: 22, 12: 22}
PROPERTIES_BYTES = {8: 64, 9: 104, 10: 104, 11: 112, 12: 128}


def properties_of(version: int) -> type[ctypes.Structure]:
    """Return the struct that getProperties fills."""
    devices = 8 if version >= 12 else 4

    class Virtual(ctypes.Structure):
        _fields_ = (("ndevs", _I), ("devs", _I * devices))

    fields: list[tuple[str, Any]] = [
        ("name", ctypes.c_char_p),
        ("pciPath", ctypes.c_char_p),
        ("guid", _U64),
        ("ptrSupport", _I),
        ("regIsGlobal", _I),
    ]
    if version >= 9:
        fields += [("forceFlush", _I)]
    fields += [
        ("speed", _I),
        ("port", _I),
        ("latency", ctypes.c_float),
        ("maxComms", _I),
        ("maxRecvs", _I),
        ("netDeviceType", _I),
        ("netDeviceVersion", _I),
    ]
    if version >= 9:
        fields += [("vProps", Virtual), ("maxP2pBytes", _Z), ("maxCollBytes", _Z)]
    if version >= 11:
        fields += [("maxMultiRequestSize", _I)]
    if version >= 12:
        fields += [("railId", ctypes.c_int16), ("planeId", ctypes.c_int16)]
    made = type(f"Properties{version}", (ctypes.Structure,), {"_fields_": fields})
    assert ctypes.sizeof(made) == PROPERTIES_BYTES[version]
    return made


Member = tuple[str, tuple[Any, ...]]


def _collnet(version: int) -> list[Member]:
    count = _I if version == 8 else _Z
    context: tuple[Any, ...] = (_P,) if version >= 11 else ()
    init: tuple[Any, ...] = (_PP, _U64, Logger) if version >= 11 else (Logger,)
    members: list[Member] = [
        ("init", init),
        ("devices", (_IP,)),
        ("getProperties", (_I, _P)),
        ("listen", (*context, _I, _P, _PP)),
        ("connect", (_PP, _I, _I, _P, _PP)),
        ("reduceSupport", (_I, _I, _IP)),
        ("regMr", (_P, _P, _Z, _I, _PP)),
        ("regMrDmaBuf", (_P, _P, _Z, _I, _U64, _I, _PP)),
        ("deregMr", (_P, _P)),
        ("iallreduce", (_P, _P, _P, count, _I, _I, _P, _P, _PP)),
        ("iallgather", (_P, _P, _I, _P, _Z, _Z, _Z, _P, _PP)),
        ("ireducescatter", (_P, _I, _P, _P, _Z, _Z, _Z, _I, _I, _P, _PP)),
        ("iflush", (_P, _P, _I, _P, _PP)),
        ("test", (_P, _IP, _IP)),
        ("closeColl", (_P,)),
        ("closeListen", (_P,)),
    ]
    if version >= 9:
        members += [("makeVDevice", (_IP, _P))]
    if version >= 11:
        members += [("finalize", (_P,))]
    assert 1 + len(members) == COLLNET_POINTERS[version]
    return members


def _net(version: int) -> list[Member]:
    size = _I if version == 8 else _Z
    context: tuple[Any, ...] = (_P,) if version >= 11 else ()
    config: tuple[Any, ...] = (_P,) if version == 10 else ()
    profiled: tuple[Any, ...] = (_P,) if version >= 10 else ()
    init: tuple[Any, ...] = (Logger,)
    if version == 10:
        init = (Logger, _P)
    elif version >= 11:
        init = (_PP, _U64, _P, Logger, _P)
    sizes = ctypes.POINTER(size)
    members: list[Member] = [
        ("init", init),
        ("devices", (_IP,)),
        ("getProperties", (_I, _P)),
        ("listen", (*context, _I, _P, _PP)),
        ("connect", (*context, _I, *config, _P, _PP, _PP)),
        ("accept", (_P, _PP, _PP)),
        ("regMr", (_P, _P, _Z, _I, _PP)),
        ("regMrDmaBuf", (_P, _P, _Z, _I, _U64, _I, _PP)),
        ("deregMr", (_P, _P)),
        ("isend", (_P, _P, size, _I, _P, *profiled, _PP)),
        ("irecv", (_P, _I, _PP, sizes, _IP, _PP, *profiled, _PP)),
        ("iflush", (_P, _I, _PP, _IP, _PP, _PP)),
        ("test", (_P, _IP, _IP)),
        ("closeSend", (_P,)),
        ("closeRecv", (_P,)),
        ("closeListen", (_P,)),
        ("getDeviceMr", (_P, _P, _PP)),
        ("irecvConsumed", (_P, _I, _P)),
    ]
    if version >= 9:
        members += [("makeVDevice", (_IP, _P))]
    if version >= 11:
        members += [("finalize", (_P,)), ("setNetAttr", (_P, _P))]
    assert 1 + len(members) == NET_POINTERS[version]
    return members


class Table:
    """The functions of one table, by name. Each returns a ncclResult_t.

    Attributes:
        name: The plugin's.
        version: The table's.
    """

    def __init__(self, library: ctypes.CDLL, symbol: str, members: Sequence[Member]) -> None:
        self.version = int(symbol.rpartition("v")[2])
        words = (_P * (1 + len(members))).in_dll(library, symbol)
        self.name = ctypes.string_at(words[0] or 0).decode()
        self._functions: dict[str, Callable[..., int] | None] = {}
        for word, (name, arguments) in zip(words[1:], members, strict=True):
            made = ctypes.CFUNCTYPE(_I, *arguments)(word) if word else None
            self._functions[name] = made

    def has(self, name: str) -> bool:
        """Return whether the pointer is not null."""
        return self._functions[name] is not None

    def __call__(self, name: str, *arguments: Any) -> int:
        """Call a function as NCCL does."""
        function = self._functions[name]
        assert function is not None, f"{name} is null"
        return function(*arguments)


class PluginLibrary:
    """The library's tables of one version.

    Args:
        path: Of the library.
        version: Of the tables.
    """

    def __init__(self, path: str, version: int) -> None:
        self.library = library = ctypes.CDLL(path)
        self.collnet = Table(library, f"ncclCollNetPlugin_v{version}", _collnet(version))
        self.net = Table(library, f"ncclNetPlugin_v{version}", _net(version))
        self.version = version
