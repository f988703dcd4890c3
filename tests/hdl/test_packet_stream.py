"""The layouts of headers beside frames as scapy builds them."""

from amaranth.lib import data
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.l2 import ARP, Ether

from afflux_hdl.contract import wire
from afflux_hdl.engine.layouts import AffluxFrame
from afflux_hdl.lib.packet_stream import (
    ARP_HARDWARE_ETHERNET,
    ARP_REPLY,
    DONT_FRAGMENT,
    ETHERTYPE_ARP,
    ETHERTYPE_IPV4,
    ICMP_ECHO_REQUEST,
    IPV4_WITHOUT_OPTIONS,
    PROTOCOL_ICMP,
    PROTOCOL_UDP,
    ArpFrame,
    IcmpFrame,
    UdpFrame,
    as_sent,
    octet_of,
)

MACS = {"dst": "02:00:00:00:00:01", "src": "02:00:00:00:00:02"}
IPV4 = IP(src="10.1.2.3", dst="10.4.5.6", tos=0x28, id=0x1234, flags="DF", ttl=17)


def read(layout: data.StructLayout, frame: bytes) -> data.Const:
    return layout.from_bits(int.from_bytes(frame[: layout.size // 8], "little"))


def octets(*numbers: int) -> int:
    return int.from_bytes(bytes(numbers), "little")


def check_ipv4(frame: data.Const, protocol: int, length: int) -> None:
    assert frame.ethernet.destination == octets(2, 0, 0, 0, 0, 1)
    assert frame.ethernet.source == octets(2, 0, 0, 0, 0, 2)
    assert frame.ethernet.type == as_sent(ETHERTYPE_IPV4, 2)
    ipv4 = frame.ipv4
    assert (ipv4.version, ipv4.header_words) == (4, 5)
    assert ipv4.as_bits() & 0xFF == IPV4_WITHOUT_OPTIONS
    assert ipv4.service == 0x28
    assert ipv4.length == as_sent(length, 2)
    assert ipv4.identification == as_sent(0x1234, 2)
    assert ipv4.fragment == as_sent(DONT_FRAGMENT, 2)
    assert ipv4.time_to_live == 17
    assert ipv4.protocol == protocol
    assert ipv4.checksum != 0
    assert ipv4.source == octets(10, 1, 2, 3)
    assert ipv4.destination == octets(10, 4, 5, 6)


def test_udp() -> None:
    sent = bytes(Ether(**MACS) / IPV4 / UDP(sport=4700, dport=4701, chksum=0xABCD) / b"abcd")
    frame = read(UdpFrame, sent)
    check_ipv4(frame, PROTOCOL_UDP, 32)
    assert frame.udp.source == as_sent(4700, 2)
    assert frame.udp.destination == as_sent(4701, 2)
    assert frame.udp.length == as_sent(12, 2)
    assert frame.udp.checksum == as_sent(0xABCD, 2)


def test_icmp_echo() -> None:
    message = ICMP(type="echo-request", id=0x5678, seq=3, chksum=0xABCD)
    frame = read(IcmpFrame, bytes(Ether(**MACS) / IPV4 / message))
    check_ipv4(frame, PROTOCOL_ICMP, 28)
    assert (frame.icmp.type, frame.icmp.code) == (ICMP_ECHO_REQUEST, 0)
    assert frame.icmp.checksum == as_sent(0xABCD, 2)
    assert frame.icmp.identifier == as_sent(0x5678, 2)
    assert frame.icmp.sequence == as_sent(3, 2)


def test_arp() -> None:
    addresses = {"psrc": "10.1.2.3", "pdst": "10.4.5.6"}
    reply = ARP(op="is-at", hwsrc=MACS["src"], hwdst=MACS["dst"], **addresses)
    frame = read(ArpFrame, bytes(Ether(**MACS) / reply))
    assert frame.ethernet.type == as_sent(ETHERTYPE_ARP, 2)
    assert frame.arp.hardware == as_sent(ARP_HARDWARE_ETHERNET, 2)
    assert frame.arp.protocol == as_sent(ETHERTYPE_IPV4, 2)
    assert (frame.arp.hardware_octets, frame.arp.protocol_octets) == (6, 4)
    assert frame.arp.operation == as_sent(ARP_REPLY, 2)
    assert frame.arp.sender_mac == octets(2, 0, 0, 0, 0, 2)
    assert frame.arp.sender_address == octets(10, 1, 2, 3)
    assert frame.arp.target_mac == octets(2, 0, 0, 0, 0, 1)
    assert frame.arp.target_address == octets(10, 4, 5, 6)


def test_the_afflux_header_is_where_the_contract_has_it() -> None:
    assert octet_of(AffluxFrame, "afflux") == wire.AFFLUX_OFFSET
    assert AffluxFrame.size == 8 * wire.LOOKAHEAD_OFFSET
    for field in wire.FIELDS:
        first = field.name if "_" not in field.name else field.name.split("_")[-1]
        assert octet_of(AffluxFrame, f"afflux.{first}") == field.frame_offset
