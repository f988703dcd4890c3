"""Checks of a node whose network takes nothing, that is flooded, and that is reset meanwhile."""

import random
from collections import Counter

from afflux_hdl.contract.registers import NODE_COUNTERS, Command, address_of, counter_address
from afflux_hdl.node.egress import SHARE
from afflux_hdl.node.parameters import NodeParameters
from afflux_sim.rtl.verilated_node import NodePace, VerilatedNode
from tests.checks.node_checks import NodeAsEngine, NodePair, build_of, read_counter
from tests.scenarios.director import Director
from tests.scenarios.golden_node import count_missing
from tests.scenarios.job_frames import Job
from tests.scenarios.node_frames import arp_request, echo_request, random_host_frame
from tests.scenarios.performer import perform

__all__ = [
    "check_link_down",
    "check_resets_amid_frames",
    "check_share",
    "check_slow_host_frame",
]

STUCK = NodePace(network_ready=0.0)
FRAME_BYTES = 1514
RESET_CYCLES = 5
"""The pin is held for four, and acts one later."""

COMMAND_READS = 20_000
"""Reads of some ten cycles each, in which a job's queued results are discarded many times over."""


def check_link_down(node: VerilatedNode, built: NodeParameters) -> None:
    """Let the network take nothing for ever: host and jobs go on, and all is counted.

    Frames that had found room before the network leave when the link is up again, whole, but for
    the one frame that was being composed.
    """
    choose = random.Random(31)
    director, job = _configured(node, built)
    before = _counters(node)
    results = [frame for sent in job.full_rounds() for frame in director.golden.receive(sent)]
    node.pace(STUCK)
    asked = [arp_request(), echo_request(bytes(100))] * 40
    # More than the buffer holds: the host waits at first, and then it does not any more.
    host = [bytes([n]) * FRAME_BYTES for n in range(2 * built.host_buffer_bytes // FRAME_BYTES)]
    assert node.play([*job.full_rounds(), *asked], host, drain=False) == ([], [])
    assert node.statistics().cycles > built.engine.link_timeout
    assert node.read(address_of("transmit_state")) == 1
    # Frames of the network and of the host still arrive where they are to go.
    passing = [random_host_frame(choose) for _ in range(20)]
    got = node.play([*passing, *asked], [b"\x11" * 60] * 50, drain=False)[1]
    for _ in range(COMMAND_READS):
        level = node.read(address_of("delivery_level"))
        if not level:
            break
    assert level == 0
    _command(node, Command.DESTROY, job.number)
    _command(node, Command.DESTROY, 1)

    node.pace(NodePace())
    to_network, to_host = node.play([], [])
    assert got + to_host == passing
    grown = {name: value - before[name] for name, value in _counters(node).items()}
    kept = [frame for frame in to_network if frame in host or frame == b"\x11" * 60]
    count_missing(kept, host + [b"\x11" * 60] * 50)
    assert grown["from_host"] == len(kept)
    assert grown["from_host"] + grown["from_host_discarded"] == len(host) + 50
    assert built.host_buffer_bytes // FRAME_BYTES <= grown["from_host"]
    sent = Counter(to_network) & Counter(results)
    assert sent.total() + _frames_discarded(node) == len(results)
    assert node.statistics().network_cut == 1
    answers = grown["arp_replies"] + grown["echo_replies"]
    assert len(to_network) == sent.total() + len(kept) + answers
    assert answers + grown["replies_dropped"] == 2 * len(asked)
    assert grown["network_frames_out"] == len(to_network)
    assert node.read(address_of("transmit_state")) == 0
    # All is as it was.
    pair = NodePair(node, built)
    pair.configure()
    pair.play([arp_request(), echo_request(b"again"), *passing], [b"\x22" * 90] * 3)


def check_slow_host_frame(node: VerilatedNode, built: NodeParameters) -> None:
    """Let a frame of the host take longer than the time after which the link counts as down.

    The network takes a beat now and then, so its link is up: a result that waits behind that frame
    is not discarded.
    """
    director, job = _configured(node, built)
    beats = -(-FRAME_BYTES // (built.engine.bus_bits // 8))
    # So that the frame takes three times as long, and no beat of it nearly as long.
    slow = beats / (3 * built.engine.link_timeout)
    before = _frames_discarded(node)
    node.pace(NodePace(seed=33, network_ready=slow))
    node.play([], [b"\x33" * FRAME_BYTES], drain=False)
    contributions = [job.data(worker, 0, 0, {}) for worker in range(job.workers)]
    results = [answer for sent in contributions for answer in director.golden.receive(sent)]
    # The time passes with frames that are for others, a beat in a hundred cycles.
    node.pace(NodePace(seed=34, network_ready=slow, network_gaps=0.99))
    passing = [b"\x44" * FRAME_BYTES] * (built.engine.link_timeout * 3 // (2 * 100 * beats))
    assert node.play([*contributions, *passing], [], drain=False)[0] == []
    assert node.read(address_of("transmit_state")) == 0
    node.pace(NodePace())
    assert node.play([], [])[0] == [b"\x33" * FRAME_BYTES, *results]
    assert _frames_discarded(node) == before


def check_resets_amid_frames(node: VerilatedNode, built: NodeParameters) -> None:
    """Reset it in the middle of frames on all four streams; the other ends take no part in it.

    The tails of the frames that come in are dropped and counted, those that leave end with an
    error, and the frames behind them pass.
    """
    choose = random.Random(32)
    tails, cuts = Counter[str](), Counter[str]()
    for _ in range(30):
        down = [random_host_frame(choose, FRAME_BYTES) for _ in range(12)]
        up = [choose.randbytes(choose.randrange(60, FRAME_BYTES)) for _ in range(20)]
        beats = [-(-len(frame) // (built.engine.bus_bits // 8)) for frame in down]
        reset_at = choose.randrange(10, sum(beats))
        before = node.statistics()
        node.pace(
            NodePace(
                seed=choose.getrandbits(32),
                network_ready=0.7,
                host_ready=0.7,
                reset_at=reset_at,
            )
        )
        out = node.play(down, up)
        after = node.statistics()
        counters = _counters(node)
        for name, frames, sent in (
            ("bad_frames", down, out[1]),
            ("from_host_bad", up, out[0]),
        ):
            # Whole frames, in order; a tail is counted, but does not make a frame.
            count_missing(sent, frames)
            assert counters[name] <= 1
            tails[name] += counters[name]
        # A beat comes in every cycle: this many frames begin after the reset.
        behind = sum(sum(beats[:n]) > reset_at + RESET_CYCLES for n in range(len(down)))
        assert out[1][len(out[1]) - behind :] == down[len(down) - behind :]
        cuts["network"] += after.network_cut - before.network_cut
        cuts["host"] += after.host_cut - before.host_cut
    assert min(tails.values()) > 2 and min(cuts.values()) > 2, (tails, cuts)


def check_share(node: VerilatedNode, built: NodeParameters) -> None:
    """However many questions come and whatever the host sends, results have their share.

    The network takes less than the results alone, so that some always wait.
    """
    director, job = _configured(node, built)
    bus_bytes = built.engine.bus_bits // 8
    flood = echo_request(bytes(1400))
    results: set[bytes] = set()
    frames: list[bytes] = []
    for sent in job.full_rounds():
        results |= set(director.golden.receive(sent))
        frames += [sent, flood, arp_request()]
    node.pace(NodePace(network_ready=0.5))
    left = node.play(frames, [b"\x33" * FRAME_BYTES] * 400)[0]
    at = [n for n, frame in enumerate(left) if frame in results]
    assert len(at) == len(results)
    # From the first round's results on: they come as many at once as there are workers.
    within = left[at[0] : at[-1] + 1]
    own, every = (
        sum(-(-len(frame) // bus_bytes) for frame in within if frame in these)
        for these in (results, set(within))
    )
    assert own >= every * SHARE / (SHARE + 1), (own, every)
    # Nor are the others starved.
    others = len(within) - len(results)
    assert others > (every - own) * bus_bytes // (2 * FRAME_BYTES) > 20


def _configured(node: VerilatedNode, built: NodeParameters) -> tuple[Director, Job]:
    """Set the node up with a job of all workers and all lanes on half of the slots."""
    build = build_of(built)
    director = Director(**build)
    job = Job(workers=build["workers"], lanes=build["lanes"], slots=build["slots"] // 2)
    as_engine = NodeAsEngine(node)
    perform(as_engine, director.configure())
    perform(as_engine, director.create(job))
    return director, job


def _command(node: VerilatedNode, command: Command, number: int) -> None:
    """Carry a command out; the node's network is as it was in the last play."""
    node.write(address_of("job_index"), number)
    node.write(address_of("job_command"), command)
    for _ in range(COMMAND_READS):
        if not node.read(address_of("job_busy")):
            return
    raise AssertionError(f"{command.name} hangs")


def _counters(node: VerilatedNode) -> dict[str, int]:
    return {each.name: read_counter(node, each.name) for each in NODE_COUNTERS}


def _frames_discarded(node: VerilatedNode) -> int:
    return node.read(counter_address("frames_discarded"))
