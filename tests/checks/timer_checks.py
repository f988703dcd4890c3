"""Checks of what takes a stated time: links that are down, and rates of answers to strangers."""

import random
from collections.abc import Callable

from afflux_hdl.contract.registers import address_of
from afflux_hdl.engine.answers import REFUSAL_PERIOD_BITS, REFUSALS_BURST
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.node.arp import ARP_BURST, ARP_PERIOD_BITS
from afflux_hdl.node.axi_lite import SETTLE_CYCLES
from afflux_hdl.node.echo import ECHO_BURST, ECHO_PERIOD_BITS
from afflux_hdl.node.parameters import NodeParameters
from afflux_sim.rtl.verilated import VerilatedEngine
from afflux_sim.rtl.verilated_node import NodePace, VerilatedNode
from tests.checks.node_checks import NodePair
from tests.checks.pace_checks import LATENCY
from tests.checks.slow_network import STUCK
from tests.scenarios.director import Build, Director
from tests.scenarios.job_frames import Job
from tests.scenarios.node_frames import arp_request, echo_request, random_host_frame
from tests.scenarios.performer import perform

__all__ = [
    "check_access_times",
    "check_answer_rates",
    "check_link_timeout",
    "check_node_link_timeout",
    "check_refusal_rate",
    "check_reset_at_rest",
]

MARGIN_CYCLES = 64
"""More than anything is on its way inside, at any width."""

PERIODS = 3


def check_link_timeout(engine: VerilatedEngine, build: Build) -> None:
    """Check that the link counts as down after exactly the cycles that are stated, and not before.

    A beat that is taken in between begins the time anew.
    """
    timeout = Parameters().link_timeout
    director = Director(**build)
    job = Job(workers=2, lanes=1, slots=1)
    perform(engine, director.configure())
    perform(engine, director.create(job))
    # Nobody's frames, to let time pass: a beat comes in every cycle.
    bus_bytes = engine.read(address_of("build_bus_bits")) // 8
    state = address_of("transmit_state")

    def wait(cycles: int) -> None:
        engine.play([bytes(bus_bytes * 500)] * (cycles // 500), STUCK)
        for _ in range(cycles % 500):
            engine.read(state)

    def wait_for_it(cycles: int) -> int:
        """Return after how many cycles it is down, which it is not until 100 before `cycles`."""
        wait(cycles - 100)
        for n in range(200):
            if engine.read(state):
                return cycles - 100 + n
        raise AssertionError(f"the link is not down after {cycles + 100} cycles")

    engine.play([job.data(worker, 0, 0, {0: [1] * 64}) for worker in range(2)], STUCK)
    # The first beat waits so many cycles after the last one in. (Those of check_pace are counted to
    # the beat that is taken, whose queue has been empty: there it is one more.)
    assert wait_for_it(timeout) == timeout + LATENCY[bus_bytes * 8][1] - 1
    # One beat is taken, and the next one waits. A read takes a cycle, and so does `run`.
    engine.run(1)
    engine.play([b"\x00"], STUCK)
    assert not engine.read(state)
    wait(timeout // 2)
    engine.run(1)
    engine.play([b"\x00"], STUCK)
    # One of the cycles was that of the frame that let time pass.
    assert wait_for_it(timeout) == timeout - 1
    engine.play([])
    assert not engine.read(state)


def check_refusal_rate(engine: VerilatedEngine, build: Build) -> None:
    """Check when strangers get another answer: at once so many times, then one in each period."""
    director = Director(**build)
    job = Job(workers=2, lanes=1, slots=1)
    engine.reset()
    begun = engine.cycles
    perform(engine, director.configure())
    perform(engine, director.create(job))
    wrong = job.join(0, key=1)

    def asked(times: int) -> int:
        return sum(len(engine.play([wrong])) for _ in range(times))

    def until(cycle: int) -> None:
        engine.run(begun + cycle - engine.cycles)

    _check_rate(asked, until, REFUSALS_BURST, 1 << REFUSAL_PERIOD_BITS)


def check_answer_rates(node: VerilatedNode, built: NodeParameters) -> None:
    """Check the same of a node's answers to ARP and echo requests."""
    bus_bytes = built.engine.bus_bits // 8
    for question, burst, bits in (
        (arp_request(), ARP_BURST, ARP_PERIOD_BITS),
        (echo_request(b"12345678"), ECHO_BURST, ECHO_PERIOD_BITS),
    ):
        node.reset()
        begun = node.statistics().cycles
        NodePair(node, built).configure()

        def asked(times: int, question: bytes = question) -> int:
            # So few at once that none is left out for want of room.
            batches = [[question] * min(8, times - at) for at in range(0, times, 8)]
            return sum(len(node.play(batch, [])[0]) for batch in batches)

        def until(cycle: int, begun: int = begun) -> None:
            left = begun + cycle - node.statistics().cycles
            frames = [b"\x02" * (250 * bus_bytes)] * (left // 250)
            frames.append(b"\x02" * (max(1, left % 250 - MARGIN_CYCLES // 4) * bus_bytes))
            # To let time pass: marked as bad, they go nowhere.
            node.play(frames, [], network_errors=[True] * len(frames))

        _check_rate(asked, until, burst, 1 << bits)


def _check_rate(
    asked: Callable[[int], int], until: Callable[[int], None], burst: int, period: int
) -> None:
    """Check a rate from its beginning.

    Args:
        asked: Asks that often, and returns how many answers there are.
        until: Waits until so many cycles after the reset.
        burst: Answers that may be given at once.
        period: Cycles until there may be another one.
    """
    # It begins full, and nothing is added to what is full.
    until(period + 2 * MARGIN_CYCLES)
    assert asked(burst + 3) == burst
    for number in range(2, PERIODS + 1):
        until(number * period - 2 * MARGIN_CYCLES)
        assert asked(1) == 0, f"too early in period {number}"
        until(number * period + 2 * MARGIN_CYCLES)
        assert asked(2) == 1, f"in period {number}"


def check_node_link_timeout(node: VerilatedNode, built: NodeParameters) -> None:
    """Check that the node finds its link to be down when stated: only the host's frames wait."""
    timeout, bus_bytes = built.engine.link_timeout, built.engine.bus_bits // 8
    state = address_of("transmit_state")
    NodePair(node, built).configure()
    node.pace(NodePace(network_ready=0.0))

    def wait(begun: int, cycles: int) -> None:
        frames, rest = divmod(begun + cycles - node.statistics().cycles, 250)
        node.play([b"\x02" * (250 * bus_bytes)] * frames, [], drain=False)
        if rest:
            node.play([b"\x02" * (rest * bus_bytes)], [], drain=False)

    downs = []
    # A read looks in one cycle of several, so that this takes some attempts.
    for late in range(READ_CYCLES):
        node.pace(NodePace())
        node.play([], [])
        node.pace(NodePace(network_ready=0.0))
        node.play([], [b"\x33" * 8 * bus_bytes], drain=False)
        begun = node.statistics().cycles
        wait(begun, timeout - MARGIN_CYCLES // 2)
        assert not node.read(state), "too early"
        wait(begun, timeout - MARGIN_CYCLES // 4 + late)
        while not node.read(state):
            assert node.statistics().cycles < begun + timeout + MARGIN_CYCLES, "too late"
        downs.append(node.statistics().cycles - begun - timeout)
    assert min(downs) == DOWN_CYCLES, downs
    node.pace(NodePace())
    node.play([], [])
    assert not node.read(state)


DOWN_CYCLES = 5
"""From the last beat of a host's frame on, beside the timeout: until its first beat waits, and from
there until a read has the answer."""


def check_reset_at_rest(node: VerilatedNode, built: NodeParameters) -> None:
    """Reset while nothing is under way, though much has been: nothing is ended with an error."""
    pair = NodePair(node, built)
    pair.configure()
    choose = random.Random(25)
    for _ in range(3):
        pair.play(
            [random_host_frame(choose, 300) for _ in range(4)] + [arp_request()],
            [choose.randbytes(200)] * 3,
        )
        before = node.statistics()
        pair.start_again()
        after = node.statistics()
        assert after.network_cut == before.network_cut
        assert after.host_cut == before.host_cut


def check_access_times(node: VerilatedNode) -> None:
    """Check how many cycles an access takes, and that reads and writes take turns.

    Of two at once the one goes first whose kind did not go last.
    """
    address = address_of("job_credit")
    before = node.statistics().cycles
    for value in range(20):
        node.write(address, value)
        now = node.statistics().cycles
        assert now - before == WRITE_CYCLES, now - before
        assert node.read(address) == value
        before = node.statistics().cycles
        assert before - now == READ_CYCLES, before - now
    for value in range(100, 120):
        # A read has gone last: the write goes first.
        answer = node.access(write=(address, value), read=address)
        assert answer.data == value
        node.write(address, value + 1)
        # And now the read.
        answer = node.access(write=(address, value + 2), read=address)
        assert answer.data == value + 1
        assert node.read(address) == value + 2


WRITE_CYCLES = 3 + SETTLE_CYCLES + 1
READ_CYCLES = 4 + 1
"""From the cycle in which a master asks to the one in which it has the answer, both counted."""
