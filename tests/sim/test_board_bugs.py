"""Bugs in MAC and crossings, planted in a copy of the sources, are found at the board's pins."""

from dataclasses import replace

import pytest

from afflux_sim.board.simulated_appliance import board_parameters
from afflux_sim.rtl.verilated_board import BoardClocks, VerilatedBoard
from afflux_sim.rtl.verilated_model import SimulationError
from tests.checks.board_checks import BoardAsEngine, full_rate_rounds
from tests.scenarios.board_build import BOARD_BUILD, BOARD_SETTINGS
from tests.scenarios.job_frames import Job
from tests.scenarios.node_frames import echo_reply, echo_request
from tests.scenarios.performer import perform
from tests.support.planted_board import planted_board
from tests.support.planting import Bug

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(900)]

CLOCKS = BoardClocks(receive_ppm=100.0, transmit_ppm=-100.0, seed=1)

BUGS = {
    "check sequence not looked at": Bug(
        "mac/receive.py",
        "ends & (~crc.match_detected | ~long_enough",
        "ends & (~long_enough",
    ),
    "error of the PHY not looked at": Bug(
        "mac/receive.py", "(too_long & self.valid) | reported)", "(too_long & self.valid))"
    ),
    "last beat has all its bytes": Bug(
        "lib/crossing.py",
        "r += self.o.payload.keep[n].eq(given.bytes >= n)",
        "r += self.o.payload.keep[n].eq(1)",
    ),
    "last beat lost": Bug(
        "lib/crossing.py",
        "fifo.w_en.eq(self.i.valid),",
        "fifo.w_en.eq(self.i.valid & ~(beat.last & ~beat.keep[-1])),",
    ),
    # Half of the longest frame: results are dropped before they leave.
    "buffer of frames to be sent too small": Bug(
        "boards/port.py",
        "buffer_bytes=(1 << (longest - 1).bit_length()) << several",
        "buffer_bytes=1 << (longest - 1).bit_length() - 1",
    ),
}


def check(board: VerilatedBoard) -> None:
    """See that nothing is lost at full rate, nor bytes of frames whose last beat is not full."""
    engine = BoardAsEngine(board)
    questions = [echo_request(bytes(range(size))) for size in (40, 41, 42, 43)]
    board.send(questions)
    board.run(1e-3, until_quiet=60e-6)
    assert board.receive() == [echo_reply(each) for each in questions]
    perform(engine, full_rate_rounds(Job(workers=4, lanes=5, slots=16), 3, seed=7))
    assert board.statistics().overflowed == 0


def test_the_board_as_it_is_passes() -> None:
    with VerilatedBoard(board_parameters(**BOARD_BUILD), BOARD_SETTINGS, CLOCKS) as board:
        check(board)


def test_an_engine_slower_than_the_wire_is_found() -> None:
    """32 bits at 30 MHz are 0.96 Gbit/s: the crossing before the engine overflows."""
    clocks = replace(CLOCKS, engine_hz=30e6)
    with VerilatedBoard(board_parameters(**BOARD_BUILD), BOARD_SETTINGS, clocks) as board:
        with pytest.raises(AssertionError):
            check(board)
        assert board.statistics().overflowed > 0


@pytest.mark.parametrize("name", BUGS)
def test_bug_is_found(name: str) -> None:
    parameters = board_parameters(**BOARD_BUILD)
    with planted_board(name, BUGS[name], parameters, BOARD_SETTINGS, CLOCKS) as board:
        with pytest.raises((AssertionError, SimulationError, RuntimeError)) as caught:
            check(board)
        print(f"{name}: {str(caught.value)[:300]}")
