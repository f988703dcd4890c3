"""Frames that miss by little are judged as the protocol says."""

from tests.checks.engine_checks import BUILDS, open_engine
from tests.checks.engine_widths import MOSTLY_32
from tests.checks.near_checks import misjudged


@MOSTLY_32
def test_the_engine_judges_them_rightly(bus_bits: int) -> None:
    with open_engine(bus_bits) as engine:
        assert not list(misjudged(engine, BUILDS[bus_bits]))
