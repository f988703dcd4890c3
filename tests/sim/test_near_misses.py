"""Frames that miss by little are judged as the protocol says."""

import pytest

from tests.checks.engine_checks import BUILDS, open_engine
from tests.checks.near_checks import misjudged


@pytest.mark.parametrize("bus_bits", list(BUILDS))
def test_the_engine_judges_them_rightly(bus_bits: int) -> None:
    with open_engine(bus_bits) as engine:
        assert not list(misjudged(engine, BUILDS[bus_bits]))
