"""Latencies that the docstrings of the node's parts state, measured cycle by cycle.

Those of the whole node are measured on its pins, in tests/testbench/node.py.
"""

import pytest

from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.lib.packet_fifo import PacketFifo
from afflux_hdl.node.arp import Arp
from afflux_hdl.node.classify import HEADER_BYTES, Classify
from afflux_hdl.node.echo import Echo
from afflux_hdl.node.egress import Egress
from tests.scenarios.job_frames import ENGINE_MAC
from tests.scenarios.node_frames import LOCAL, arp_request, echo_request
from tests.support.part_player import Played, play

SMALLEST = bytes.fromhex(ENGINE_MAC.replace(":", "")) + bytes(54)
WIDTHS = (32, 64, 128, 256, 512)


def latency(played: Played) -> int:
    """Cycles from the last beat in to the first beat out."""
    return played.cycles[0] - played.arrived


def sizes(bus_bits: int) -> Parameters:
    return Parameters(bus_bits=bus_bits, workers=1, lanes=1, jobs=1, slots=2)


@pytest.mark.parametrize("bus_bits", WIDTHS)
def test_latency_of_classify(bus_bits: int) -> None:
    """It counts from the beat that ends the header."""
    frame = SMALLEST + bytes(60)
    played = play(Classify(sizes(bus_bits)), [(frame, False)], inputs={"host_path": 1})
    size = bus_bits // 8
    behind = -(-len(frame) // size) - -(-HEADER_BYTES // size)
    assert latency(played) + behind == 7
    assert played.cycles == list(range(played.cycles[0], played.cycles[0] + len(played.cycles)))


@pytest.mark.parametrize("bus_bits", WIDTHS)
def test_latency_of_the_parts(bus_bits: int) -> None:
    fifo = PacketFifo(bus_bits=bus_bits, depth_bytes=2048, lossy=True)
    assert latency(play(fifo, [(SMALLEST, False)])) == 2
    assert latency(play(Arp(bus_bits=bus_bits), [(arp_request(), False)], inputs=LOCAL)) == 3
    echo = Echo(bus_bits=bus_bits, buffer_bytes=4096)
    assert latency(play(echo, [(echo_request(bytes(40)), False)], inputs=LOCAL)) == 8
    played = play(Egress(bus_bits=bus_bits, sources=2, frame_beats_max=16), [(SMALLEST, False)], [])
    assert played.cycles[0] == 1
