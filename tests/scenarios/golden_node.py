"""A model of the node that is written from `docs/node.md` alone, around the golden engine.

It knows no cycles: what waits where, and what finds no room, is the node's affair. So it says what
each source sends in its order, and a test how these may be mixed and what may be missing.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from afflux_sim.golden.engine import GoldenEngine
from tests.scenarios.packing import checksum

__all__ = ["GoldenNode", "Sent", "count_missing", "echo_reply_of"]

HEADERS_BYTES = 42
ECHO_BYTES_MAX = 1518
BROADCAST = b"\xff" * 6


@dataclass
class Sent:
    """Frames that leave, by where they come from, each list in its order."""

    to_host: list[bytes] = field(default_factory=list)
    engine: list[bytes] = field(default_factory=list)
    arp: list[bytes] = field(default_factory=list)
    echo: list[bytes] = field(default_factory=list)
    from_host: list[bytes] = field(default_factory=list)


class GoldenNode:
    """The outcome of frames from the network and from the host.

    Args:
        engine: The engine within, with its addresses.
        jobs: The build's number of jobs, each of which has a port for its parent.
        host_bytes: Size of the buffers of the host path.
        beat_bytes: Width of the bus: what a frame's last beat does not fill takes room as well.

    Attributes:
        host_path: Whether frames pass to and from the host.
        sent: All that has left.
        counters: By their names in `docs/node.md`.
    """

    def __init__(self, engine: GoldenEngine, jobs: int, host_bytes: int, beat_bytes: int) -> None:
        self._engine = engine
        self._jobs = jobs
        self._host_bytes = host_bytes
        self._beat_bytes = beat_bytes
        self.host_path = True
        self.sent = Sent()
        self.counters: Counter[str] = Counter()

    def move(self, address: str) -> None:
        """Give the node another IPv4 address."""
        self._engine.endpoint = replace(self._engine.endpoint, address=address)

    def from_network(self, frame: bytes, error: bool = False) -> None:
        """Take a frame from the network; `error`: the MAC has marked it."""
        self.counters["network_frames_in"] += 1
        self.counters["network_bytes_in"] += len(frame)
        to = self.destination(frame)
        if to == "engine":
            self.counters["to_engine"] += 1
            self.sent.engine += self._engine.receive(frame, error)
        elif error:
            self.counters["bad_frames"] += 1
        elif to == "arp":
            self.counters["arp_replies"] += 1
            self.sent.arp.append(self._arp_reply(frame))
        elif to == "echo":
            reply = echo_reply_of(frame)
            self.counters["echo_bad" if reply is None else "echo_replies"] += 1
            self.sent.echo += [] if reply is None else [reply]
        elif self.host_path:
            self.counters["to_host"] += 1
            self.sent.to_host.append(frame)
        else:
            self.counters["host_off"] += 1

    def from_host(self, frame: bytes, error: bool = False) -> None:
        """Take a frame from the host; `error`: the host has marked it."""
        room = -(-len(frame) // self._beat_bytes) * self._beat_bytes
        if not self.host_path:
            self.counters["from_host_off"] += 1
        elif error:
            self.counters["from_host_bad"] += 1
        elif room > self._host_bytes:
            self.counters["from_host_oversize"] += 1
        else:
            self.counters["from_host"] += 1
            self.sent.from_host.append(frame)

    def destination(self, frame: bytes) -> str:
        """`engine`, `arp`, `echo` or `host`."""
        here = self._engine.endpoint
        if len(frame) < HEADERS_BYTES:
            return "host"
        if frame[12:14] == b"\x08\x06":
            return "arp" if self._asks_for_us(frame) else "host"
        ours = (
            frame[:6] == here.mac
            and frame[12:15] == b"\x08\x00\x45"
            and frame[30:34] == here.packed_address
            and here.packed_address != bytes(4)
        )
        fragment = int.from_bytes(frame[20:22], "big")
        # Whether it may be fragmented does not matter, whether it was does.
        whole = fragment in (0, 0x4000)
        if not ours:
            return "host"
        if frame[23] == 17:
            port = int.from_bytes(frame[36:38], "big")
            within = (port - here.port) % 2**16 <= self._jobs
            return "engine" if within and whole else "host"
        length = int.from_bytes(frame[16:18], "big")
        is_request = frame[23] == 1 and frame[34:36] == b"\x08\x00"
        of_host = not frame[6] & 1 and 0 < frame[26] < 224
        fits = 28 <= length <= ECHO_BYTES_MAX - 14
        return "echo" if is_request and whole and of_host and fits else "host"

    def _asks_for_us(self, frame: bytes) -> bool:
        here = self._engine.endpoint
        return (
            frame[:6] in (here.mac, BROADCAST)
            and frame[14:22] == b"\x00\x01\x08\x00\x06\x04\x00\x01"
            and frame[38:42] == here.packed_address
            and not frame[22] & 1
            and frame[28:32] != here.packed_address
            and here.packed_address != bytes(4)
        )

    def _arp_reply(self, frame: bytes) -> bytes:
        here = self._engine.endpoint
        asking = frame[22:28]
        headers = asking + here.mac + b"\x08\x06\x00\x01\x08\x00\x06\x04\x00\x02"
        body = here.mac + here.packed_address + frame[22:32]
        return (headers + body).ljust(60, b"\0")


def count_missing(got: Sequence[bytes], expected: Sequence[bytes]) -> int:
    """Return how many of `expected` are missing in `got`, which has them in this order."""
    at = 0
    for frame in got:
        while at < len(expected) and expected[at] != frame:
            at += 1
        assert at < len(expected), f"out of order, or of nobody: {frame[:64].hex(' ', 4)}"
        at += 1
    return len(expected) - len(got)


def echo_reply_of(frame: bytes) -> bytes | None:
    """Return the reply to an echo request; None if the request is faulty."""
    length = int.from_bytes(frame[16:18], "big")
    message = frame[34 : 14 + length]
    if not 14 + length <= len(frame) <= ECHO_BYTES_MAX or checksum(frame[14:34]) not in (0, 0xFFFF):
        return None
    if checksum(message) not in (0, 0xFFFF):
        return None
    ip = bytearray(frame[14:34])
    ip[4:12] = b"\x00\x00\x40\x00\x40\x01\x00\x00"
    ip[12:20] = frame[30:34] + frame[26:30]
    ip[10:12] = _inverted(ip)
    icmp = bytearray(message)
    icmp[0:4] = bytes(4)
    icmp[2:4] = _inverted(icmp)
    ethernet = frame[6:12] + frame[:6] + b"\x08\x00"
    return ethernet + bytes(ip) + bytes(icmp) + frame[14 + length :]


def _inverted(data: bytes | bytearray) -> bytes:
    """Return the checksum of data in which its field is 0. Only of zeros alone it is all ones."""
    found = checksum(bytes(data))
    return found.to_bytes(2, "big")
