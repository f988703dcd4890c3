"""The scapy layer agrees with the contract and with the golden model's frames."""

import random

import numpy as np
import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from afflux_hdl.contract import wire
from afflux_sim.golden.frames import Endpoint, Packet, build_frame, parse_packet
from afflux_sim.golden.frames import block_bytes as packet_block_bytes
from tests.scenarios.afflux_layer import ABSENT, ENGINE_PORT, TYPES, Afflux, block_bytes, blocks_of
from tests.scenarios.job_frames import ENGINE_ADDRESS, ENGINE_MAC, Job

NIBBLES = {"version_type": ("version", "type"), "opcode_dtype": ("opcode", "dtype")}


@pytest.mark.parametrize("field", wire.FIELDS, ids=lambda field: field.name)
def test_every_field_is_where_the_contract_has_it(field) -> None:
    names = NIBBLES.get(field.name, (field.name,))
    ones = (1 << 8 * field.size // len(names)) - 1
    none = dict.fromkeys(("version", "type", "opcode", "dtype", "present"), 0)
    packet = bytes(Afflux(**(none | dict.fromkeys(names, ones))))
    assert len(packet) == wire.UDP_PAYLOAD_MIN
    expected = bytearray(wire.HEADER_BYTES)
    expected[field.offset : field.offset + field.size] = b"\xff" * field.size
    assert packet[: wire.HEADER_BYTES] == expected


@pytest.mark.parametrize("upper, lower", NIBBLES.values())
def test_the_first_of_two_is_the_upper_nibble(upper: str, lower: str) -> None:
    packet = bytes(Afflux(**{"version": 0, upper: 5, lower: 9}))
    assert 0x59 in packet[:2]


def test_numbers_are_little_endian() -> None:
    packet = bytes(Afflux(slot=0x0102, round=0x03040506, key=0x0708090A0B0C0D0E, words=[1] * 16))
    assert packet[4:6].hex() == "0201"
    assert packet[8:20].hex() == "060504030e0d0c0b0a090807"
    assert packet[22:26].hex() == "01000000"


def test_constants() -> None:
    assert {member.value: member.name for member in wire.Type} == TYPES
    assert (ABSENT, ENGINE_PORT) == (wire.ABSENT, wire.PORT)
    assert Afflux().version == wire.VERSION


def draw_packet(choose: random.Random) -> Packet:
    lanes = [lane for lane in range(16) if choose.random() < 0.4]
    opcode, dtype = choose.getrandbits(4), choose.getrandbits(4)
    words = packet_block_bytes(opcode, dtype) // 4
    return Packet(
        type=choose.choice(list(TYPES)),
        opcode=opcode,
        dtype=dtype,
        job=choose.getrandbits(8),
        worker=choose.getrandbits(8),
        slot=choose.getrandbits(16),
        round=choose.getrandbits(32),
        key=choose.getrandbits(64),
        operation=choose.getrandbits(16),
        words=tuple(choose.getrandbits(32) for _ in range(16)),
        blocks={
            lane: np.array([choose.getrandbits(31) for _ in range(words)], dtype=np.int32)
            for lane in lanes
        },
    )


@pytest.mark.parametrize("seed", range(20))
def test_reads_the_golden_models_frames(seed: int) -> None:
    packet = draw_packet(random.Random(seed))
    engine = Endpoint(bytes.fromhex(ENGINE_MAC.replace(":", "")), ENGINE_ADDRESS, ENGINE_PORT)
    worker = Endpoint(bytes(6), "10.0.0.1", 50000)
    frame = build_frame(engine, worker, packet)
    ether = Ether(frame)
    assert (ether.src, ether[IP].src, ether[UDP].sport) == (ENGINE_MAC, ENGINE_ADDRESS, ENGINE_PORT)
    read = ether[Afflux]
    names = ("type", "opcode", "dtype", "job", "worker", "slot", "round", "key", "operation")
    for name in (*names, "present", "version"):
        assert getattr(read, name) == getattr(packet, name), name
    assert tuple(read.words) == packet.words
    assert blocks_of(read) == {lane: block.tolist() for lane, block in packet.blocks.items()}
    # scapy finds the checksum right that the golden model has computed.
    again = ether.copy()
    del again[IP].chksum, again[IP].len
    assert bytes(again) == frame


@pytest.mark.parametrize("seed", range(5))
def test_the_golden_model_reads_its_frames(seed: int) -> None:
    packet = draw_packet(random.Random(100 + seed))
    job = Job(number=3, workers=2, lanes=16, first_round=0)
    blocks = {lane: block.tolist() for lane, block in packet.blocks.items()}
    frame = job.data(1, packet.slot, packet.round, blocks, packet.words, operation=7)
    read = parse_packet(frame)
    expected = (0, 3, 1, packet.slot, packet.round, job.key, 7, packet.words)
    found = (read.type, read.job, read.worker, read.slot, read.round, read.key, read.operation)
    assert (*found, read.words) == expected
    assert frame[128:] == block_bytes(blocks)
    assert {lane: block.tolist() for lane, block in read.blocks.items()} == blocks
