"""The engine's RTL and the sources of frames: whom it must not answer."""

from tests.checks.engine_checks import BUILDS, open_engine
from tests.checks.engine_widths import WIDTHS
from tests.checks.source_checks import check_no_address, check_sources


@WIDTHS
def test_groups_are_not_answered(bus_bits: int) -> None:
    with open_engine(bus_bits) as engine:
        check_sources(engine, BUILDS[bus_bits])


@WIDTHS
def test_an_engine_without_an_address_takes_nothing(bus_bits: int) -> None:
    with open_engine(bus_bits) as engine:
        check_no_address(engine, BUILDS[bus_bits])
