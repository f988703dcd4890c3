"""Golden frames against scapy and against bytes typed here from docs/protocol.md section 2."""

import numpy as np
import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from afflux_sim.golden.frames import (
    DATA,
    JOINED,
    RESULT,
    Endpoint,
    Packet,
    as_block,
    build_frame,
    look_ahead,
    ones_complement_sum,
    parse_packet,
    split_look_ahead,
)

HERE = Endpoint(bytes.fromhex("020000000001"), "10.0.0.1", 4700)
THERE = Endpoint(bytes.fromhex("0200000000fe"), "192.168.255.254", 65535)

PACKET = Packet(
    type=RESULT,
    opcode=3,
    dtype=2,
    job=0x44,
    worker=0x3F,
    slot=0x0102,
    round=0x90ABCDEF,
    key=0x0123456789ABCDEF,
    operation=0xFEDC,
    words=tuple(0x01000000 * i + i for i in range(16)),
    blocks={15: as_block(range(64)), 2: as_block([-1] * 64)},
)


def test_header_bytes_as_the_document_places_them():
    frame = build_frame(HERE, THERE, PACKET)
    assert frame[42:64].hex(" ") == (
        "28 32 44 3f 02 01 04 80 ef cd ab 90 ef cd ab 89 67 45 23 01 dc fe"
    )
    assert frame[64:72].hex(" ") == "00 00 00 00 01 00 00 01"
    # Lane 2 comes before lane 15.
    assert frame[128:384] == b"\xff" * 256
    assert frame[384:392].hex(" ") == "00 00 00 00 01 00 00 00"


@pytest.mark.parametrize("k", [0, 1, 5, 16])
def test_scapy_agrees_with_lengths_checksums_and_fields(k):
    packet = Packet(type=DATA, blocks={lane: as_block([lane]) for lane in range(k)})
    frame = build_frame(HERE, THERE, packet)
    assert len(frame) == 128 + 256 * k
    seen = Ether(frame)
    assert (seen.src, seen.dst, seen.type) == ("02:00:00:00:00:01", "02:00:00:00:00:fe", 0x0800)
    ip = seen[IP]
    assert (ip.version, ip.ihl, ip.tos, ip.id, ip.frag, ip.ttl, ip.proto) == (4, 5, 0, 0, 0, 64, 17)
    assert ip.flags == "DF"
    assert (ip.src, ip.dst, ip.len) == (HERE.address, THERE.address, 114 + 256 * k)
    assert (ip[UDP].sport, ip[UDP].dport) == (4700, 65535)
    assert (ip[UDP].len, ip[UDP].chksum) == (94 + 256 * k, 0)
    given = ip.chksum
    del ip.chksum
    assert Ether(seen.build())[IP].chksum == given


def test_parsing_undoes_building():
    frame = build_frame(HERE, THERE, PACKET)
    parsed = parse_packet(frame)
    assert parsed.to_bytes() == PACKET.to_bytes()
    assert build_frame(HERE, THERE, parsed) == frame
    assert (parsed.type, parsed.version, parsed.present) == (RESULT, 2, 0x8004)


def test_short_answers_are_128_bytes():
    assert len(build_frame(HERE, THERE, Packet(type=JOINED))) == 128


def test_ones_complement_sum_of_the_example_in_rfc_1071():
    assert ones_complement_sum(bytes.fromhex("0001f203f4f5f6f7")) == 0xDDF2


def test_look_ahead_word_orders_by_row_then_by_greatest_exponent():
    words = [look_ahead(3, 200), look_ahead(3, 1), look_ahead(4, 255), look_ahead(4, 0)]
    assert words == sorted(words)
    assert [split_look_ahead(word) for word in words] == [(3, 200), (3, 1), (4, 255), (4, 0)]
    # The last row that the document allows still differs from absent.
    assert look_ahead(2**24 - 2, 0) < 0xFFFFFFFF


def test_blocks_are_read_modulo_two_to_the_32():
    assert as_block([2**32 - 1, 2**31]).tolist()[:3] == [-1, -(2**31), 0]
    assert as_block([]).dtype == np.int32
