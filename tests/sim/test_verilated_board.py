"""The complete simulated board, at its RGMII pins: rates, faults, management, and bugs in it."""

import random
from collections.abc import Iterator

import pytest

from afflux_drivers.device.errors import DeviceGone
from afflux_drivers.device.udp import DeviceRestarted, UdpRegisters, WrongKey
from afflux_hdl.contract import management, registers
from afflux_sim.board.simulated_appliance import board_parameters
from afflux_sim.rtl.verilated_board import BoardClocks, Fault, VerilatedBoard
from tests.checks.board_checks import (
    BoardAsEngine,
    counter_of,
    full_rate_rounds,
)
from tests.scenarios.board_build import BOARD_BUILD, BOARD_SETTINGS
from tests.scenarios.cases import CASES
from tests.scenarios.director import Actions, Director
from tests.scenarios.job_frames import ENGINE_ADDRESS, Job
from tests.scenarios.node_frames import arp_reply, arp_request, echo_reply, echo_request
from tests.scenarios.performer import perform
from tests.support.call_transport import CallTransport

pytestmark = pytest.mark.slow

FASTEST, SLOWEST = 100.0, -100.0
"""Parts in a million by which clocks of Ethernet may differ from 125 MHz."""

CLOCKS = {
    "as usual": BoardClocks(seed=1),
    # All that comes is faster than what leaves, and the other way round.
    "fast partner": BoardClocks(receive_ppm=FASTEST, transmit_ppm=SLOWEST, seed=2),
    "slow partner": BoardClocks(
        receive_ppm=SLOWEST, transmit_ppm=FASTEST, phases=(0.9, 0.0, 0.5), seed=3
    ),
}

JOB = Job(workers=4, lanes=5, slots=16, first_round=2**32 - 2)


def opened(clocks: BoardClocks) -> VerilatedBoard:
    return VerilatedBoard(board_parameters(**BOARD_BUILD), BOARD_SETTINGS, clocks)


@pytest.fixture
def board() -> Iterator[BoardAsEngine]:
    with opened(CLOCKS["as usual"]) as made:
        yield BoardAsEngine(made)


@pytest.mark.parametrize(
    ("clocks", "gap"),
    [
        ("fast partner", 12),
        # The gap that a receiver may see in place of 12 (IEEE 802.3, clause 4.4.2).
        pytest.param("fast partner", 8, marks=pytest.mark.long),
        pytest.param("slow partner", 12, marks=pytest.mark.long),
    ],
)
def test_no_frame_is_lost_at_full_rate(clocks: str, gap: int) -> None:
    with opened(CLOCKS[clocks]) as made:
        board = BoardAsEngine(made, gap)
        before = made.statistics()
        spoilt = perform(board, full_rate_rounds(JOB, 3, seed=7))
        assert spoilt > 20
        after = made.statistics()
        assert after.overflowed == 0
        assert after.malformed == after.spoilt == 0
        assert after.least_gap >= 12
        # Frames for the engine are the engine's to count, also bad ones.
        assert counter_of(board, "bad_frames") == 0
        assert after.bytes_in - before.bytes_in > 200_000


def test_what_is_wrong_on_the_wire_goes_no_further(board: BoardAsEngine) -> None:
    choose = random.Random(1)
    question = arp_request()
    # Not for the engine, so that the node drops and counts them.
    bad = [
        (question, Fault.WRONG_FCS),
        (question, Fault.SYMBOL_ERROR),
        (question[:30], Fault.NO_PADDING),
        (choose.randbytes(1990), Fault.WRONG_FCS),
        # Longer than any frame.
        (question.ljust(2100, b"\0"), Fault.NONE),
    ]
    board.board.send([frame for frame, _ in bad], faults=[fault for _, fault in bad])
    board.board.send([question], gaps=[8])
    board.board.run(1e-3, until_quiet=60e-6)
    assert board.board.receive() == [arp_reply(question)]
    assert counter_of(board, "bad_frames") == len(bad)
    assert counter_of(board, "arp_replies") == 1
    assert board.board.statistics().link


def test_the_gateware_answers_pings_of_all_sizes(board: BoardAsEngine) -> None:
    choose = random.Random(2)
    questions = [echo_request(choose.randbytes(size)) for size in (0, 1, 18, 19, 500, 1400)]
    board.board.send(questions)
    board.board.run(1e-3, until_quiet=60e-6)
    assert board.board.receive() == [echo_reply(each) for each in questions]


@pytest.mark.parametrize(
    "shape", [pytest.param((4, 5, 2)), pytest.param((8, 1, 16), marks=pytest.mark.long)], ids=str
)
@pytest.mark.parametrize(
    "name",
    [
        "retransmit_from_previous_set",
        *(
            pytest.param(name, marks=pytest.mark.long)
            for name in CASES
            # Of what is not for the engine the node counts most.
            if name not in ("non_switchml", "retransmit_from_previous_set")
        ),
    ],
)
def test_cases_at_the_pins(name: str, shape: tuple[int, int, int], board: BoardAsEngine) -> None:
    workers, lanes, slots = shape
    job = Job(number=1, workers=workers, lanes=lanes, slots=slots)
    director = Director(**BOARD_BUILD)

    def scenario() -> Actions[None]:
        yield from director.configure()
        yield from director.create(job)
        yield from CASES[name](director, job, random.Random(1))
        yield from director.check_counters()
        assert director.left_out == 0

    perform(board, scenario())


def test_requests_amid_contributions(board: BoardAsEngine) -> None:
    """The controller asks while ports are full: each request is answered, and no frame is lost."""
    hello = b"AM\1\1" + bytes(30) + bytes(range(1, 9))
    board.between = [board.management_frame(hello)] * 30
    perform(board, full_rate_rounds(JOB, 2, seed=9))
    assert not board.between
    answers = [frame for frame in board.others if frame[34:36] == (4699).to_bytes(2, "big")]
    # They come faster than they are answered, and the buffer before the management is small.
    overflow = counter_of(board, "host_overflow")
    limited = board.read(management.management_counter_address("management_limited"))
    assert len(answers) + overflow + limited == 30
    assert len(answers) > 10
    assert board.read(registers.address_of("identity")) == registers.IDENTITY


def test_who_is_not_the_controller_or_lacks_the_key_gets_nothing(board: BoardAsEngine) -> None:
    hello = b"AM\1\1" + bytes(30) + bytes(range(1, 9))
    board.board.send([board.management_frame(hello, "10.0.0.2")])
    board.board.run(1e-3, until_quiet=60e-6)
    assert board.board.receive() == []
    bad_source = management.management_counter_address("management_bad_source")
    assert board.read(bad_source) == 1
    with pytest.raises((WrongKey, DeviceGone)):
        UdpRegisters(
            ENGINE_ADDRESS, key=bytes(range(16)), timeout_s=0.5,
            transport=CallTransport(board.exchange),
        )  # fmt: skip


def test_the_controller_resets_the_board(board: BoardAsEngine) -> None:
    perform(board, full_rate_rounds(JOB, 1, seed=3))
    board.write(registers.address_of("job_index"), JOB.number)
    assert board.read(registers.address_of("job_enabled")) == 1
    word = management.RESET_WORD
    board.write(management.management_address_of("board_reset"), word)
    board.board.run(20e-3, until_quiet=5e-3)
    assert board.board.statistics().resets == 1
    with pytest.raises(DeviceRestarted):
        board.read(registers.address_of("identity"))
    again = BoardAsEngine(board.board)
    again.write(registers.address_of("job_index"), JOB.number)
    assert again.read(registers.address_of("job_enabled")) == 0
    # Its address is that of its settings, and it sums again.
    perform(again, full_rate_rounds(JOB, 1, seed=4))
