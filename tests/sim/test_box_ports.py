"""Two ports of the OpenNIC shell: one node behind both, and a node behind each.

Models of their own, so most run by -m long.
"""

import random
from collections import Counter

import numpy as np
import pytest

from afflux_hdl.contract.registers import Command, address_of, node_counter_address
from afflux_hdl.engine import engine, replicate, tables, transmit
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.node.parameters import NodeParameters
from afflux_hdl.opennic import box as box_module
from afflux_hdl.opennic import intake
from afflux_hdl.opennic import verilog as box_verilog
from afflux_hdl.opennic.parameters import BoxParameters
from afflux_hdl.opennic.verilog import generate_box
from afflux_sim.golden.frames import Endpoint
from afflux_sim.golden.network import Receive, join_all, make_workers, receivers, run_in_order
from afflux_sim.golden.shared_columns import SharedColumns
from tests.checks.node_checks import build_of
from tests.scenarios.director import Director
from tests.scenarios.job_frames import Job
from tests.scenarios.node_cases import every_case
from tests.scenarios.node_frames import arp_reply, arp_request, echo_reply, echo_request
from tests.scenarios.performer import perform
from tests.support.box.simulated_box import SimulatedBox, beats_of
from tests.support.box.two_ports import TwoPorts
from tests.support.golden_job import new_job
from tests.support.planting import names_with

pytestmark = pytest.mark.long

NODE = NodeParameters(
    engine=Parameters(workers=4, lanes=2, jobs=2, slots=8, ports=2, link_timeout=2048)
)
SHARED = BoxParameters(node=NODE, ports=2, functions=2, port_buffer_bytes=8192)


@pytest.fixture
def box():
    with SimulatedBox(SHARED) as box:
        yield box


def director_of(box: SimulatedBox) -> tuple[Director, TwoPorts]:
    director = Director(**build_of(NODE))
    return director, TwoPorts(box, director.golden)


def check_answers(box: SimulatedBox) -> None:
    """Play all cases; each frame by its right port, and by no other."""
    director, ports = director_of(box)
    job = Job(number=1, workers=3, lanes=2, slots=2, slot_base=3)
    # There are no marks in a shell.
    perform(ports, every_case(director, job, uncounted=frozenset({"mac_error"})))
    assert min(ports.seen[frozenset(each)] for each in ({0}, {1}, {0, 1})) > 10


def test_every_answer_leaves_by_the_port_of_the_golden_engines_worker(box):
    check_answers(box)


BUGS = {
    "all by port 0": (
        *(engine, "Transmit", transmit),
        "net_ports1.eq(order.peer.net_ports)",
        "net_ports1.eq(1)",
    ),
    "results for a group by one port": (
        *(engine, "Replicate", replicate),
        "peer1.net_ports.eq(self.read_ports.data.group)",
        "peer1.net_ports.eq(1)",
    ),
    "partial sums by all ports": (
        *(engine, "PortTable", tables),
        "row.parent.eq(self.parent.data)",
        "row.parent.eq(-1)",
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_wrong_port_is_caught(bug, monkeypatch):
    user, name, module, right, wrong = BUGS[bug]
    monkeypatch.setattr(user, name, names_with(module, right, wrong)[name])
    planted = generate_box(SHARED)
    with SimulatedBox(SHARED, planted=planted) as box, pytest.raises(AssertionError):
        check_answers(box)


def test_a_worker_that_moves_is_answered_where_it_has_joined_last(box):
    director, ports = director_of(box)
    job = Job(workers=2, lanes=1, slots=1, may_move=True)
    perform(ports, director.configure())
    perform(ports, director.create(job))
    box.from_network([job.join(1)], port=0)
    box.settle()
    assert [len(box.to_network(port)) for port in range(2)] == [1, 0]
    # A contribution may come by any port.
    for worker, port in ((0, 1), (1, 1)):
        box.from_network([job.data(worker, 0, 0, {0: range(64)})], port)
        box.settle()
    results = box.to_network(0)
    assert [each.frame[5] for each in results] == [0, 1]
    assert box.to_network(1) == []
    # A refusal goes back where the request came from, and moves nobody.
    box.from_network([job.join(1, key=5)], port=1)
    box.settle()
    assert [len(box.to_network(port)) for port in range(2)] == [0, 1]
    box.from_network([job.probe(1, 0, 0)], port=1)
    box.settle()
    assert [len(box.to_network(port)) for port in range(2)] == [1, 0]


def check_empty_beats(box: SimulatedBox) -> None:
    """Send last beats without bytes: the buffers of ports store no bit for the first byte."""
    frames = [bytes([6, n]) * 96 for n in range(4)]
    for n, frame in enumerate(frames):
        empty = beats_of(frame + bytes(1), src=1 << 6)
        empty[-1].keep = 0
        for beats in (beats_of(frame), empty):
            box.feed(box.rx(n % 2), beats)
    box.settle()
    received = [each.frame for port in range(2) for each in box.to_host(port)]
    assert sorted(received) == frames
    assert [box.counter("rx_malformed", port) for port in range(2)] == [2, 2]


def test_a_last_beat_without_bytes_drops_its_frame_before_the_shared_node(box, monkeypatch):
    check_empty_beats(box)
    planted = names_with(intake, "~beat.keep[0],", "")
    monkeypatch.setattr(box_module, "Intake", planted["Intake"])
    with SimulatedBox(SHARED, planted=generate_box(SHARED)) as wrong, pytest.raises(AssertionError):
        check_empty_beats(wrong)


def test_questions_are_answered_where_they_are_asked_and_host_frames_keep_their_port(box):
    director, ports = director_of(box)
    perform(ports, director.configure())
    stranger = [bytes([6, n]) * 300 for n in range(8)]
    for port in range(2):
        questions = [arp_request(), echo_request(bytes([port]) * 100)]
        box.from_network([*questions, *stranger[4 * port : 4 * port + 4]], port)
        box.settle()
        assert [each.frame for each in box.to_network(port)] == [
            arp_reply(questions[0]),
            echo_reply(questions[1]),
        ]
        assert box.to_network(1 - port) == []
        received = box.to_host(port)
        assert [each.frame for each in received] == stranger[4 * port : 4 * port + 4]
        assert {(each.src, each.dst) for each in received} == {(1 << 6 + port, 1 << port)}
        assert box.to_host(1 - port) == []
    # By the function that sent them, or as they say.
    for function, dst, port in ((0, 0, 0), (1, 0, 1), (0, 1 << 7, 1), (1, 1 << 6, 0)):
        box.from_host(stranger[:2], function, dst)
        box.settle()
        sent = box.to_network(port)
        assert [each.frame for each in sent] == stranger[:2]
        assert {each.dst for each in sent} == {1 << 6 + port}
        assert box.to_network(1 - port) == []
    box.from_host(stranger[:1], 0, 3 << 6)
    box.from_host(stranger[:1], 0, 1 << 8)
    box.settle()
    assert [len(box.to_network(port)) for port in range(2)] == [1, 1]
    assert box.counter("h2c_no_destination") == 1


def test_two_full_ports_are_more_than_a_bus_takes_and_every_frame_is_accounted_for(box):
    frames = [[bytes([6, port, n % 256, n // 256]) * 80 for n in range(600)] for port in range(2)]
    for port in range(2):
        box.pace(box.rx(port), depth=64)
        box.from_network(frames[port], port)
    box.settle()
    for port in range(2):
        got = [each.frame for each in box.to_host(port)]
        dropped = box.counter("rx_dropped", port) + box.counter("c2h_dropped", port)
        assert got == [frame for frame in frames[port] if frame in set(got)]
        # A half of each, and what a buffer holds: neither port is starved.
        assert 290 < len(got) < 350
        assert len(got) + dropped + _host_overflow(box) >= 600
        assert box.stalls(box.rx(port)) == box.dropped(box.rx(port)) == 0
    sent = sum(box.counter("rx_dropped", port) for port in range(2)) + _host_overflow(box)
    assert sent + sum(box.counter("c2h_frames", port) for port in range(2)) == 1200


def _host_overflow(box: SimulatedBox) -> int:
    return box.read(node_counter_address("host_overflow"))


def test_a_port_that_is_down_does_not_stop_the_other(box):
    director, ports = director_of(box)
    job = Job(workers=2, lanes=2, slots=4)
    perform(ports, director.configure())
    perform(ports, director.create(job))
    box.take(box.tx(1), 0.0)
    box.take(box.c2h(1), 0.0)
    steps = 40
    for step in range(steps):
        data = [
            [job.data(worker, slot, step, {0: range(64), 1: range(64)}) for slot in range(4)]
            for worker in range(2)
        ]
        for worker in range(2):
            box.from_network([*data[worker], bytes([6, worker]) * 400], worker)
        box.settle(quiet=2500)
    # All that has ever waited is one frame, for as long as a link may be slow.
    assert len(box.to_network(0)) == 4 * steps
    assert len(box.to_host(0)) == steps
    assert box.counter("tx_dropped", 1) > 50
    assert box.read(address_of("transmit_state")) == 0
    box.take(box.tx(1), 1.0)
    box.take(box.c2h(1), 1.0)
    box.settle()
    late = box.to_network(1)
    assert {each.frame[5] for each in late} == {1}
    box.from_network([job.data(1, 0, steps - 1, {0: range(64), 1: range(64)})], 1)
    box.settle()
    assert len(box.to_network(1)) == 1


def test_a_reset_amid_traffic_of_both_ports(box):
    choose = random.Random(7)
    whole = 0
    for _ in range(20):
        streams = [
            [bytes([6, n, port]) * choose.randrange(20, 450) for n in range(12)] for port in (0, 1)
        ]
        for port in range(2):
            box.take(box.tx(port), choose.choice((1.0, 0.5)))
            box.take(box.c2h(port), choose.choice((1.0, 0.5)))
            box.from_network(streams[port], port)
            box.from_host(streams[port], port)
        box.run(choose.randrange(20, 300))
        box.pulse(1)
        box.settle()
        for port in range(2):
            for received in (box.to_network(port), box.to_host(port)):
                got = [each.frame for each in received]
                assert got == sorted(got, key=streams[port].index)
                whole += len(got)
        for port in range(2):
            box.from_network(streams[port], port)
            box.settle()
            box.from_host(streams[port], port)
            box.settle()
            assert [each.frame for each in box.to_network(port)] == streams[port]
            assert [each.frame for each in box.to_host(port)] == streams[port]
    assert whole > 100
    assert Counter(box.counter("tx_refused", port) > 0 for port in range(2))[True] > 0


def check_frames_behind_a_whole_reset(box: SimulatedBox) -> None:
    """Reset the whole shell while the node still gets what both ports have brought."""
    for cycles in range(50, 71):
        for port in range(2):
            box.from_network([bytes([6, cycles, port]) * 500] * 2, port)
        # Two ports bring 48 beats each, of which one in a cycle goes on.
        box.run(cycles)
        box.reset(0xFFFF, whole=True)
        for port in range(2):
            box.beats(box.c2h(port))
        for port in range(2):
            first = bytes([6, cycles, 2 + port]) * 100
            box.from_network([first], port)
            box.settle()
            assert [each.frame for each in box.to_host(port)] == [first], f"{cycles} cycles"


def test_a_reset_of_the_whole_shell_does_not_cost_the_frame_behind_it(box, monkeypatch):
    check_frames_behind_a_whole_reset(box)
    planted = names_with(box_module, "arrived[0].cut.eq(cut.cut)", "arrived[0].cut.eq(0)")
    monkeypatch.setattr(box_verilog, "Box", planted["Box"])
    with SimulatedBox(SHARED, planted=generate_box(SHARED)) as wrong, pytest.raises(AssertionError):
        check_frames_behind_a_whole_reset(wrong)


SEPARATE = BoxParameters(
    node=NodeParameters(engine=Parameters(workers=4, lanes=2, jobs=1, slots=4)),
    ports=2,
    nodes=2,
    functions=4,
)


def test_two_engines_behind_two_ports_share_the_columns():
    """K = 2: as with `udp://a,udp://b`, each worker has half of its blocks at each of them."""
    choose = np.random.default_rng(1)
    addresses = [
        Endpoint(bytes.fromhex("02affa000001"), "10.0.0.9", 4700),
        Endpoint(bytes.fromhex("02affa000002"), "10.0.1.9", 4700),
    ]
    job = Job(workers=4, lanes=2, slots=4, first_round=7)
    with SimulatedBox(SEPARATE) as box:
        members = []
        for node, here in enumerate(addresses):
            for name, value in (
                ("local_mac_low", int.from_bytes(here.mac, "big") % 2**32),
                ("local_mac_high", int.from_bytes(here.mac, "big") >> 32),
                ("local_address", int.from_bytes(here.packed_address, "big")),
                ("local_port", here.port),
                *job.registers().items(),
                ("job_command", Command.CREATE),
            ):
                box.write(address_of(name), value, node)
            members.append(
                make_workers(4, engine=here, job=0, key=job.key, round=7, lanes=2, slots=4)
            )

        def receive(node: int) -> Receive:
            def to(frame: bytes) -> list[bytes]:
                box.from_network([frame], node)
                box.settle(quiet=200)
                return [each.frame for each in box.to_network(node)]

            return to

        for node in range(2):
            join_all(receive(node), members[node])
        ranks = [SharedColumns(pair) for pair in zip(*members, strict=True)]
        passed = [0, 0]
        for size, dtype in ((5000, "float32"), (50, "float32"), (3333, "int32"), (1, "float32")):
            tensors = [(choose.normal(size=size) * 1000).astype(dtype) for _ in range(job.workers)]
            for rank, tensor in zip(ranks, tensors, strict=True):
                rank.start(tensor, dtype, "sum")
            while any(worker.outstanding for group in members for worker in group):
                # Both ports at once.
                for node, group in enumerate(members):
                    sent = [frame for worker in group for frame in worker.frames_to_send()]
                    box.from_network(sent, node)
                    passed[node] += len(sent)
                box.settle(quiet=200)
                for node, group in enumerate(members):
                    for each in box.to_network(node):
                        for worker in receivers(each.frame, group):
                            worker.receive(each.frame)
            golden, alone = new_job(workers=4, lanes=2, slots=4)
            expected = run_in_order(golden.receive, alone, tensors, dtype, "sum")
            for rank, right in zip(ranks, expected, strict=True):
                assert rank.result().tobytes() == right.tobytes()
        # Small tensors are the first engine's alone.
        assert 0.7 * passed[0] < passed[1] < passed[0]

        # Each port's own: frames of the host by index, more streams than ports, registers.
        frames = [bytes([6, n]) * 70 for n in range(4)]
        for function in range(4):
            box.from_host([frames[function]], function)
        box.from_host([frames[0]], 0, dst=1 << 7)
        box.from_network(frames[:1], 0)
        box.from_network(frames[1:2], 1)
        box.settle()
        assert {each.frame for each in box.to_network(0)} == {frames[0], frames[2]}
        assert {each.frame for each in box.to_network(1)} == {frames[1], frames[3]}
        assert box.counter("h2c_no_destination") == 1
        for node in range(2):
            assert [each.frame for each in box.to_host(node)] == [frames[node]]
            assert box.read(address_of("local_address"), node) == int.from_bytes(
                addresses[node].packed_address, "big"
            )
