"""A window of registers that this process has mapped: each access is one of 32 bits.

Python's own ways promise less. A slice of an `mmap` is copied, byte by byte if the C library likes
that; `memoryview.cast("I")` and ctypes copy four bytes with `memcpy`, which the compiler that built
the interpreter may have made one access, or two. So two functions of our C++ do it, by `volatile`.
"""

import mmap
import os
import threading
from typing import TYPE_CHECKING

from afflux_drivers import _native
from afflux_drivers.device.errors import DeviceFailed

if TYPE_CHECKING:
    import numpy as np

__all__ = ["WINDOW_BYTES", "RegisterWindow", "open_file"]

WINDOW_BYTES = 0x1000
"""Of the registers of engine and node together: their port has 12-bit addresses."""


class RegisterWindow:
    """Registers in an open file that can be mapped. `Registers`; thread-safe.

    A write returns when the processor has issued it, not when it has been carried out, and nobody
    reports one that was refused. A read waits for the answer, and for all writes before it.

    Args:
        file: File descriptor, which may be closed afterwards.
        offset: Of the first register, in bytes.
        name: For messages.
        writable: Map it for writing too. Without, no access through it can change anything.
        size: Bytes of the window.

    Raises:
        OSError: It cannot be mapped.
    """

    def __init__(
        self, file: int, offset: int, *, name: str, writable: bool, size: int = WINDOW_BYTES
    ) -> None:
        self._name, self._writable = name, writable
        start = offset - offset % mmap.ALLOCATIONGRANULARITY
        self._skipped = offset - start
        self._size = size
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        self._map = mmap.mmap(
            file, self._skipped + size, flags=mmap.MAP_SHARED, prot=protection, offset=start
        )
        # Not at the top: commands that only show their options import this module, too.
        import numpy as np

        self._octets: np.ndarray | None = np.frombuffer(self._map, np.uint8)
        # Nobody may unmap what another thread is about to touch: that would end the process.
        self._lock = threading.Lock()

    def read(self, address: int) -> int:
        """Read a 32-bit register.

        Raises:
            DeviceFailed: The window has no such register, or is closed.
        """
        with self._lock:
            return _native.read_register(*self._place(address))

    def write(self, address: int, value: int) -> None:
        """Write a 32-bit register.

        Raises:
            DeviceFailed: The window has no such register, is closed, or was opened for reading.
            ValueError: The value has more than 32 bits.
        """
        if not 0 <= value < 1 << 32:
            raise ValueError(f"{self._name}: {value:#x} has more than 32 bits")
        if not self._writable:
            raise DeviceFailed(f"{self._name} was opened for reading only")
        with self._lock:
            _native.write_register(*self._place(address), value)

    def close(self) -> None:
        """Unmap it."""
        with self._lock:
            self._octets = None
            self._map.close()

    def _place(self, address: int) -> "tuple[np.ndarray, int]":
        if self._octets is None:
            raise DeviceFailed(f"{self._name} is closed")
        if not 0 <= address <= self._size - 4 or address % 4:
            raise DeviceFailed(f"{self._name} has no 32-bit register at {address:#x}")
        return self._octets, self._skipped + address


def open_file(path: str, offset: int, *, writable: bool) -> RegisterWindow:
    """Open a file with registers.

    Raises:
        DeviceFailed: It cannot be opened or mapped, or is too short.
    """
    name = f"file://{path}"
    try:
        # A FIFO would wait for its other end.
        mode = (os.O_RDWR if writable else os.O_RDONLY) | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        file = os.open(path, mode)
    except OSError as error:
        raise DeviceFailed(f"{name}: cannot open: {error.strerror}") from None
    try:
        size = os.fstat(file).st_size
        # A device such as /dev/uio0 has no size; the kernel refuses what it does not have.
        if size and size < offset + WINDOW_BYTES:
            raise DeviceFailed(
                f"{name} has {size} bytes, the registers at {offset:#x} need "
                f"{offset + WINDOW_BYTES}"
            )
        return RegisterWindow(file, offset, name=name, writable=writable)
    except (OSError, ValueError) as error:
        raise DeviceFailed(f"{name}: cannot map its registers: {error}") from None
    finally:
        os.close(file)
