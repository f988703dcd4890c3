"""The golden model's own layout, typed from the document, against the contract of the engine."""

from typing import Any

import pytest

from afflux_hdl.contract import registers, wire
from afflux_sim.golden import engine as golden
from afflux_sim.golden import frames
from afflux_sim.golden.frames import Endpoint, Packet, as_block, build_frame, parse_packet

HERE = Endpoint(bytes(6), "10.0.0.1", wire.PORT)

# For each field of the contract, the golden fields and a value that fills it.
FILLED: dict[str, tuple[dict[str, Any], int]] = {
    "version_type": ({"version": 0xA, "type": 0x5}, 0xA5),
    "opcode_dtype": ({"opcode": 0xC, "dtype": 0x3}, 0xC3),
    "job": ({"job": 0xF1}, 0xF1),
    "worker": ({"worker": 0xF2}, 0xF2),
    "slot": ({"slot": 0xF3E3}, 0xF3E3),
    "present": ({"blocks": {0: as_block([]), 15: as_block([])}}, 0x8001),
    "round": ({"round": 0xF4E4D4C4}, 0xF4E4D4C4),
    "key": ({"key": 0xF5E5D5C5B5A59585}, 0xF5E5D5C5B5A59585),
    "operation": ({"operation": 0xF6E6}, 0xF6E6),
}


def test_every_field_is_compared():
    assert [field.name for field in wire.FIELDS] == list(FILLED)
    assert frames.HEADER.size == wire.HEADER_BYTES


@pytest.mark.parametrize("field", wire.FIELDS, ids=lambda field: field.name)
def test_fields_lie_where_the_contract_says(field):
    changes, value = FILLED[field.name]
    zeros: dict[str, Any] = {"type": 0, "version": 0}
    frame = build_frame(HERE, HERE, Packet(**zeros | changes))
    header = bytearray(wire.HEADER_BYTES)
    header[field.offset : field.offset + field.size] = value.to_bytes(field.size, "little")
    assert frame[wire.AFFLUX_OFFSET : wire.LOOKAHEAD_OFFSET] == header
    parsed = parse_packet(frame)
    for name, given in changes.items():
        if name != "blocks":
            assert getattr(parsed, name) == given
    assert parsed.present == (value if field.name == "present" else 0)


@pytest.mark.parametrize("k", [0, 1, 16])
def test_lengths_and_offsets(k):
    blocks = {lane: as_block([lane + 1]) for lane in range(k)}
    frame = build_frame(HERE, HERE, Packet(type=0, words=tuple(range(1, 17)), blocks=blocks))
    assert len(frame) == wire.frame_bytes(k)
    words = frame[wire.LOOKAHEAD_OFFSET :][: wire.LOOKAHEAD_BYTES]
    assert words == b"".join(i.to_bytes(4, "little") for i in range(1, 17))
    for lane in range(k):
        at = wire.PAYLOAD_OFFSET + lane * wire.BLOCK_BYTES
        assert int.from_bytes(frame[at : at + 4], "little") == lane + 1


@pytest.mark.parametrize(("enum", "module"), [(wire.Type, frames), (wire.Opcode, frames)])
def test_numbers_have_the_same_names(enum, module):
    assert {member.name: getattr(module, member.name) for member in enum} == {
        member.name: member.value for member in enum
    }


def test_dtypes():
    assert {member.name.lower(): member.value for member in wire.Dtype} == frames.DTYPES


def test_causes_of_refusal():
    for member in wire.Refusal:
        assert getattr(golden, f"REFUSED_{member.name}") == member.value


def test_other_constants():
    assert frames.VERSION == wire.VERSION
    assert frames.LANES == wire.LANES_MAX
    assert frames.ELEMENTS == wire.BLOCK_ELEMENTS
    assert frames.ABSENT == wire.ABSENT
    assert frames.EVERYONE == wire.EVERYONE
    assert golden.GoldenEngine(mac=bytes(6), address="0.0.0.0", port=1).workers == wire.WORKERS_MAX


def test_counters_are_the_same_in_the_same_order():
    assert tuple(counter.name for counter in registers.COUNTERS) == frames.COUNTERS
    for number, name in enumerate(frames.COUNTERS):
        assert registers.counter_address(name) == 0x100 + 8 * number
