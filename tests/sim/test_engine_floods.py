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

WIDTHS = pytest.mark.parametrize("bus_bits", list(BUILDS))


@WIDTHS
@pytest.mark.parametrize("ready_share", [1.0, 0.5])
def test_rounds_among_other_frames(bus_bits: int, ready_share: float) -> None:
    """Hundreds of frames back to back: every result arrives, and no frame finds the buffer full."""
    with open_engine(bus_bits) as engine:
        counters = check_floods(engine, BUILDS[bus_bits], ready_share, bursts=9)
    assert counters["rounds"] > 50


@WIDTHS
def test_garbage_back_to_back(bus_bits: int) -> None:
    """Frames of every length from one byte on, with whole rounds between them."""
    with open_engine(bus_bits) as engine:
        check_garbage(engine, BUILDS[bus_bits])


@WIDTHS
def test_receiving_never_waits_for_the_network(bus_bits: int) -> None:
    """Thousands of frames that all ask for an answer, while none can be sent."""
    with open_engine(bus_bits) as engine:
        check_never_waits(engine, BUILDS[bus_bits])


@WIDTHS
def test_bounds(bus_bits: int) -> None:
    """While nothing can be sent, so many replays and short answers of a job are kept, no more."""
    with open_engine(bus_bits) as engine:
        check_bounds(engine, BUILDS[bus_bits])
