"""Checks of the order in which a node's frames leave, where all of its sources have some."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from afflux_hdl.node.egress import SHARE
from afflux_hdl.node.parameters import NodeParameters
from afflux_sim.rtl.verilated_node import NodePace, VerilatedNode
from tests.checks.node_checks import NodeAsEngine, build_of
from tests.scenarios.director import Director
from tests.scenarios.job_frames import Job
from tests.scenarios.node_frames import arp_request, echo_request
from tests.scenarios.performer import perform

__all__ = ["check_order"]

STUCK = NodePace(network_ready=0.0)
IP_AND_ICMP_BYTES = 42


@dataclass(frozen=True)
class Others:
    """Frames that wait beside the engine's results; all of them fit into the buffers.

    Attributes:
        host: Bytes of the host's frames.
        arps: ARP requests.
        echoes: Bytes of echo requests.
        lanes: Lanes of the results.
    """

    host: Sequence[int]
    arps: int
    echoes: Sequence[int]
    lanes: int


def check_order(node: VerilatedNode, built: NodeParameters) -> None:
    """Check that the others take turns, and how much the engine sends between any two of them.

    After a frame of another source the engine sends until that are `SHARE` times its beats. The
    network takes nothing until all wait, so that the order is determined.
    """
    director = Director(**build_of(built))
    build = build_of(built)
    # So few that all have come before the link counts as down.
    workers, slots = min(16, build["workers"]), min(8, build["slots"])
    job = Job(workers=workers, lanes=build["lanes"], slots=slots)
    as_engine = NodeAsEngine(node)
    perform(as_engine, director.configure())
    perform(as_engine, director.create(job))
    most = built.host_buffer_bytes
    passes = [
        # Little between them: small frames on both sides.
        Others((60, 100, 64, 61), 3, (60, 102), 0),
        Others((132, 70), 2, (66, 60), 0),
        Others((1514, 300), 2, (1042, 400), build["lanes"]),
        # As much as there can be.
        Others((most,), 1, (1042,), build["lanes"]),
    ]
    for number, others in enumerate(passes):
        _one_pass(node, built, director, job, others, 2 * number)


def _one_pass(
    node: VerilatedNode,
    built: NodeParameters,
    director: Director,
    job: Job,
    others: Others,
    first_step: int,
) -> None:
    bus_bytes = built.engine.bus_bits // 8
    results: set[bytes] = set()
    down: list[bytes] = []
    for step in (first_step, first_step + 1):
        for slot in range(job.slots):
            for worker in range(job.workers):
                blocks = {lane: [worker, slot] * 32 for lane in range(others.lanes)}
                down.append(job.data(worker, slot, step, blocks))
                results |= set(director.golden.receive(down[-1]))
    asked = [arp_request()] * others.arps
    asked += [echo_request(bytes(size - IP_AND_ICMP_BYTES)) for size in others.echoes]
    host = [b"\x33" * size for size in others.host]
    node.pace(STUCK)
    early = node.play(down + asked, host, drain=False)
    assert early == ([], [])
    node.pace(NodePace())
    left = node.play([], [])[0]

    def kind(frame: bytes) -> int:
        """Return the number of its source."""
        if frame in results:
            return 0
        if frame[:1] == b"\x33":
            return 1
        return 2 if frame[12:14] == b"\x08\x06" else 3

    kinds = [kind(frame) for frame in left]
    waiting = {1: len(host), 2: others.arps, 3: len(others.echoes)}

    assert {n: kinds.count(n) for n in waiting} == waiting
    assert len(left) == len(results) + sum(waiting.values())
    turns = [at for at, n in enumerate(kinds) if n]
    for before, at in itertools.pairwise(turns):
        waiting[kinds[before]] -= 1
        following = next(
            n for n in (1 + (kinds[before] + more) % 3 for more in range(3)) if waiting[n]
        )
        assert kinds[at] == following, f"{kinds[at]} after {kinds[before]}, not {following}"
        beats = [-(-len(frame) // bus_bytes) for frame in left[before:at]]
        # With the last of them it is enough, and not before.
        assert sum(beats[1:]) >= SHARE * beats[0] > sum(beats[1:-1]), beats
