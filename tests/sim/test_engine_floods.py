"""Floods: frames back to back, as many as the bus carries, while the network takes few or none."""

import pytest

from tests.checks.engine_checks import (
    BUILDS,
    check_bounds,
    check_floods,
    check_garbage,
    check_never_waits,
    open_engine,
)
from tests.checks.engine_widths import MOSTLY_32, WIDTHS
from tests.checks.flood_checks import check_flood, check_mixed_flood, check_refusals


@pytest.mark.parametrize(
    ("bus_bits", "ready_share"),
    [
        (512, 0.5),
        (32, 1.0),
        *(pytest.param(*case, marks=pytest.mark.long) for case in ((512, 1.0), (32, 0.5))),
    ],
)
def test_rounds_among_other_frames(bus_bits: int, ready_share: float) -> None:
    """Hundreds of frames back to back: every result arrives, and no frame finds the buffer full."""
    with open_engine(bus_bits) as engine:
        counters = check_floods(engine, BUILDS[bus_bits], ready_share, bursts=9)
    assert counters["rounds"] > 50


@MOSTLY_32
def test_garbage_back_to_back(bus_bits: int) -> None:
    """Frames of every length from one byte on, with whole rounds between them."""
    with open_engine(bus_bits) as engine:
        check_garbage(engine, BUILDS[bus_bits])


@WIDTHS
def test_receiving_never_waits_for_the_network(bus_bits: int) -> None:
    """Thousands of frames that all ask for an answer, while none can be sent."""
    with open_engine(bus_bits) as engine:
        check_never_waits(engine, BUILDS[bus_bits])


@MOSTLY_32
def test_bounds(bus_bits: int) -> None:
    """While nothing can be sent, so many replays and short answers of a job are kept, no more."""
    with open_engine(bus_bits) as engine:
        check_bounds(engine, BUILDS[bus_bits])


@pytest.mark.parametrize(
    ("bus_bits", "beats"),
    [
        *((512, beats) for beats in (1, 66)),
        *((32, beats) for beats in (1, 3, 18, 70)),
        *(pytest.param(512, beats, marks=pytest.mark.long) for beats in (3, 18, 70)),
        pytest.param(32, 66, marks=pytest.mark.long),
    ],
)
def test_floods_of_one_size_lose_no_contribution(bus_bits: int, beats: int) -> None:
    """A beat in every cycle, of every kind of frame; `make floods` takes all sizes."""
    with open_engine(bus_bits) as engine:
        check_flood(engine, BUILDS[bus_bits], bus_bits, beats)
        assert engine.statistics().receive_stalls == 0


@MOSTLY_32
def test_floods_of_all_sizes_lose_no_contribution(bus_bits: int) -> None:
    """The same with frames of all sizes and kinds after one another."""
    with open_engine(bus_bits) as engine:
        check_mixed_flood(engine, BUILDS[bus_bits], bus_bits, seed=0)
        assert engine.statistics().receive_stalls == 0


def test_refusals_have_a_rate() -> None:
    """Of the engine that simulates faster."""
    with open_engine(32) as engine:
        check_refusals(engine, BUILDS[32])
