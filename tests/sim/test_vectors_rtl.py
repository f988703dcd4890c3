"""The engine's RTL answers as in the test vectors of docs/vectors."""

import pytest

from afflux_sim.rtl.verilated import VerilatedEngine
from tests.checks.vector_reader import read_vectors
from tests.checks.vector_replay import replay_to_engine
from tests.scenarios.director import LARGE
from tests.support.checkout import ROOT

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("bus_bits", [512, 32])
def test_the_rtl_answers_as_in_the_captures(bus_bits: int) -> None:
    for vector in read_vectors(ROOT / "docs" / "vectors"):
        with VerilatedEngine(bus_bits=bus_bits, **LARGE) as engine:
            replay_to_engine(vector, engine)
