"""The contract is consistent in itself, and the documents repeat it faithfully."""

import re
import tomllib

import pytest

from afflux_hdl.contract import registers, wire
from docs.generate import contract_tables
from tests.support.checkout import ROOT

DOCS = ROOT / "docs"


def test_header_fields_are_gapless_and_end_with_the_first_beat() -> None:
    end = 0
    for field in wire.FIELDS:
        assert field.offset == end
        end += field.size
    assert end == wire.HEADER_BYTES == 22
    assert wire.LOOKAHEAD_OFFSET == 512 // 8
    assert wire.PAYLOAD_OFFSET == 2 * 512 // 8


def test_frame_sizes() -> None:
    assert wire.frame_bytes(0) == wire.FRAME_BYTES_MIN == 128
    assert wire.frame_bytes(wire.LANES_MAX) == wire.FRAME_BYTES_MAX == 4224
    for blocks in (-1, 17):
        with pytest.raises(ValueError, match=str(blocks)):
            wire.frame_bytes(blocks)


@pytest.mark.parametrize("mtu, lanes", [(374, 1), (1500, 5), (4214, 16), (4213, 15), (9000, 16)])
def test_lanes_that_an_mtu_allows(mtu: int, lanes: int) -> None:
    assert wire.lanes_for_mtu(mtu) == lanes
    sealed = wire.frame_bytes(lanes) + wire.SEAL_BYTES
    assert sealed - wire.ETHERNET_BYTES <= mtu


def test_too_small_mtu_is_refused() -> None:
    with pytest.raises(ValueError, match="373"):
        wire.lanes_for_mtu(373)


def test_payload_share_of_the_wire() -> None:
    """Preamble, frame check sequence and gap are 24 bytes: the shares that the design promises."""
    for lanes, least in ((5, 0.89), (16, 0.96)):
        frame = wire.frame_bytes(lanes)
        assert lanes * wire.BLOCK_BYTES / (frame + 24) > least - 0.005


def test_registers_do_not_overlap() -> None:
    addresses = [register.address for register in registers.REGISTERS]
    assert len(set(addresses)) == len(addresses)
    assert all(address % 4 == 0 for address in addresses)
    assert max(addresses) < registers.COUNTER_BASE
    names = [r.name for r in registers.REGISTERS] + [c.name for c in registers.COUNTERS]
    assert len(set(names)) == len(names)


def test_release_is_the_package_version() -> None:
    project = tomllib.loads((DOCS.parent / "pyproject.toml").read_text())["project"]
    major, minor, patch = map(int, project["version"].split("."))
    assert major << 16 | minor << 8 | patch == registers.RELEASE


def test_unknown_names_are_refused() -> None:
    with pytest.raises(KeyError, match="nothing"):
        registers.address_of("nothing")
    with pytest.raises(KeyError, match="nothing"):
        registers.counter_address("nothing")


def test_documents_repeat_the_contract() -> None:
    """Changed tables? `make docs` writes them anew."""
    sections = 0
    for path in sorted(DOCS.glob("*.md")):
        text = path.read_text()
        sections += len(re.findall("<!-- generated: ", text))
        assert contract_tables.render(text) == text, path.name
    assert sections >= len(contract_tables.TABLES)


def test_reference_notices_a_difference() -> None:
    text = (DOCS / "protocol.md").read_text()
    planted = text.replace("| 50–53 | `round` | 4 |", "| 50–53 | `round` | 8 |")
    assert planted != text
    assert contract_tables.render(planted) == text
