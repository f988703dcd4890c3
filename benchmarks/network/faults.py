"""Faults of packets at a port of the switch, as a classic BPF program.

The traffic control's classifier `bpf` runs it on each packet. It needs no module that makes loss
(`netem`), which not every kernel has.
"""

from dataclasses import dataclass

__all__ = ["Fault", "bytecode"]

_LOAD_HALF, _LOAD_BYTE, _LOAD_WORD, _LOAD_LENGTH = 0x28, 0x30, 0x20, 0x80
_EQUAL, _GREATER, _GREATER_OR_EQUAL, _RETURN = 0x15, 0x25, 0x35, 0x06
_RANDOM = 0xFFFFF000 + 56
"""SKF_AD_OFF + SKF_AD_RANDOM: not a byte of the packet, but a random word."""

_PASS, _DROP = 0xFFFFFFFF, 2
"""TC_ACT_UNSPEC: as if there were no program; TC_ACT_SHOT."""

_IPV4, _IPV6, _UDP = 0x0800, 0x86DD, 17
_ETHERNET = 14


@dataclass(frozen=True)
class Fault:
    """Which IP packets are dropped: those for which all of this holds.

    Attributes:
        share: A random number below 1 is below this; 1: always.
        udp: They are UDP; False: of any protocol.
        longer_than: They have more bytes than this, from the IP header on; 0: of any length.
    """

    share: float = 1.0
    udp: bool = False
    longer_than: int = 0

    def __post_init__(self) -> None:
        """Check that the share is one."""
        if not 0.0 <= self.share <= 1.0:
            raise ValueError(f"share is {self.share}: it must be from 0 to 1")


def bytecode(fault: Fault) -> str:
    """Return the program as `tc filter add … bpf da bytecode` takes it."""
    # Jumps name labels here; `_assembled` counts the instructions between.
    lines: list[tuple[str, int, str, str, int]] = [
        ("", _LOAD_HALF, "", "", 12),
        ("", _EQUAL, "ipv4", "", _IPV4),
        ("", _EQUAL, "ipv6", "pass", _IPV6),
    ]
    lines += [
        ("ipv4", _LOAD_BYTE, "", "", 23),
        ("", _EQUAL, "length", "pass" if fault.udp else "length", _UDP),
        ("ipv6", _LOAD_BYTE, "", "", 20),
        ("", _EQUAL, "length", "pass" if fault.udp else "length", _UDP),
        ("length", _LOAD_LENGTH, "", "", 0),
        ("", _GREATER, "", "pass", fault.longer_than + _ETHERNET if fault.longer_than else 0),
    ]
    if fault.share < 1.0:
        lines += [
            ("", _LOAD_WORD, "", "", _RANDOM),
            ("", _GREATER_OR_EQUAL, "pass", "", round(fault.share * 2**32)),
        ]
    lines += [("drop", _RETURN, "", "", _DROP), ("pass", _RETURN, "", "", _PASS)]
    return _assembled(lines)


def _assembled(lines: list[tuple[str, int, str, str, int]]) -> str:
    places = {label: number for number, (label, *_) in enumerate(lines) if label}
    words = [str(len(lines))]
    for number, (_, code, true, false, value) in enumerate(lines):
        jumps = [places[label] - number - 1 if label else 0 for label in (true, false)]
        words.append(f"{code} {jumps[0]} {jumps[1]} {value}")
    return ",".join(words)
