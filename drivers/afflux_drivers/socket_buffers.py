"""Kernel buffers of UDP sockets."""

import socket

__all__ = ["datagrams_held", "enlarge"]

# Linux's number, which the socket module lacks. Passes the system's limit, if privileged.
_SO_RCVBUFFORCE = 33
_SO_SNDBUFFORCE = 32

_PER_DATAGRAM_BYTES = 1024


def enlarge(udp: socket.socket, size: int) -> int:
    """Asks for `size` bytes of receive and send buffer; the kernel may give less.

    Returns:
        What the receive buffer may charge in all, in bytes: Linux doubles what it grants, to allow
        for its own structures.
    """
    for force, plain in (
        (_SO_RCVBUFFORCE, socket.SO_RCVBUF),
        (_SO_SNDBUFFORCE, socket.SO_SNDBUF),
    ):
        try:
            udp.setsockopt(socket.SOL_SOCKET, force, size)
        except OSError:
            udp.setsockopt(socket.SOL_SOCKET, plain, size)
    return udp.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


def datagrams_held(buffer_bytes: int, datagram_bytes: int) -> int:
    """Datagrams that a receive buffer surely holds.

    A datagram is charged for the memory that carries it, up to the next power of two, and for the
    kernel's description of it: 6.6 KB were seen for 4.2 KB.
    """
    return buffer_bytes // (2 * datagram_bytes + _PER_DATAGRAM_BYTES)
