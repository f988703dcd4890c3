"""The C++ headers of the contract are what the contract makes them."""

import pytest

from afflux_hdl.contract import registers, wire
from afflux_hdl.contract.cpp_headers import HEADERS
from tests.support.checkout import ROOT

CONTRACT = ROOT / "drivers" / "native" / "contract"


@pytest.mark.parametrize("name", HEADERS)
def test_header_is_up_to_date(name: str) -> None:
    assert (CONTRACT / name).read_text() == HEADERS[name](), (
        "run: python -m afflux_hdl.contract.cpp_headers drivers/native/contract"
    )


def test_there_are_no_others() -> None:
    assert {path.name for path in CONTRACT.iterdir()} == set(HEADERS)


def test_headers_hold_the_whole_contract() -> None:
    text = HEADERS["wire.hpp"]()
    for field in wire.FIELDS:
        name = "".join(part.capitalize() for part in field.name.split("_"))
        assert f"k{name}At = {field.offset};" in text
    text = HEADERS["registers.hpp"]()
    assert text.count("{Address::") == len(registers.REGISTERS)
