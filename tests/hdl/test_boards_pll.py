"""Dividers of the PLL, tried against the datasheet's limits and against ecppll's own arithmetic."""

from fractions import Fraction

import pytest

from afflux_hdl.boards.pll import Pll
from afflux_hdl.boards.table import BOARDS


@pytest.mark.parametrize("input_mhz", [12, 25, 50, 100, 125])
@pytest.mark.parametrize("engine_mhz", [50, Fraction(125, 2), Fraction(250, 6)])
def test_the_clocks_are_exact_and_within_the_limits(input_mhz: int, engine_mhz: Fraction) -> None:
    if input_mhz == 12:
        with pytest.raises(ValueError, match=f"125 and {engine_mhz} MHz of 12 MHz"):
            Pll.of(input_mhz, engine_mhz)
        return
    pll = Pll.of(input_mhz, engine_mhz)
    assert (pll.ethernet_mhz, pll.engine_mhz) == (Fraction(125), Fraction(engine_mhz))
    # Step by step, as the hardware does it.
    compared = Fraction(input_mhz, pll.reference)
    oscillator = compared * pll.feedback * pll.ethernet
    assert compared >= 10
    assert 400 <= oscillator <= 800
    assert oscillator / pll.ethernet / pll.feedback == compared
    assert oscillator / pll.engine == engine_mhz


@pytest.mark.parametrize("board", BOARDS.values(), ids=list(BOARDS))
def test_each_board_has_its_clocks(board) -> None:
    for engine_mhz in board.engine_mhz:
        pll = Pll.of(board.oscillator[1], engine_mhz)
        # 32 bits carry more than a full gigabit port, with a tenth in reserve.
        assert pll.engine_mhz * 32 >= 1.1 * 1000
        assert pll.engine_mhz == engine_mhz


def test_what_no_pll_makes_is_refused() -> None:
    with pytest.raises(ValueError, match="no PLL of an ECP5 makes 125 and 37 MHz of 25 MHz"):
        Pll.of(25, 37)
