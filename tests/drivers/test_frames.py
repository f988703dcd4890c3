import struct

import numpy as np
import pytest
from scapy.compat import raw
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from afflux_drivers.frames import (
    FrameMaker,
    address_in_frames,
    destination_of,
    frame_header,
    mac_of,
)


@pytest.mark.parametrize("size", [0, 1, 86, 4182])
def test_frames_are_what_scapy_makes_of_them(size):
    engine = int.from_bytes(bytes((192, 168, 7, 9)), "big")
    payload = np.random.default_rng(size).bytes(size)
    frame = FrameMaker(engine, 4700).frame(payload, "10.255.0.1", 40000)
    packet = Ether(frame)
    assert (packet.dst, packet.src, packet.type) == (
        "02:00:c0:a8:07:09",
        "02:00:0a:ff:00:01",
        0x0800,
    )
    ip, udp = packet[IP], packet[UDP]
    assert (ip.src, ip.dst, ip.ttl, ip.id, ip.frag, str(ip.flags), ip.tos) == (
        "10.255.0.1",
        "192.168.7.9",
        64,
        0,
        0,
        "DF",
        0,
    )
    assert (udp.sport, udp.dport, udp.chksum) == (40000, 4700, 0)
    assert raw(udp.payload) == payload
    checksum = ip.chksum
    del ip.chksum
    assert Ether(raw(packet))[IP].chksum == checksum


def test_checksums_of_many_addresses():
    generator = np.random.default_rng(1)
    for source, destination, size in generator.integers(0, 2**32, (2000, 3)).tolist():
        header = frame_header((b"\0" * 6,) * 2, (source, destination), (1, 2), size % 4183)
        words = struct.unpack_from(">10H", header, 14)
        total = sum(words)
        total = (total & 0xFFFF) + (total >> 16)
        assert total & 0xFFFF == 0xFFFF, hex(source)


def test_way_back_from_a_frame():
    header = frame_header((mac_of(1), mac_of(2)), (3, 0x0102_03FF), (4, 65535), 0)
    assert destination_of(header) == ("1.2.3.255", 65535)


def test_remembered_headers_are_bounded():
    maker = FrameMaker(1, 2)
    for port in range(10_000):
        maker.frame(b"", "10.0.0.1", port)
    assert len(maker._headers) <= 4096


def test_an_engine_on_all_addresses_has_one_in_its_frames():
    # No frame is for an engine whose address is 0.0.0.0.
    assert address_in_frames("0.0.0.0") == 0x7F00_0001
    assert address_in_frames("10.0.0.9") == 0x0A00_0009
