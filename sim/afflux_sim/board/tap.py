"""Interfaces of this machine whose cables end in this process: tap devices of Linux.

The kernel hands over each frame as a network card would send it, cut to its size and with its
checksums, as such an interface has no offloads; and takes frames as if a network card had received
them. It may be at a bridge's port, or be moved to another network namespace: its cable stays here.
"""

import contextlib
import fcntl
import os
import socket
import struct
from collections.abc import Iterable

__all__ = ["Tap"]

_DEVICE = "/dev/net/tun"
_TUNSETIFF = 0x400454CA
_SIOCGIFTXQLEN = 0x8942
_IFF_TAP = 0x0002
_IFF_NO_PI = 0x1000
_NAME_BYTES = 15

_FRAME_BYTES = 1 << 16
_FRAME_MIN_BYTES = 60
"""Shortest frame of Ethernet, without its check sequence: what a MAC fills shorter ones up to."""


class Tap:
    """One such interface.

    Args:
        name: Its name in this network namespace. If there is none yet, it is made, and vanishes
            when it is closed.

    Attributes:
        queue: Frames that wait for this process at most; further ones are lost.

    Raises:
        OSError: If it cannot be had: not permitted, in use, or another kind of interface. The
            message names it.
    """

    def __init__(self, name: str) -> None:
        encoded = name.encode()
        if not 0 < len(encoded) <= _NAME_BYTES:
            raise OSError(f"{name!r} cannot be the name of an interface")
        try:
            self._file = os.open(_DEVICE, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise OSError(f"tap device {name}: {_DEVICE}: {error.strerror}") from None
        try:
            request = struct.pack("16sH22x", encoded, _IFF_TAP | _IFF_NO_PI)
            fcntl.ioctl(self._file, _TUNSETIFF, request)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                answer = fcntl.ioctl(probe, _SIOCGIFTXQLEN, struct.pack("16s24x", encoded))
            (self.queue,) = struct.unpack_from("i", answer, 16)
        except OSError as error:
            os.close(self._file)
            raise OSError(f"tap device {name}: {error.strerror}") from None

    def fileno(self) -> int:
        """Return the file that can be read when a frame waits."""
        return self._file

    def receive(self, most: int) -> list[bytes]:
        """Return frames that the kernel has sent, up to so many, without waiting.

        Raises:
            OSError: The interface has been removed.
        """
        frames: list[bytes] = []
        try:
            while len(frames) < most:
                frames.append(os.read(self._file, _FRAME_BYTES).ljust(_FRAME_MIN_BYTES, b"\0"))
        except BlockingIOError:
            pass
        return frames

    def send(self, frames: Iterable[bytes]) -> None:
        """Let the kernel receive frames. Those that it does not take, being down, are lost."""
        for frame in frames:
            with contextlib.suppress(OSError):
                os.write(self._file, frame)

    def close(self) -> None:
        """Let go of the interface."""
        os.close(self._file)
