"""Packet streams: their beats, the headers that frames begin with, and addresses.

All fields are as on the wire, the first octet in the low bits. Ethernet and the Internet protocols
send the most significant octet first, so the octets of their numbers are in reverse:
`octets.reversed_octets` turns them round, `as_sent` does the same for constants.
"""

from amaranth.hdl import Value
from amaranth.lib import data

__all__ = [
    "ARP_HARDWARE_ETHERNET",
    "ARP_REPLY",
    "ARP_REQUEST",
    "DONT_FRAGMENT",
    "ETHERTYPE_ARP",
    "ETHERTYPE_IPV4",
    "ICMP_ECHO_REPLY",
    "ICMP_ECHO_REQUEST",
    "IPV4_WITHOUT_OPTIONS",
    "PROTOCOL_ICMP",
    "PROTOCOL_UDP",
    "TIME_TO_LIVE",
    "ArpFrame",
    "Ethernet",
    "IcmpFrame",
    "Ipv4",
    "Local",
    "PacketBeat",
    "Peer",
    "UdpFrame",
    "as_sent",
    "is_of_host",
    "octet_of",
]

ETHERTYPE_IPV4, ETHERTYPE_ARP = 0x0800, 0x0806
PROTOCOL_ICMP, PROTOCOL_UDP = 1, 17
ICMP_ECHO_REPLY, ICMP_ECHO_REQUEST = 0, 8
ARP_HARDWARE_ETHERNET = 1
ARP_REQUEST, ARP_REPLY = 1, 2

IPV4_WITHOUT_OPTIONS = 0x45
"""The first octet of an IPv4 header: version 4, and five words of header."""

DONT_FRAGMENT = 0x4000
"""The IPv4 field of flags and fragment offset with nothing but don't-fragment set."""

TIME_TO_LIVE = 64
"""Of the packets that leave here."""


class PacketBeat(data.StructLayout):
    """One beat of a packet stream.

    Args:
        bus_bits: Width of the data.
        ports: Network ports behind the stream.

    Members:
        data: Bytes, the first in the low bits.
        keep: One bit for each byte that belongs to the frame: all, except in the last beat.
        last: The frame ends here.
        error: With `last`: the MAC found the frame to be bad.
        net_ports: If there are several network ports: one bit for each by which the frame has come
            or is to leave, the same in all beats of a frame.
    """

    def __init__(self, bus_bits: int, ports: int = 1) -> None:
        super().__init__(
            {"data": bus_bits, "keep": bus_bits // 8, "last": 1, "error": 1}
            | ({"net_ports": ports} if ports > 1 else {})
        )


class Peer(data.StructLayout):
    """The addresses of the other end.

    Args:
        ports: Network ports of this end.

    Members:
        mac, address, port: Of its Ethernet, IPv4 and UDP headers.
        net_ports: If there are several network ports: those behind which it is.
    """

    def __init__(self, ports: int = 1) -> None:
        super().__init__(
            {"mac": 48, "address": 32, "port": 16} | ({"net_ports": ports} if ports > 1 else {})
        )


Local = data.StructLayout({"mac": 48, "address": 32, "port": 16})
"""The engine's own addresses."""

Ethernet = data.StructLayout({"destination": 48, "source": 48, "type": 16})

Ipv4 = data.StructLayout(
    {
        "header_words": 4,
        "version": 4,
        "service": 8,
        "length": 16,
        "identification": 16,
        "fragment": 16,
        "time_to_live": 8,
        "protocol": 8,
        "checksum": 16,
        "source": 32,
        "destination": 32,
    }
)
"""The IPv4 header (RFC 791) without options. `fragment`: flags and fragment offset."""

Udp = data.StructLayout({"source": 16, "destination": 16, "length": 16, "checksum": 16})
"""The UDP header (RFC 768)."""

IcmpEcho = data.StructLayout(
    {"type": 8, "code": 8, "checksum": 16, "identifier": 16, "sequence": 16}
)
"""The header of an ICMP echo request or reply (RFC 792)."""

Arp = data.StructLayout(
    {
        "hardware": 16,
        "protocol": 16,
        "hardware_octets": 8,
        "protocol_octets": 8,
        "operation": 16,
        "sender_mac": 48,
        "sender_address": 32,
        "target_mac": 48,
        "target_address": 32,
    }
)
"""An ARP packet for IPv4 over Ethernet (RFC 826)."""

UdpFrame = data.StructLayout({"ethernet": Ethernet, "ipv4": Ipv4, "udp": Udp})
"""The headers of a frame with a UDP datagram, 42 octets."""

IcmpFrame = data.StructLayout({"ethernet": Ethernet, "ipv4": Ipv4, "icmp": IcmpEcho})
"""The headers of a frame with an ICMP echo message, 42 octets."""

ArpFrame = data.StructLayout({"ethernet": Ethernet, "arp": Arp})
"""A frame with an ARP packet, 42 octets."""


def is_of_host(mac: Value, address: Value) -> Value:
    """Return whether a host may have sent from these addresses, as on the wire.

    Not from the MAC address of a group (IEEE 802, the first octet's lowest bit) or of everybody,
    nor from an IPv4 address of 0.0.0.0/8, 224.0.0.0/4 or 240.0.0.0/4 (RFC 1122, section 3.2.1.3):
    an answer would go to many, or to nobody. 127.0.0.0/8 is not looked at: an answer to it goes to
    one host, which drops it, and before a simulated engine stand the sockets of its own host.
    """
    return ~mac[0] & (address[:8] != 0) & ~address[5:8].all()


def as_sent(number: int, octets: int) -> int:
    """Return the value of a field of `octets` octets in which `number` is sent."""
    return int.from_bytes(number.to_bytes(octets, "big"), "little")


def octet_of(layout: data.StructLayout, path: str) -> int:
    """Return the number of the first octet of a field, such as `ipv4.length`, in `layout`."""
    bits, inner = 0, layout
    for name in path.split("."):
        field = inner[name]
        bits += field.offset
        inner = field.shape
    return bits // 8
