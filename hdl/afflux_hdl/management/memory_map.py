"""Where the management's program has what, and the words that it is written in.

Words are two octets as on the wire, the first in the low bits: the Internet's numbers, which come
with the upper octet first, are only compared and copied, or turned round by `swap`.
"""

from enum import IntEnum

from afflux_hdl.contract import management
from afflux_hdl.management.instructions import Assembler, Mode, Special

__all__ = [
    "ACCEPTED",
    "ADDRESS",
    "ADDRESS_AT",
    "BOARD_AT",
    "CHECK",
    "CONFIGURED",
    "CONTROLLER",
    "ENGINE_PORT",
    "FAULT",
    "FLAGS",
    "HISTORY_BASE",
    "HISTORY_WORDS",
    "IP_BYTES",
    "KEY",
    "MAC",
    "MESSAGE_WORDS",
    "NAME",
    "PORT",
    "RESET",
    "RESET_PERIODS",
    "SEQUENCE_AT",
    "SESSION_AT",
    "TAGGED_BLOCKS",
    "TAG_AT",
    "UDP_BYTES",
    "VALUE_AT",
    "X_NEXT",
    "DhcpMessage",
    "DhcpState",
    "X",
    "as_sent",
    "count",
    "move",
    "point_at_counter",
    "shown",
    "variables",
]

X, X_NEXT = Mode.INDEXED, Mode.ADVANCING

# Where the settings have what, in words.
MAC, FLAGS, ADDRESS, CONTROLLER, PORT, ENGINE_PORT = 2, 5, 6, 8, 10, 11
NAME, KEY, CHECK = 12, 20, 28

HISTORY_BASE = 512
"""First word of the history; all else is below."""

HISTORY_WORDS = 8
"""Words of an entry: tag, value, status."""

MESSAGE_WORDS = management.MESSAGE_BYTES // 2
ADDRESS_AT, SESSION_AT, SEQUENCE_AT, VALUE_AT, BOARD_AT, TAG_AT = 3, 5, 9, 13, 15, 17
TAGGED_BLOCKS = 4

IP_BYTES, UDP_BYTES = 70, 50
CONFIGURED, FAULT, ACCEPTED, RESET = 1, 2, 4, 8
RESET_PERIODS = 4
"""Periods of 4,096 cycles from the answer to the reset: by then it has left the node."""


class DhcpState(IntEnum):
    """Where the client is (RFC 2131, figure 5). NONE: the settings have an address."""

    NONE = 0
    INIT = 1
    SELECTING = 2
    REQUESTING = 3
    BOUND = 4
    RENEWING = 5
    REBINDING = 6


class DhcpMessage(IntEnum):
    """Types of messages (RFC 2132, section 9.6)."""

    DISCOVER = 1
    OFFER = 2
    REQUEST = 3
    ACK = 5
    NAK = 6


def as_sent(number: int) -> int:
    """Return the word in which 16 bits are sent, the most significant octet first."""
    return (number & 0xFF) << 8 | number >> 8


def variables(p: Assembler) -> None:
    """Give each variable its place."""
    # All from `shown` to `end` are cleared at the start: a reset does not do that.
    p.variable("pointer")
    p.variable("shown", 2 * 16)
    p.variable("counters", 2 * len(management.MANAGEMENT_COUNTERS))
    p.variable("address", 2)
    p.variable("session", 4)
    p.variable("latest", 4)
    for name in ("tokens", "seen", "periods", "status", "left", "resets"):
        p.variable(name)
    p.variable("fraction", 2)
    p.variable("message", MESSAGE_WORDS)
    p.variable("peer_mac", 3)
    p.variable("source", 2)
    for name in ("peer_port", "ip_length", "udp_length", "udp_checksum", "ip_sum"):
        p.variable(name)
    for name in ("not_mine", "not_everybody", "not_address"):
        p.variable(name)
    p.variable("difference", 4)
    p.variable("value", 2)
    p.variable("entry")
    for name in ("t", "u"):
        p.variable(name)
    for name in ("dhcp_state", "dhcp_timer", "dhcp_tries", "dhcp_elapsed", "dhcp_type"):
        p.variable(name)
    for name in ("dhcp_xid", "dhcp_server", "dhcp_offered", "dhcp_t1", "dhcp_t2", "long"):
        p.variable(name, 2)
    p.variable("dhcp_server_mac", 3)
    p.variable("dhcp_drawn", 4)
    # The content of a received message, and the part of it that is kept.
    for name in ("in_address", "in_server", "in_lease", "in_t1", "in_t2"):
        p.variable(name, 2)
    for name in ("in_type", "in_left", "in_odd", "in_pair", "in_short", "in_octet", "option_left"):
        p.variable(name)
    # The beginning of a sent message.
    p.variable("to_mac", 3)
    p.variable("to_address", 2)
    p.variable("end")


def shown(p: Assembler, name: str) -> int:
    """Return where the lower half of a register of the management is kept."""
    return p["shown"] + (management.management_address_of(name) - management.MANAGEMENT_BASE) // 2


def count(p: Assembler, name: str) -> None:
    """Count an event."""
    point_at_counter(p, name)
    p.call("count")


def point_at_counter(p: Assembler, name: str) -> None:
    """Make X the address of a counter."""
    at = management.management_counter_address(name) - management.MANAGEMENT_COUNTER_BASE
    p.index(p["counters"] + at // 2)


def move(p: Assembler, to: int, *sources: int, swap: bool = False) -> None:
    """Copy words."""
    for n, source in enumerate(sources):
        p.load(source)
        if swap:
            p.special(Special.SWAP)
        p.store(to + n)
