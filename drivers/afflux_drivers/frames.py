"""Ethernet, IPv4 and UDP around a payload, as an engine sees and sends them.

A software aggregator gets payloads from a UDP socket, so the frames of its engine were never on a
wire: MAC addresses are made from the IPv4 addresses, and the UDP checksum, which the kernel has
verified, is 0.
"""

import socket
import struct

from afflux_hdl.contract import wire

__all__ = [
    "FRAME_HEADER",
    "FrameMaker",
    "address_in_frames",
    "datagram_of",
    "destination_of",
    "frame_header",
    "mac_of",
    "source_port_of",
]

FRAME_HEADER = struct.Struct(">6s6sHBBHHHBBHIIHHHH")
"""Destination, source, type; IPv4 from version to destination; UDP ports, length, checksum."""

_IPV4_AND_UDP_BYTES = wire.IPV4_BYTES + wire.UDP_BYTES
_VERSION_AND_LENGTH = 0x45
_DONT_FRAGMENT = 0x4000
_TIME_TO_LIVE = 64
_UDP = 17
_ETHERTYPE_IPV4 = 0x0800
_CACHED_HEADERS = 4096
_LOOPBACK = 0x7F00_0001


def mac_of(address: int) -> bytes:
    """Return the MAC address that stands for an IPv4 address: locally administered, unicast."""
    return b"\x02\x00" + address.to_bytes(4, "big")


def frame_header(
    macs: tuple[bytes, bytes],
    addresses: tuple[int, int],
    ports: tuple[int, int],
    payload_bytes: int,
) -> bytes:
    """Return the 42 bytes before a UDP payload, with the IPv4 checksum and no UDP checksum.

    Args:
        macs: Destination and source MAC address.
        addresses: Source and destination IPv4 address.
        ports: Source and destination UDP port.
        payload_bytes: Bytes of the UDP payload, up to 65507.
    """
    total = _IPV4_AND_UDP_BYTES + payload_bytes
    source, destination = addresses
    words = (
        (_VERSION_AND_LENGTH << 8)
        + total
        + _DONT_FRAGMENT
        + (_TIME_TO_LIVE << 8 | _UDP)
        + (source >> 16)
        + (source & 0xFFFF)
        + (destination >> 16)
        + (destination & 0xFFFF)
    )
    # Folding carries leaves the remainder by 65535, in the range 1 to 65535, as no sum here is 0.
    checksum = 0xFFFF - ((words - 1) % 0xFFFF + 1)
    return FRAME_HEADER.pack(
        *macs,
        _ETHERTYPE_IPV4,
        _VERSION_AND_LENGTH,
        0,
        total,
        0,
        _DONT_FRAGMENT,
        _TIME_TO_LIVE,
        _UDP,
        checksum,
        source,
        destination,
        *ports,
        wire.UDP_BYTES + payload_bytes,
        0,
    )


def address_in_frames(address: str) -> int:
    """Return the IPv4 address that frames have for one that a socket is bound to.

    Of a socket that is bound to all addresses it is 127.0.0.1: no frame is for an engine whose
    address is 0.0.0.0.
    """
    return int.from_bytes(socket.inet_aton(address), "big") or _LOOPBACK


class FrameMaker:
    """Frames that a host would have received, made from the payloads that it did.

    Args:
        address: The host's IPv4 address.
        port: Its UDP port.
    """

    def __init__(self, address: int, port: int) -> None:
        self._mac, self._address, self._port = mac_of(address), address, port
        self._headers: dict[tuple[str, int, int], bytes] = {}

    def frame(self, payload: bytes, host: str, port: int) -> bytes:
        """Return the frame with `payload` that `host`, four decimal octets, sent from `port`."""
        key = (host, port, len(payload))
        header = self._headers.get(key)
        if header is None:
            # Anyone may send, so the memory for senders is bounded.
            if len(self._headers) >= _CACHED_HEADERS:
                self._headers.clear()
            source = int.from_bytes(bytes(map(int, host.split("."))), "big")
            header = self._headers[key] = frame_header(
                (self._mac, mac_of(source)),
                (source, self._address),
                (port, self._port),
                len(payload),
            )
        return header + payload


def datagram_of(frame: bytes) -> memoryview | None:
    """Return the UDP payload of an engine's frame, without the seal; None if its sum is wrong.

    A host that receives the frame drops it then. Here the kernel makes a checksum of its own, so a
    frame that the engine has found wrong must not get that far.
    """
    # From the addresses to the end, with protocol and UDP length. Words of 16 bits: what is
    # divisible by 65535 has the one's complement sum that it should have.
    pseudo = _UDP + int.from_bytes(frame[38:40], "big")
    if (int.from_bytes(frame[26:], "big") + pseudo) % 0xFFFF:
        return None
    return memoryview(frame)[wire.AFFLUX_OFFSET : -wire.SEAL_BYTES]


def destination_of(frame: bytes) -> tuple[str, int]:
    """Return the IPv4 address, as four decimal octets, and UDP port that a frame goes to."""
    a, b, c, d, _, _, port = struct.unpack_from(">BBBBBBH", frame, 30)
    return f"{a}.{b}.{c}.{d}", port


def source_port_of(frame: bytes) -> int:
    """Return the UDP port that a frame comes from."""
    return int.from_bytes(frame[34:36], "big")
