"""The binding of the Verilated node: frames at both ports, registers over AXI4-Lite, errors."""

import random

import pytest

from afflux_hdl.contract.registers import (
    NODE_IDENTITY,
    address_of,
    node_address_of,
    node_counter_address,
)
from afflux_sim.rtl.verilated_model import SimulationError
from afflux_sim.rtl.verilated_node import VerilatedNode
from tests.scenarios.afflux_layer import ENGINE_PORT
from tests.scenarios.job_frames import ENGINE_ADDRESS, ENGINE_MAC
from tests.scenarios.node_frames import (
    arp_reply,
    arp_request,
    echo_reply,
    echo_request,
    random_host_frame,
)
from tests.support.node_build import NODE


@pytest.fixture
def node():
    with VerilatedNode(NODE) as node:
        mac = int(ENGINE_MAC.replace(":", ""), 16)
        octets = bytes(map(int, ENGINE_ADDRESS.split(".")))
        node.write(address_of("local_mac_high"), mac >> 32)
        node.write(address_of("local_mac_low"), mac & 0xFFFF_FFFF)
        node.write(address_of("local_address"), int.from_bytes(octets, "big"))
        node.write(address_of("local_port"), ENGINE_PORT)
        yield node


def counter(node, name):
    address = node_counter_address(name)
    return node.read(address) | node.read(address + 4) << 32


def test_it_answers_and_passes_frames_in_both_directions_at_once(node):
    choose = random.Random(1)
    ours, theirs = ([random_host_frame(choose) for _ in range(40)] for _ in range(2))
    questions = [arp_request(), echo_request(bytes(range(200)))]
    to_network, to_host = node.play([*theirs[:20], *questions, *theirs[20:]], ours)
    assert to_host == theirs
    assert [frame for frame in to_network if frame in ours] == ours
    answers = [frame for frame in to_network if frame not in ours]
    assert sorted(answers) == sorted([arp_reply(questions[0]), echo_reply(questions[1])])
    assert counter(node, "to_host") == counter(node, "from_host") == 40
    assert counter(node, "network_frames_in") == 42
    assert node.statistics().network_stalls == 0


def test_what_is_still_inside_comes_with_later_calls(node):
    choose = random.Random(2)
    frames = [random_host_frame(choose) for _ in range(30)]
    found = []
    for frame in frames:
        found += node.play([frame], [], drain=False)[1]
    assert len(found) < 30
    found += node.play([], [])[1]
    assert found == frames
    assert node.play([], []) == ([], [])


def test_the_host_waits_and_loses_nothing(node):
    frames = [bytes([number]) * 1514 for number in range(100)]
    assert node.play([], frames) == (frames, [])
    # Answers of the node go between, and the buffer holds ten such frames.
    requests = [arp_request()] * 200
    to_network, _ = node.play(requests, frames)
    assert [frame for frame in to_network if len(frame) == 1514] == frames


def test_registers_that_are_none_are_refused(node):
    assert node.read(node_address_of("node_identity")) == NODE_IDENTITY
    with pytest.raises(SimulationError, match="write of register 2048 was answered with error 2"):
        node.write(node_address_of("node_identity"), 1)
    with pytest.raises(SimulationError, match="read of register 2044 was answered with error 2"):
        node.read(node_address_of("node_identity") - 4)
    assert node.read(address_of("local_port")) == ENGINE_PORT


def test_wrong_use_is_an_error(node):
    with pytest.raises(ValueError, match="empty frame"):
        node.play([b""], [])
    with pytest.raises(ValueError, match="empty frame"):
        node.play([], [b"frame", b""])
    node.close()
    node.close()
    for use in (lambda: node.play([], []), lambda: node.read(0), node.statistics):
        with pytest.raises(ValueError, match="closed"):
            use()
