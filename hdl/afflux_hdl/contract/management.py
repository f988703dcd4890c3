"""Management: how a board without a host is configured over UDP, and the settings it starts with.

`docs/management.md` describes the protocol; gateware, client and the tables of that page derive
from this file. All fields of a message are little-endian, except where they say otherwise. Plain
Python: it imports neither amaranth nor torch nor numpy.

Tested: `tests/hdl/test_management_contract.py`.
"""

import ipaddress
import struct
from dataclasses import dataclass
from enum import IntEnum

from afflux_hdl.contract.registers import Access, Counter, Register
from afflux_hdl.contract.siphash import KEY_BYTES, siphash
from afflux_hdl.contract.wire import PORT as ENGINE_PORT

__all__ = [
    "ANSWER",
    "BURST",
    "HISTORY",
    "IDENTITY",
    "MAGIC",
    "MANAGEMENT_BASE",
    "MANAGEMENT_COUNTERS",
    "MANAGEMENT_COUNTER_BASE",
    "MANAGEMENT_REGISTERS",
    "MESSAGE",
    "MESSAGE_BYTES",
    "PERIOD_BITS",
    "PORT",
    "RESET_WORD",
    "SETTINGS_BYTES",
    "SETTINGS_FIELDS",
    "VERSION",
    "Field",
    "MessageType",
    "Settings",
    "Status",
    "management_address_of",
    "management_counter_address",
]

PORT = 4699
"""Default UDP port of a board's management."""

VERSION = 1
"""Version of the protocol."""

MAGIC = b"AM"
"""The first two octets of a message. The rest is then aligned to words of the frame."""

IDENTITY = 0x4146_4C4D
"""Value of the management_identity register, and of the address in a HELLO's answer: "AFLM"."""

ANSWER = 0x80
"""Set in the type of an answer."""

HISTORY = 64
"""A request that is one of the latest so many that were carried out is answered again."""

BURST = 64
"""Answers beyond those to new requests that may be sent at once, and then one in each period."""

PERIOD_BITS = 12
"""Binary logarithm of the cycles for each further one: 12,207 in a second at 50 MHz."""


class MessageType(IntEnum):
    """The kinds of requests."""

    HELLO = 1
    """The session and the latest sequence number; anybody at the controller's address may ask."""
    READ = 2
    """The value of a register."""
    WRITE = 3
    """A register be given a value."""


class Status(IntEnum):
    """The status of an answer."""

    DONE = 0
    REFUSED = 1
    TAKEN = 2
    FORGOTTEN = 3
    SESSION = 4

    @property
    def meaning(self) -> str:
        """One line for the reference page."""
        return _STATUS[self]


_STATUS = {
    Status.DONE: "carried out; to a HELLO: answered",
    Status.REFUSED: "carried out, but the register refused: there is none, or not now (SLVERR)",
    Status.TAKEN: "not carried out, and never will be: the number was another request's",
    Status.FORGOTTEN: "the number is too old to know whether this request was carried out",
    Status.SESSION: "not carried out, and never will be: its session is over",
}


@dataclass(frozen=True)
class Field:
    """One field of a message or of the settings.

    Attributes:
        name: Name in documents.
        offset: Its first byte.
        size: Bytes.
        meaning: One line for the reference page.
    """

    name: str
    offset: int
    size: int
    meaning: str


MESSAGE = (
    Field("magic", 0, 2, 'the octets 0x41 0x4D, "AM"'),
    Field("version", 2, 1, "1"),
    Field("type", 3, 1, "1 HELLO, 2 READ, 3 WRITE; in an answer with bit 7 set"),
    Field("status", 4, 1, "0 in a request"),
    Field("zero", 5, 1, "0"),
    Field("address", 6, 4, "register, in bytes; in a HELLO 0, in its answer 0x41464C4D"),
    Field("session", 10, 8, "the board's session; 0 in a HELLO"),
    Field("sequence", 18, 8, "of the request; in a HELLO 0; in answers see section 4"),
    Field("value", 26, 4, "to be written, or that was read, else 0; enciphered"),
    Field("board", 30, 4, "IPv4 address of the board, first octet first; enciphered"),
    Field("tag", 34, 8, "code over all this but the magic; of a HELLO a random challenge"),
)
"""The UDP payload, the same for requests and answers."""

MESSAGE_BYTES = 42
"""Bytes of each message. Its frame has 84, a multiple of 4."""

RESET_WORD = 0x5253_4554
"""The value to write to the reset register: "RSET"."""

RO, WO = Access.READ_ONLY, Access.WRITE_ONLY

MANAGEMENT_BASE = 0x1000
"""First address of the management's own registers; below are those of engine and node."""

MANAGEMENT_REGISTERS = (
    Register("management_identity", 0x1000, 32, RO, 'constant 0x41464C4D, "AFLM"'),
    Register("management_version", 0x1004, 8, RO, "version of the management protocol"),
    Register("board_flags", 0x1008, 1, RO, "bit 0: the address comes from DHCP"),
    Register("board_mac_low", 0x100C, 32, RO, "MAC address in force, last four octets"),
    Register("board_mac_high", 0x1010, 16, RO, "MAC address in force, first two octets"),
    Register("board_address", 0x1014, 32, RO, "IPv4 address in force, first octet uppermost"),
    Register("board_controller", 0x1018, 32, RO, "IPv4 address of the controller, likewise"),
    Register("board_port", 0x101C, 16, RO, "UDP port of the management"),
    Register("board_name_0", 0x1020, 32, RO, "name, first four characters, the first in bits 0-7"),
    Register("board_name_1", 0x1024, 32, RO, "name, the next four"),
    Register("board_name_2", 0x1028, 32, RO, "name, the next four"),
    Register("board_name_3", 0x102C, 32, RO, "name, the last four; unused ones are 0"),
    Register("board_uptime", 0x1030, 32, RO, "seconds since reset"),
    Register("board_lease", 0x1034, 32, RO, "seconds left of the DHCP lease; all ones: for ever"),
    Register("board_server", 0x1038, 32, RO, "IPv4 address of the DHCP server; 0: none"),
    Register("board_reset", 0x103C, 32, WO, "write 0x52534554: resets the board once answered"),
)

MANAGEMENT_COUNTERS = (
    Counter("management_frames", "frame from the node's host port"),
    Counter("management_not_ours", "frame neither for the management nor for DHCP, dropped"),
    Counter("management_bad_source", "datagram to the management from another address, dropped"),
    Counter("management_malformed", "datagram to it with a wrong length, checksum or field"),
    Counter("management_forged", "request with a wrong tag, dropped"),
    Counter("management_hellos", "HELLO answered"),
    Counter("management_executed", "request carried out"),
    Counter("management_repeats", "request answered again, and not carried out again"),
    Counter("management_refused", "request refused: TAKEN, FORGOTTEN or SESSION"),
    Counter("management_ahead", "request with a sequence number of the future, dropped"),
    Counter("management_limited", "answer not sent: beyond the rate"),
    Counter("dhcp_sent", "DHCP message sent"),
    Counter("dhcp_taken", "DHCP answer taken: OFFER, ACK or NAK"),
    Counter("dhcp_ignored", "DHCP answer that is malformed, not for this board, or not expected"),
    Counter("dhcp_lost", "lease that ended by NAK or by time"),
)
"""All have 32 bits and wrap. Each frame from the host port is in the first, and in one more."""

MANAGEMENT_COUNTER_BASE = 0x1100
"""Address of the first counter. Each takes one word."""


def management_address_of(name: str) -> int:
    """Return the byte address of the management's register called `name`.

    Raises:
        KeyError: If there is none.
    """
    for register in MANAGEMENT_REGISTERS:
        if register.name == name:
            return register.address
    raise KeyError(f"no register of the management is called {name!r}")


def management_counter_address(name: str) -> int:
    """Return the byte address of the management's counter called `name`.

    Raises:
        KeyError: If there is none.
    """
    for number, counter in enumerate(MANAGEMENT_COUNTERS):
        if counter.name == name:
            return MANAGEMENT_COUNTER_BASE + 4 * number
    raise KeyError(f"no counter of the management is called {name!r}")


SETTINGS_FIELDS = (
    Field("magic", 0, 3, 'the octets 0x41 0x46 0x53, "AFS"'),
    Field("version", 3, 1, "1"),
    Field("mac", 4, 6, "MAC address, as in a frame"),
    Field("flags", 10, 2, "little-endian; bit 0: address by DHCP"),
    Field("address", 12, 4, "IPv4 address, first octet first; 0 with DHCP"),
    Field("controller", 16, 4, "IPv4 address of the controller, likewise"),
    Field("port", 20, 2, "UDP port of the management, first octet first"),
    Field("engine_port", 22, 2, "UDP port of the engine, first octet first"),
    Field("name", 24, 16, "ASCII, padded with zeros"),
    Field("key", 40, 16, "key, as SipHash takes it"),
    Field("check", 56, 8, "SipHash-2-4 of bytes 0 to 39 under the key, little-endian"),
)
"""The settings, as the board has them in the memory called `settings`."""

SETTINGS_BYTES = 64
"""Bytes of the settings: 16 words of 32 bits, the first octet of each in the low bits."""

_PACKED = struct.Struct(">3sB6s2s4s4sHH16s16s8s")
_CHECKED_BYTES = 40
_MAGIC, _SETTINGS_VERSION, _FLAG_DHCP = b"AFS", 1, 1
_NAME_BYTES = 16
_JOBS_MAX = 256
_DHCP_CLIENT_PORT = 68


def _host_address(text: str, what: str) -> bytes:
    """Return the octets of an address that one host may have."""
    try:
        address = ipaddress.IPv4Address(text)
    except ValueError:
        raise ValueError(f"{what} must be an IPv4 address such as 10.0.0.9, not {text!r}") from None
    octets = address.packed
    if octets[0] == 0 or octets[0] >= 224:
        raise ValueError(f"{what} {text} is not an address that one host can have")
    return octets


def _port(number: int, what: str) -> int:
    if not 1 <= number <= 0xFFFF:
        raise ValueError(f"{what} must be 1 to 65535, not {number}")
    return number


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings that a board without a host has when it starts.

    Attributes:
        mac: MAC address, as a number whose uppermost octet comes first on the wire. Of one host.
        address: IPv4 address; None: by DHCP.
        controller: IPv4 address of the only host whose requests are looked at.
        key: 16 secret bytes, this board's alone.
        port: UDP port of the management.
        engine_port: UDP port of the engine.
        name: Up to 16 printable ASCII characters, for people.

    Raises:
        ValueError: If one of these cannot be; the message names it, but never shows the key.
    """

    mac: int
    address: str | None
    controller: str
    key: bytes
    port: int = PORT
    engine_port: int = ENGINE_PORT
    name: str = ""

    def __post_init__(self) -> None:
        if not 0 < self.mac < 1 << 48 or self.mac >> 40 & 1:
            raise ValueError(f"mac must be the MAC address of one host, not {self.mac:#014x}")
        if self.address is not None:
            _host_address(self.address, "address")
            if self.address == self.controller:
                raise ValueError(f"address and controller are both {self.address}")
        _host_address(self.controller, "controller")
        if len(self.key) != KEY_BYTES:
            raise ValueError(f"key must have {KEY_BYTES} bytes, not {len(self.key)}")
        if not any(self.key):
            raise ValueError("key must not be all zeros")
        _port(self.port, "port")
        _port(self.engine_port, "engine_port")
        if self.port == _DHCP_CLIENT_PORT:
            raise ValueError(f"port {self.port} is that of DHCP clients")
        # Job n hears its parent at engine_port + 1 + n: the node gives those ports to the engine.
        last = self.engine_port + _JOBS_MAX
        if last > 0xFFFF:
            raise ValueError(
                f"engine_port must be 1 to {0xFFFF - _JOBS_MAX}, not {self.engine_port}: the "
                f"{_JOBS_MAX} ports that follow it are those of its jobs"
            )
        if self.engine_port <= self.port <= last:
            raise ValueError(
                f"port {self.port} is the engine's: its jobs are at {self.engine_port} to {last}"
            )
        if self.address is None and self.engine_port <= _DHCP_CLIENT_PORT:
            raise ValueError(
                f"engine_port must be more than {_DHCP_CLIENT_PORT} with DHCP, not "
                f"{self.engine_port}: the ports that follow it are those of its jobs, and "
                f"{_DHCP_CLIENT_PORT} is where answers of the server come"
            )
        name = self.name
        if len(name) > _NAME_BYTES or not (name.isascii() and (name.isprintable())):
            raise ValueError(
                f"name must have up to {_NAME_BYTES} printable ASCII characters, not {name!r}"
            )

    def __repr__(self) -> str:
        return (
            f"Settings(mac={self.mac:#014x}, address={self.address!r}, "
            f"controller={self.controller!r}, port={self.port}, "
            f"engine_port={self.engine_port}, name={self.name!r})"
        )

    def to_bytes(self) -> bytes:
        """Return the settings as the board has them, with the check."""
        packed = _PACKED.pack(
            _MAGIC,
            _SETTINGS_VERSION,
            self.mac.to_bytes(6, "big"),
            (0 if self.address else _FLAG_DHCP).to_bytes(2, "little"),
            _host_address(self.address, "address") if self.address else bytes(4),
            _host_address(self.controller, "controller"),
            self.port,
            self.engine_port,
            self.name.encode("ascii"),
            self.key,
            bytes(8),
        )
        checked = packed[:_CHECKED_BYTES]
        return packed[:-8] + siphash(self.key, checked).to_bytes(8, "little")

    @classmethod
    def from_bytes(cls, data: bytes) -> "Settings":
        """Return the settings that `to_bytes` gave.

        Raises:
            ValueError: If they are not such, or were damaged.
        """
        if len(data) != SETTINGS_BYTES:
            raise ValueError(f"settings have {SETTINGS_BYTES} bytes, not {len(data)}")
        magic, version, mac, flags, address, controller, port, engine_port, name, key, check = (
            _PACKED.unpack(data)
        )
        if magic != _MAGIC or version != _SETTINGS_VERSION:
            raise ValueError(
                f"these are not settings of version {_SETTINGS_VERSION}: they begin with "
                f"{data[:4].hex(' ')}, not {_MAGIC.hex(' ')} {_SETTINGS_VERSION:02x}"
            )
        if siphash(key, data[:_CHECKED_BYTES]).to_bytes(8, "little") != check:
            raise ValueError("the check of these settings is wrong: they were damaged")
        dhcp = int.from_bytes(flags, "little")
        if dhcp not in (0, _FLAG_DHCP) or (dhcp and any(address)):
            raise ValueError(f"flags {dhcp:#06x} and address of these settings contradict")
        return cls(
            mac=int.from_bytes(mac, "big"),
            address=None if dhcp else str(ipaddress.IPv4Address(address)),
            controller=str(ipaddress.IPv4Address(controller)),
            key=key,
            port=port,
            engine_port=engine_port,
            name=name.rstrip(b"\0").decode("ascii"),
        )
