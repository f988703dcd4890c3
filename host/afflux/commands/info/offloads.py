"""Which offloads a network interface has switched on, asked of the kernel as ethtool does.

Reading needs no privilege.
"""

import array
import contextlib
import fcntl
import socket
import struct

__all__ = ["SHOWN", "read_driver", "read_offloads"]

SHOWN = (
    "rx-checksum",
    "tx-checksum-ip-generic",
    "tx-checksum-ipv4",
    "tx-scatter-gather",
    "tx-generic-segmentation",
    "tx-tcp-segmentation",
    "tx-udp-segmentation",
    "rx-gro",
    "rx-udp-gro-forwarding",
    "rx-lro",
)
"""Features that matter to UDP and TCP between hosts, by the kernel's names."""

# linux/ethtool.h, linux/sockios.h
_SIOCETHTOOL = 0x8946
_GET_DRIVER = 0x03
_GET_STRINGS = 0x1B
_GET_STRING_SETS = 0x37
_GET_FEATURES = 0x3A
_SET_OF_FEATURES = 4
_STRING_BYTES = 32
_FEATURE_BLOCK_BYTES = 16


def read_offloads(interface: str) -> dict[str, bool]:
    """Return which of SHOWN the interface knows, and has on; empty if it cannot be asked."""
    found = {}
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        names = _feature_names(asked, interface)
        active = _active_features(asked, interface, len(names))
        found = {name: active[number] for number, name in enumerate(names) if name in SHOWN}
    return {name: found[name] for name in SHOWN if name in found}


def read_driver(interface: str) -> str:
    """Return the driver's name; empty if it cannot be asked."""
    request = bytearray(struct.pack("<I", _GET_DRIVER) + bytes(192))
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        return _text(_ask(asked, interface, request)[4:36])
    return ""


def _feature_names(asked: socket.socket, interface: str) -> list[str]:
    request = struct.pack("=IIQI", _GET_STRING_SETS, 0, 1 << _SET_OF_FEATURES, 0)
    (count,) = struct.unpack_from("=I", _ask(asked, interface, bytearray(request)), 16)
    request = struct.pack("=III", _GET_STRINGS, _SET_OF_FEATURES, count)
    answer = _ask(asked, interface, bytearray(request + bytes(count * _STRING_BYTES)))
    starts = range(12, 12 + count * _STRING_BYTES, _STRING_BYTES)
    return [_text(answer[start : start + _STRING_BYTES]) for start in starts]


def _active_features(asked: socket.socket, interface: str, count: int) -> list[bool]:
    blocks = -(-count // 32)
    request = struct.pack("=II", _GET_FEATURES, blocks) + bytes(blocks * _FEATURE_BLOCK_BYTES)
    answer = _ask(asked, interface, bytearray(request))
    # In each block of 32 features: available, requested, active, never changed.
    words = [
        struct.unpack_from("=4I", answer, 8 + b * _FEATURE_BLOCK_BYTES)[2] for b in range(blocks)
    ]
    return [bool(words[number // 32] >> number % 32 & 1) for number in range(count)]


def _ask(asked: socket.socket, interface: str, request: bytearray) -> bytes:
    buffer = array.array("B", request)
    address, _ = buffer.buffer_info()
    fcntl.ioctl(asked, _SIOCETHTOOL, struct.pack("16sP16x", interface.encode()[:15], address))
    return buffer.tobytes()


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("ascii", "replace")
