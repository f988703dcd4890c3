"""Sockets' receive buffers as Linux makes them, whatever a program asks for.

The buffers of a user who is not root depend on the machine's settings. Instead of changing these, a
filter of system calls makes a process' requests for larger buffers do nothing, and those of the
programs that it starts: `python -m benchmarks.network.default_buffers COMMAND …` runs one so.
"""

import ctypes
import os
import platform
import struct
import sys

__all__ = ["keep", "main"]

_SETSOCKOPT = {"x86_64": 54, "aarch64": 208}
_SOL_SOCKET = 1
_SO_RCVBUF, _SO_RCVBUFFORCE = 8, 33

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2
_ALLOW, _DO_NOTHING = 0x7FFF0000, 0x00050000
"""SECCOMP_RET_ALLOW; SECCOMP_RET_ERRNO with error 0, which the caller takes for success."""

_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBER, _ARGUMENTS = 0, 16
"""Offsets in struct seccomp_data; only the lower words of arguments are looked at."""


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def keep() -> None:
    """Let this process, from now on, have receive buffers of the default size only.

    Raises:
        OSError: The kernel does not let it.
    """
    number = _SETSOCKOPT.get(platform.machine())
    if number is None:
        raise OSError(f"the number of setsockopt on {platform.machine()} is not known here")
    lines = [
        (_LOAD, 0, 0, _NUMBER),
        (_EQUAL, 0, 6, number),
        (_LOAD, 0, 0, _ARGUMENTS + 8),
        (_EQUAL, 0, 4, _SOL_SOCKET),
        (_LOAD, 0, 0, _ARGUMENTS + 16),
        (_EQUAL, 1, 0, _SO_RCVBUF),
        (_EQUAL, 0, 1, _SO_RCVBUFFORCE),
        (_RETURN, 0, 0, _DO_NOTHING),
        (_RETURN, 0, 0, _ALLOW),
    ]
    text = b"".join(struct.pack("=HBBI", *line) for line in lines)
    buffer = ctypes.create_string_buffer(text, len(text))
    program = _Program(len(lines), ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if (
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
        or libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) != 0
    ):
        raise OSError(ctypes.get_errno(), "a filter of system calls is not allowed here")


def main(arguments: list[str] | None = None) -> int:
    """Become the command of the arguments, with that filter."""
    command = sys.argv[1:] if arguments is None else arguments
    keep()
    os.execvp(command[0], command)


if __name__ == "__main__":
    sys.exit(main())
