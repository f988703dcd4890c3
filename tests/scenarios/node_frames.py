"""Frames for the node that are not Afflux: built by scapy, the answers expected too."""

import random
from collections.abc import Mapping

from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6EchoRequest, IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Raw

from tests.scenarios.afflux_layer import ENGINE_PORT
from tests.scenarios.job_frames import ENGINE_ADDRESS, ENGINE_MAC

__all__ = [
    "BROADCAST",
    "LOCAL",
    "PEER_ADDRESS",
    "PEER_MAC",
    "arp_reply",
    "arp_request",
    "draw_question",
    "echo_reply",
    "echo_request",
    "padded",
    "random_host_frame",
]

BROADCAST = "ff:ff:ff:ff:ff:ff"
PEER_MAC, PEER_ADDRESS = "02:00:0b:00:00:07", "10.0.0.77"
FRAME_MIN = 60

LOCAL = {
    "local.mac": int.from_bytes(bytes.fromhex(ENGINE_MAC.replace(":", "")), "little"),
    "local.address": int.from_bytes(bytes(map(int, ENGINE_ADDRESS.split("."))), "little"),
}
"""The node's own addresses, by the names of its parts' inputs."""


def padded(frame: bytes) -> bytes:
    """At least the smallest frame without its check sequence, padded with zeros."""
    return frame.ljust(FRAME_MIN, b"\0")


def arp_request(mac: str = PEER_MAC, address: str = PEER_ADDRESS, **changes: object) -> bytes:
    """Return a request for the engine's address."""
    to = changes.pop("to", BROADCAST)
    fields = {"op": "who-has", "hwsrc": mac, "psrc": address, "pdst": ENGINE_ADDRESS} | changes
    return padded(bytes(Ether(src=mac, dst=to) / ARP(**fields)))


def arp_reply(request: bytes) -> bytes:
    """Return the answer of RFC 826, as scapy's own answering machine makes it."""
    arp = Ether(request)[ARP]
    reply = Ether(dst=arp.hwsrc, src=ENGINE_MAC) / ARP(
        op="is-at", hwsrc=ENGINE_MAC, psrc=arp.pdst, hwdst=arp.hwsrc, pdst=arp.psrc
    )
    return padded(bytes(reply))


def echo_request(
    payload: bytes, *, icmp: Mapping[str, object] | None = None, **ip: object
) -> bytes:
    """Return an echo request to the engine. `icmp` and `ip` are changes of the headers."""
    headers = Ether(src=PEER_MAC, dst=ENGINE_MAC)
    headers /= IP(**({"src": PEER_ADDRESS, "dst": ENGINE_ADDRESS} | ip))
    return padded(bytes(headers / ICMP(type=8, **(icmp or {})) / Raw(payload)))


def echo_reply(request: bytes) -> bytes:
    """Return the reply to a right echo request, checksums by scapy."""
    asked = Ether(request)
    reply = Ether(src=ENGINE_MAC, dst=asked.src)
    reply /= IP(src=ENGINE_ADDRESS, dst=asked[IP].src, tos=asked[IP].tos, id=0, flags="DF", ttl=64)
    message = asked[ICMP]
    data = bytes(message.payload)[: asked[IP].len - 28]
    reply /= ICMP(type=0, id=message.id, seq=message.seq) / Raw(data)
    made = bytearray(padded(bytes(reply)))
    if made[36:38] == b"\0\0":
        # Both zeros of one's complement are right if any other word is not 0; the node's is this.
        made[36:38] = b"\xff\xff"
    return bytes(made)


def draw_question(choose: random.Random) -> bytes:
    """Return an ARP or echo request, right or with something wrong."""
    if choose.random() < 0.4:
        mac = f"02:00:0b:{choose.randrange(256):02x}:{choose.randrange(256):02x}:07"
        to = choose.choice(["ff:ff:ff:ff:ff:ff", ENGINE_MAC])
        return arp_request(mac, f"10.{choose.randrange(256)}.1.{choose.randrange(256)}", to=to)
    size = choose.choice([0, 1, 2, 17, 18, 19, 56, choose.randrange(400)])
    numbers: dict[str, object] = {"id": choose.getrandbits(16), "seq": choose.getrandbits(16)}
    frame = echo_request(choose.randbytes(size), icmp=numbers, tos=choose.randrange(256))
    draw = choose.random()
    if draw < 0.2:
        wrong = bytearray(frame)
        wrong[choose.randrange(14, len(wrong))] ^= 1 << choose.randrange(8)
        return bytes(wrong)
    return frame[: choose.randrange(42, len(frame) + 1)] if draw < 0.25 else frame


def random_host_frame(choose: random.Random, largest: int = 1514) -> bytes:
    """Return a frame that is not for the node: of many protocols, sizes, and addresses."""
    size = choose.choice([0, 1, 18, choose.randrange(100), choose.randrange(largest - 60)])
    body = Raw(choose.randbytes(size))
    elsewhere = f"02:00:0c:00:00:{choose.randrange(256):02x}"
    ours = Ether(src=PEER_MAC, dst=ENGINE_MAC)
    other = Ether(src=PEER_MAC, dst=elsewhere)
    ether = choose.choice([ours, other])
    ip = IP(src=PEER_ADDRESS, dst=ENGINE_ADDRESS)
    udp = UDP(sport=4711, dport=ENGINE_PORT)
    kinds = [
        ether / IPv6(dst="fe80::1") / udp / body,
        ether / IPv6(dst="fe80::1") / ICMPv6EchoRequest(data=body.load),
        ether / Dot1Q(vlan=7) / ip / udp / body,
        ether / Dot1Q(vlan=7, type=0x0806) / ARP(pdst=ENGINE_ADDRESS),
        ether / ip / TCP(dport=ENGINE_PORT) / body,
        ours / ip / UDP(sport=1, dport=ENGINE_PORT - 1) / body,
        ours / ip / UDP(sport=1, dport=ENGINE_PORT + 100) / body,
        ours / IP(dst="10.0.0.10") / udp / body,
        ours / IP(dst=ENGINE_ADDRESS, frag=3) / body,
        ours / IP(dst=ENGINE_ADDRESS, options=b"\x01" * 4) / udp / body,
        ours / ip / ICMP(type="echo-reply") / body,
        ours / IP(dst=ENGINE_ADDRESS, flags="MF") / ICMP() / body,
        ours / IP(dst=ENGINE_ADDRESS, options=b"\x01" * 4) / ICMP() / body,
        other / ip / ICMP() / body,
        other / ip / udp / body,
        Ether(src=PEER_MAC, dst=BROADCAST) / ARP(pdst="10.0.0.10"),
        Ether(src=PEER_MAC, dst=BROADCAST) / ARP(psrc=ENGINE_ADDRESS, pdst=ENGINE_ADDRESS),
        Ether(src=PEER_MAC, dst=ENGINE_MAC) / ARP(op="is-at", pdst=ENGINE_ADDRESS),
        Raw(choose.randbytes(choose.randrange(1, 70))),
        Raw(bytes(ours / ip / udp)[: choose.randrange(1, 42)]),
    ]
    return bytes(choose.choice(kinds))
