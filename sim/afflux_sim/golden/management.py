"""The golden model of a board's management: sections 1 to 4 and 8 of `docs/management.md`.

Written from that page alone; it shares no code with gateware, client and contract, and has its own
numbers. Time is what `pass_time` says. DHCP is not modelled: tests set `address` themselves.

Tested: `tests/sim/test_golden_management.py`.
"""

from dataclasses import dataclass, field
from typing import Protocol

from afflux_sim.golden.siphash import siphash_2_4

__all__ = ["COUNTERS", "GoldenManagement", "NodeBus"]

COUNTERS = (
    "management_frames",
    "management_not_ours",
    "management_bad_source",
    "management_malformed",
    "management_forged",
    "management_hellos",
    "management_executed",
    "management_repeats",
    "management_refused",
    "management_ahead",
    "management_limited",
    "dhcp_sent",
    "dhcp_taken",
    "dhcp_ignored",
    "dhcp_lost",
)

DONE, REFUSED, TAKEN, FORGOTTEN, SESSION = range(5)
HELLO, READ, WRITE = 1, 2, 3


class NodeBus(Protocol):
    """The register port of the node, addresses below 0x1000."""

    def read(self, address: int) -> int | None:
        """Return a register's value; None for SLVERR."""

    def write(self, address: int, value: int) -> bool:
        """Write a register; return False for SLVERR."""


@dataclass
class GoldenManagement:
    """A board's management.

    Attributes:
        settings: The 64 bytes.
        session: As drawn.
        node: The node's registers.
        seconds: Time since reset.
        resets: Times that a reset was ordered.
        latest: Latest sequence number.
        counters: By name.
        address: IPv4 address in force, 4 octets.
    """

    settings: bytes
    session: int
    node: NodeBus
    seconds: int = 0
    resets: int = 0
    latest: int = 0
    counters: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTERS, 0))

    def __post_init__(self) -> None:
        s = self.settings
        self.fault = s[:4] != b"AFS\x01" or s[56:] != siphash_2_4(s[40:56], s[:40])
        self.mac, self.flags, self.address = s[4:10], s[10], s[12:16]
        self.controller, self.port, self.engine_port = s[16:20], s[20:22], s[22:24]
        self.name, self.key = s[24:40], s[40:56]
        self._history: dict[int, tuple[bytes, int, int]] = {}
        self._tokens, self._cycles = 64, 0
        if not self.fault:
            self._announce()

    def _announce(self) -> None:
        """Write the addresses into the engine's registers."""
        mac = int.from_bytes(self.mac, "big")
        self.node.write(0x020, mac % 2**32)
        self.node.write(0x024, mac >> 32)
        self.node.write(0x02C, int.from_bytes(self.engine_port, "big"))
        self.node.write(0x028, int.from_bytes(self.address, "big"))

    def pass_time(self, cycles: int) -> None:
        """Let cycles pass, for the rate of answers."""
        self._cycles += cycles
        self._tokens = min(64, self._tokens + self._cycles // 4096)
        self._cycles %= 4096

    def receive(self, frame: bytes, bad: bool = False) -> bytes | None:
        """Take a frame from the node's host port; return the frame that answers it.

        Args:
            frame: Without frame check sequence.
            bad: Marked by the MAC.
        """
        self.counters["management_frames"] += 1
        verdict = self._where(frame, bad)
        payload = None
        if verdict is None:
            verdict, payload = self.judge(frame[42:84])
        self.counters[verdict] += 1
        if payload is None:
            return None
        ip = bytearray(b"\x45\x00\x00\x46\x00\x00\x40\x00\x40\x11\x00\x00")
        ip += self.address + frame[26:30]
        ip[10:12] = (0xFFFF - _sum(ip)).to_bytes(2, "big")
        udp = self.port + frame[34:36] + b"\x00\x32\x00\x00"
        return frame[6:12] + self.mac + b"\x08\x00" + bytes(ip) + udp + payload

    def _where(self, frame: bytes, bad: bool) -> str | None:
        """Return the counter of a frame; None if it is a request to look at."""
        ours = (
            not bad
            and not self.fault
            and any(self.address)
            and len(frame) >= 42
            and frame[:6] == self.mac
            and frame[12:15] == b"\x08\x00\x45"
            and frame[20:22] in (b"\x00\x00", b"\x40\x00")
            and frame[23] == 17
            and frame[30:34] == self.address
            and frame[36:38] == self.port
        )
        if not ours:
            return "management_not_ours"
        if frame[26:30] != self.controller or frame[34:36] == b"\0\0" or frame[6] & 1:
            return "management_bad_source"
        pseudo = frame[26:34] + b"\x00\x11" + frame[38:40]
        right = (
            len(frame) >= 84
            and frame[16:18] == b"\x00\x46"
            and _sum(frame[14:34]) == 0xFFFF
            and frame[38:40] == b"\x00\x32"
            and (frame[40:42] == b"\0\0" or _sum(pseudo + frame[34:84]) == 0xFFFF)
        )
        return None if right else "management_malformed"

    def judge(self, payload: bytes) -> tuple[str, bytes | None]:
        """Return what the payload of a datagram of the controller counts as, and the answer."""
        if (
            len(payload) != 42
            or payload[:3] != b"AM\x01"
            or payload[3] not in (HELLO, READ, WRITE)
            or payload[4:6] != b"\0\0"
        ):
            return "management_malformed", None
        kind, tag = payload[3], payload[34:]
        if kind == HELLO:
            # All of it but the challenge is zeros.
            if any(payload[6:34]) or not any(tag):
                return "management_malformed", None
            if not self._within_rate():
                return "management_limited", None
            return "management_hellos", self._answer(kind, DONE, 0x41464C4D, self.latest, 0, tag)
        word = _xor(payload[26:34], siphash_2_4(self.key, tag))
        if siphash_2_4(self.key, payload[2:26] + word) != tag or word[4:] != self.address:
            return "management_forged", None
        address = int.from_bytes(payload[6:10], "little")
        session = int.from_bytes(payload[10:18], "little")
        sequence = int.from_bytes(payload[18:26], "little")
        value = int.from_bytes(word[:4], "little")
        if session != self.session:
            return self._refuse(kind, SESSION, address, tag)
        if sequence > self.latest + 1:
            return "management_ahead", None
        if sequence == self.latest + 1:
            # Read before this request itself is counted.
            status, found = self._access(kind, address, value)
            self.latest = sequence
            self._history[sequence] = (tag, status, found)
            return "management_executed", self._answer(kind, status, address, sequence, found, tag)
        if sequence == 0 or sequence <= self.latest - 64:
            return self._refuse(kind, FORGOTTEN, address, tag)
        remembered, status, found = self._history[sequence]
        if remembered != tag:
            return self._refuse(kind, TAKEN, address, tag)
        if not self._within_rate():
            return "management_limited", None
        return "management_repeats", self._answer(kind, status, address, sequence, found, tag)

    def _refuse(self, kind: int, status: int, address: int, tag: bytes) -> tuple[str, bytes | None]:
        if not self._within_rate():
            return "management_limited", None
        return "management_refused", self._answer(kind, status, address, self.latest, 0, tag)

    def _within_rate(self) -> bool:
        if self._tokens == 0:
            return False
        self._tokens -= 1
        return True

    def _answer(
        self, kind: int, status: int, address: int, sequence: int, value: int, request_tag: bytes
    ) -> bytes:
        head = bytes([1, kind | 0x80, status, 0]) + address.to_bytes(4, "little")
        head += self.session.to_bytes(8, "little") + sequence.to_bytes(8, "little")
        word = value.to_bytes(4, "little") + self.address
        tag = siphash_2_4(self.key, head + word + request_tag)
        return b"AM" + head + _xor(word, siphash_2_4(self.key, tag)) + tag

    def _access(self, kind: int, address: int, value: int) -> tuple[int, int]:
        """Return status and value of an access that is carried out."""
        if address < 0x1000:
            if kind == WRITE:
                return (DONE if self.node.write(address, value) else REFUSED), 0
            found = self.node.read(address)
            return (REFUSED, 0) if found is None else (DONE, found)
        if kind == WRITE:
            if (address, value) != (0x103C, 0x52534554):
                return REFUSED, 0
            self.resets += 1
            return DONE, 0
        found = self._registers().get(address)
        return (REFUSED, 0) if found is None else (DONE, found)

    def _registers(self) -> dict[int, int]:
        mac = int.from_bytes(self.mac, "big")
        own = {
            0x1000: 0x41464C4D,
            0x1004: 1,
            0x1008: self.flags & 1,
            0x100C: mac % 2**32,
            0x1010: mac >> 32,
            0x1014: int.from_bytes(self.address, "big"),
            0x1018: int.from_bytes(self.controller, "big"),
            0x101C: int.from_bytes(self.port, "big"),
            0x1030: self.seconds,
            0x1034: 0,
            0x1038: 0,
            0x103C: 0,
        }
        for n in range(4):
            own[0x1020 + 4 * n] = int.from_bytes(self.name[4 * n : 4 * n + 4], "little")
        for n, name in enumerate(COUNTERS):
            own[0x1100 + 4 * n] = self.counters[name]
        return own


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def _sum(octets: bytes | bytearray) -> int:
    """Return the one's complement sum of RFC 1071 of 16-bit words."""
    total = 0
    for at in range(0, len(octets), 2):
        total += int.from_bytes(octets[at : at + 2].ljust(2, b"\0"), "big")
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total
