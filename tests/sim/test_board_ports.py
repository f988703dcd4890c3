"""A simulated board with two network ports, at the pins of both PHYs.

A model of its own, so most runs by -m long.
"""

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from afflux_drivers.device.errors import DeviceGone
from afflux_hdl.contract import management, registers
from afflux_sim.board.simulated_appliance import board_parameters
from afflux_sim.rtl.verilated_board import BoardClocks, Fault, VerilatedBoard
from afflux_sim.rtl.verilated_model import SimulationError
from tests.checks.board_checks import LONG_S, QUIET_S, counter_of, full_rate_rounds
from tests.checks.two_port_board import PORTS, TwoPortBoard
from tests.scenarios.board_build import BOARD_BUILD, BOARD_SETTINGS
from tests.scenarios.cases import CASES
from tests.scenarios.director import Actions, Director
from tests.scenarios.job_frames import Job
from tests.scenarios.node_cases import every_case
from tests.scenarios.node_frames import arp_reply, arp_request, echo_reply, echo_request
from tests.scenarios.performer import perform
from tests.support.planted_board import planted_board
from tests.support.planting import Bug
from tests.support.port_rules import source_port

pytestmark = pytest.mark.slow

LINK_TIMEOUT = 1 << 14
_USUAL = board_parameters(**BOARD_BUILD, ports=PORTS)
TWO_PORTS = replace(
    _USUAL,
    node=replace(_USUAL.node, engine=replace(_USUAL.node.engine, link_timeout=LINK_TIMEOUT)),
)
ENOUGH, USUAL = BoardClocks(engine_hz=62.5e6, seed=1), BoardClocks(seed=2)
"""Clocks: with the first one the engine takes two full ports, with the other it does not."""

JOB = Job(workers=4, lanes=5, slots=16, first_round=2**32 - 2)


def opened(clocks: BoardClocks) -> VerilatedBoard:
    return VerilatedBoard(TWO_PORTS, BOARD_SETTINGS, clocks)


@pytest.fixture
def made() -> Iterator[VerilatedBoard]:
    with opened(USUAL) as made:
        yield made


def port_counter(board: TwoPortBoard, name: str) -> int:
    return board.read(registers.port_address_of(name))


def engine_counter(board: TwoPortBoard, name: str) -> int:
    return board.read(registers.counter_address(name))


def check_ports_of_frames(made: VerilatedBoard) -> None:
    board, director = TwoPortBoard(made, at_once=False), Director(**BOARD_BUILD)
    board.golden = director.golden
    job = Job(number=1, workers=4, lanes=2, slots=2, slot_base=3)

    def scenario() -> Actions[None]:
        yield from director.configure()
        for name in ("retransmit_from_previous_set", "slot_reuse_and_retransmit"):
            yield from director.create(job)
            yield from CASES[name](director, job, random.Random(1))
        yield from director.check_counters()

    perform(board, scenario())
    assert min(board.seen[frozenset([port])] for port in range(PORTS)) > 5


def test_each_frame_leaves_by_the_port_of_its_worker(made: VerilatedBoard) -> None:
    check_ports_of_frames(made)


@pytest.mark.long
def test_every_case_at_both_ports(made: VerilatedBoard) -> None:
    board, director = TwoPortBoard(made, at_once=False), Director(**BOARD_BUILD)
    board.golden = director.golden
    job = Job(number=1, workers=3, lanes=2, slots=2, slot_base=3)
    perform(board, every_case(director, job))
    assert min(board.seen[frozenset(each)] for each in ({0}, {1}, {0, 1})) > 10


@pytest.mark.long
def test_two_full_ports_lose_nothing_at_62_5_mhz() -> None:
    with opened(ENOUGH) as made:
        board = TwoPortBoard(made, at_once=True)
        # A half of them behind each.
        assert sum(map(source_port, JOB.joins())) == JOB.workers // 2
        spoilt = perform(board, full_rate_rounds(JOB, 3, seed=7, in_order=False))
        assert spoilt > 20
        after = made.statistics()
        assert after.overflowed == 0
        assert after.malformed == after.spoilt == 0
        assert after.least_gap >= 12
        assert port_counter(board, "port_rx_dropped") == 0
        assert port_counter(board, "port_tx_cut") == 0
        assert counter_of(board, "bad_frames") == 0


def test_of_two_full_ports_that_are_too_much_each_frame_is_counted(made: VerilatedBoard) -> None:
    board, director = TwoPortBoard(made, at_once=True), Director(**BOARD_BUILD)
    perform(board, director.configure())
    perform(board, director.create(JOB))
    before = engine_counter(board, "frames_in")
    sent = 0
    for worker in range(JOB.workers):
        frame = JOB.data(worker, 0, 0, dict.fromkeys(range(JOB.lanes), range(64)))
        made.send([frame] * 120, port=source_port(frame))
        sent += 120
    made.run(LONG_S, until_quiet=QUIET_S)
    dropped = port_counter(board, "port_rx_dropped")
    taken = engine_counter(board, "frames_in") - before
    assert taken + dropped == sent
    # 1.6 Gbit/s of beats for twice 0.98 of frames, and what the buffers hold.
    assert 0.1 * sent < dropped < 0.25 * sent
    assert engine_counter(board, "receive_overflow") == 0


@pytest.mark.long
def test_what_is_wrong_on_either_wire_goes_no_further(made: VerilatedBoard) -> None:
    board, choose = TwoPortBoard(made, at_once=True), random.Random(1)
    question = arp_request()
    for port in range(PORTS):
        bad = [
            (question, Fault.WRONG_FCS),
            (question, Fault.SYMBOL_ERROR),
            *((question[: 30 + n], Fault.NO_PADDING) for n in range(4)),
            *((choose.randbytes(1990 + n), Fault.WRONG_FCS) for n in range(4)),
            (question.ljust(2100, b"\0"), Fault.NONE),
        ]
        made.send([frame for frame, _ in bad], faults=[fault for _, fault in bad], port=port)
        made.send([question], port=port)
        made.run(LONG_S, until_quiet=QUIET_S)
        assert made.receive(port) == [arp_reply(question)]
        assert made.receive(1 - port) == []
        assert counter_of(board, "bad_frames") == (port + 1) * len(bad)
        pings = [echo_request(choose.randbytes(size)) for size in (0, 1, 18, 19, 500, 1400)]
        made.send(pings, port=port)
        made.run(LONG_S, until_quiet=QUIET_S)
        assert made.receive(port) == [echo_reply(each) for each in pings]
        assert made.receive(1 - port) == []
    assert port_counter(board, "port_rx_dropped") == 0


def check_controller(made: VerilatedBoard) -> None:
    board = TwoPortBoard(made, at_once=True)
    for board.controller_port in (0, 1, 0):
        # It sees to it that the answer leaves by both.
        assert board.read(registers.address_of("identity")) == registers.IDENTITY
    assert board.read(registers.port_address_of("port_identity")) == registers.PORT_IDENTITY


def test_the_controller_may_sit_behind_either_port(made: VerilatedBoard) -> None:
    check_controller(made)


def check_without_a_link(made: VerilatedBoard) -> None:
    board, director = TwoPortBoard(made, at_once=True), Director(**BOARD_BUILD)
    job = Job(workers=2, lanes=5, slots=8)
    behind = [source_port(each) for each in job.joins()]
    assert sorted(behind) == [0, 1]
    perform(board, director.configure())
    perform(board, director.create(job))
    lost = behind[1]
    board.controller_port = 1 - lost
    board.linked.remove(lost)
    made.set_link(False, lost)
    made.run(1e-3)
    block = dict.fromkeys(range(job.lanes), range(64))
    got = 0
    for step in range(3):
        # Contributions of both come by the port that is left: they may come by any.
        for slot in range(job.slots):
            made.send([job.data(n, slot, step, block) for n in range(2)], port=1 - lost)
        # Longer than a link may be slow for.
        made.run(2e-3)
        got += len(made.receive(1 - lost))
        assert made.receive(lost) == []
    assert got == 3 * job.slots
    assert engine_counter(board, "frames_in") >= 6 * job.slots
    # The MAC's buffer of 4 KiB and the one before the wire hold some; the others are counted.
    cut = port_counter(board, "port_tx_cut")
    assert 3 * job.slots - 6 < cut < 3 * job.slots
    made.set_link(True, lost)
    made.run(2e-3)
    late = made.receive(lost)
    # Frames that had found room, results and answers to the controller, and each of them whole.
    assert late
    board.linked.append(lost)
    board.controller_port = lost
    assert board.read(registers.address_of("identity")) == registers.IDENTITY
    perform(board, director.create(job))


@pytest.mark.long
def test_a_port_without_a_link_does_not_stop_the_other(made: VerilatedBoard) -> None:
    check_without_a_link(made)


BUGS = {
    "all has come by the first port": (
        check_ports_of_frames,
        Bug("boards/port.py", "net_ports.eq(1 << turns.chosen)", "net_ports.eq(1)"),
    ),
    "the controller is answered by the first port": (
        check_controller,
        Bug("boards/appliance.py", "node.host_tx.payload.net_ports.eq(-1)",
            "node.host_tx.payload.net_ports.eq(1)"),
    ),
    "a port without a link is waited for": (
        check_without_a_link,
        Bug("mac/gigabit.py", "buffer.blocked.eq(watch.down)", "buffer.blocked.eq(0)"),
    ),
    "a frame that is dropped before the wire is not counted": (
        check_without_a_link,
        Bug("mac/gigabit.py", "self.unsent.eq(buffer.overflowed)", "self.unsent.eq(0)"),
    ),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str) -> None:
    check, bug = BUGS[name]
    with planted_board(name, bug, TWO_PORTS, BOARD_SETTINGS, USUAL) as made:
        with pytest.raises((AssertionError, DeviceGone, SimulationError)) as caught:
            check(made)
        print(f"{name}: {str(caught.value)[:300]}")


@pytest.mark.long
def test_the_controller_resets_a_board_amid_traffic_of_both_ports(made: VerilatedBoard) -> None:
    choose, board = random.Random(5), TwoPortBoard(made, at_once=True)
    address = management.management_address_of("board_reset")
    for round_number in range(6):
        for port in range(PORTS):
            pings = [echo_request(choose.randbytes(choose.randrange(1400))) for _ in range(40)]
            made.send(pings, port=port)
        board.controller_port = choose.randrange(PORTS)
        board.write(address, management.RESET_WORD)
        made.run(LONG_S, until_quiet=5e-3)
        assert made.statistics().resets == round_number + 1
        assert made.statistics().malformed == 0
        for port in range(PORTS):
            made.receive(port)
        # All is as at first: nothing of before comes out, and both ports are served.
        board = TwoPortBoard(made, at_once=True)
        for port in range(PORTS):
            question = arp_request()
            made.send([question], port=port)
            made.run(LONG_S, until_quiet=QUIET_S)
            assert made.receive(port) == [arp_reply(question)]
            assert made.receive(1 - port) == []
