import struct

import numpy as np
import pytest
from scapy.compat import raw
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from afflux_drivers.frames import FrameMaker, destination_of, frame_header, mac_of
from afflux_drivers.packets import HEADER, Header, PacketBuffer, datagram_bytes
from afflux_hdl.contract import wire


def test_header_fields_stand_where_the_contract_says():
    for number, field in enumerate(wire.FIELDS):
        values = [0] * len(wire.FIELDS)
        values[number] = (1 << 8 * field.size) - 2
        packed = HEADER.pack(*values)
        assert len(packed) == wire.HEADER_BYTES
        expected = values[number].to_bytes(field.size, "little")
        assert packed[field.offset : field.offset + field.size] == expected
        assert not any(packed[: field.offset] + packed[field.offset + field.size :])
        assert getattr(Header._make(HEADER.unpack(packed)), field.name) == values[number]


def test_header_splits_its_first_byte():
    header = Header(0x1A, 0, 0, 0, 0, 0, 0, 0, 0)
    assert (header.version, header.type) == (1, wire.Type.MISSING)


@pytest.mark.parametrize("lanes", [0, 1, 5, 16])
def test_buffer_views_stand_where_the_contract_says(lanes):
    packet = PacketBuffer(lanes)
    datagram = packet.datagram
    assert len(datagram) == datagram_bytes(lanes) + 1
    assert datagram_bytes(lanes) == wire.frame_bytes(lanes) - wire.AFFLUX_OFFSET
    assert packet.words.flags.aligned
    assert packet.blocks.flags.aligned
    packet.words[3] = 0x1122_3344
    assert bytes(datagram[22 + 12 : 22 + 16]) == b"\x44\x33\x22\x11"
    for lane in range(lanes):
        packet.blocks[lane, 2] = -2 - lane
        at = 22 + 64 + 256 * lane + 8
        assert struct.unpack_from("<i", datagram, at) == (-2 - lane,)
    datagram[22:26] = b"\1\0\0\0"
    assert packet.words[0] == 1


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
