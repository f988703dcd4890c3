"""A simulated board at a network's switch, and the frames that the kernel at its host port sees."""

import contextlib
import socket
import struct
import subprocess
from collections.abc import Iterator

from afflux.commands import serve
from benchmarks.network.host import Host
from benchmarks.network.namespaces import Network
from tests.support.host import serving
from tests.support.node_build import OPTIONS

__all__ = ["Overheard", "kind_of", "overhearing", "plugged", "start"]

_ALL_FRAMES = 0x0003
_OUTGOING = 4
_ARP, _IPV4 = 0x0806, 0x0800
_ICMP, _TCP, _UDP = 1, 6, 17
_SO_RCVBUFFORCE = 33


def start(board: Host, *options: str) -> tuple["subprocess.Popen[str]", str]:
    """Start a simulated board with these options of `afflux serve`; see `serving.start`."""
    # As a script it does not load torch.
    return serving.start(*options, engine=["node"], program=(serve.__file__,), place=board)


@contextlib.contextmanager
def plugged(network: Network, *options: str) -> Iterator[str]:
    """Yield the URL of the network's first board, whose cable is plugged in.

    Args:
        network: The network.
        options: More options of `afflux serve`.
    """
    board = network.boards[0]
    taps = ("--network-tap", "wire0", "--host-tap", board.interface)
    process, line = start(board, *taps, *OPTIONS, *options)
    try:
        assert line.startswith(f"afflux: node engine on udp://{board.address}:"), line
        network.plug(board, "wire0")
        yield line.split()[-1]
    finally:
        process.terminate()
        assert serving.finish(process) == 0


class Overheard:
    """The frames that the kernel of a board's host has received from the host port."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener

    def frames(self) -> list[bytes]:
        """Return the frames of which this has not been asked before."""
        found = []
        with contextlib.suppress(BlockingIOError):
            while True:
                frame, (_, _, kind, *_) = self._listener.recvfrom(65536)
                if kind != _OUTGOING:
                    found.append(frame)
        return found


@contextlib.contextmanager
def overhearing(board: Host) -> Iterator[Overheard]:
    """Listen to what comes to a board's host, from now on."""
    with board.sockets_here():
        listener = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_FRAMES))
    with listener:
        listener.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 16 << 20)
        listener.bind((board.interface, _ALL_FRAMES))
        listener.setblocking(False)
        yield Overheard(listener)


def kind_of(frame: bytes) -> str:
    """Name what a frame is, such as "arp request 10.77.0.1", "echo request", "udp 4700"."""
    (ethertype,) = struct.unpack_from(">H", frame, 12)
    if ethertype == _ARP:
        wanted = socket.inet_ntoa(frame[38:42])
        return f"arp request {wanted}" if frame[21] == 1 else "arp reply"
    if ethertype != _IPV4:
        return "other"
    if frame[23] == _ICMP:
        return "echo request" if frame[34] == 8 else "icmp"
    if frame[23] in (_TCP, _UDP):
        (port,) = struct.unpack_from(">H", frame, 36)
        return f"{'tcp' if frame[23] == _TCP else 'udp'} {port}"
    return "other"
