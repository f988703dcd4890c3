"""The widths of the engine's bus at which its checks run."""

import pytest

from tests.checks.engine_checks import BUILDS

__all__ = ["MOSTLY_32", "WIDTHS"]

WIDTHS = pytest.mark.parametrize("bus_bits", list(BUILDS))

MOSTLY_32 = pytest.mark.parametrize("bus_bits", [pytest.param(512, marks=pytest.mark.long), 32])
"""Of checks that take seconds at 512 bits, which others of their kind look at."""
