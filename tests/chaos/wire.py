"""A cable with faults: a process between a host's interface and its port of the switch.

The host is one of a network's "boards": its interface is a tap device. The process reads a frame at
one end and writes it at the other, or loses, doubles, delays or changes it. A changed frame keeps
its checksums, so that a kernel or an engine has something to notice; with right checksums nothing
but Afflux's own rules is left (docs/security.md), so there only what these judge is changed.
"""

import fcntl
import os
import random
import select
import struct
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection

from benchmarks.network.host import Host

__all__ = ["CABLE", "Faults", "carry"]

CABLE = "cable"
"""The interface that becomes the port of the switch."""

_TUNSETIFF = 0x400454CA
_TAP, _NO_HEADER = 0x0002, 0x1000
_MOST = 2000
_ETHERNET = 14


@dataclass(frozen=True)
class Faults:
    """Shares of the frames, each way.

    Attributes:
        doubled: Sent twice, the second time a little later.
        delayed: Overtaken by those that come in the next milliseconds.
        changed: With a bit that is flipped behind the Ethernet header.
        lost: Not sent.
    """

    doubled: float = 0.0
    delayed: float = 0.0
    changed: float = 0.0
    lost: float = 0.0


def carry(connection: Connection, place: Host, seed: int) -> None:
    """Be the cable until the pipe ends; what comes through it are faults, each is answered."""
    place.enter()
    near, far = _tap("eth0"), _tap(CABLE)
    connection.send("ready")
    choose = random.Random(seed)
    faults = Faults()
    later: list[tuple[float, int, bytes]] = []
    poll = select.poll()
    for file in (near, far, connection.fileno()):
        poll.register(file, select.POLLIN)
    while True:
        now = time.monotonic()
        due = [each for each in later if each[0] <= now]
        later = [each for each in later if each[0] > now]
        for _, end, frame in due:
            _write(end, frame)
        for file, _ in poll.poll(1 if later else 1000):
            if file == connection.fileno():
                try:
                    faults = connection.recv()
                except EOFError:
                    return
                connection.send("done")
                continue
            end = far if file == near else near
            frame = _read(file)
            if choose.random() < faults.lost:
                continue
            if choose.random() < faults.changed and len(frame) > _ETHERNET:
                place_of_bit = choose.randrange(_ETHERNET * 8, len(frame) * 8)
                changed = bytearray(frame)
                changed[place_of_bit // 8] ^= 1 << place_of_bit % 8
                frame = bytes(changed)
            if choose.random() < faults.delayed:
                later.append((now + choose.uniform(0.0002, 0.005), end, frame))
                continue
            _write(end, frame)
            if choose.random() < faults.doubled:
                later.append((now + choose.uniform(0.0, 0.003), end, frame))


def _tap(name: str) -> int:
    file = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
    fcntl.ioctl(file, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _TAP | _NO_HEADER))
    return file


def _read(file: int) -> bytes:
    try:
        return os.read(file, _MOST)
    except OSError:
        return b""


def _write(file: int, frame: bytes) -> None:
    # An end that is down takes none, as if there were no cable.
    if frame:
        try:
            os.write(file, frame)
        except OSError:
            return
