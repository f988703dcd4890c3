"""The simulated engine, and hosts of a network that loses packets: the bits are the same."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from afflux_sim.golden.reductions import all_reduce
from afflux_sim.rtl.verilated import VerilatedEngine
from tests.scenarios.director import LARGE
from tests.support.drivers.served import Served
from tests.support.golden_tensors import DTYPES, bits_of, draw
from tests.support.host import serving
from tests.support.host.boards import plugged
from tests.support.host.network import network
from tests.support.nccl.node import RED_OPS, Buffer, Node, run_nodes

COUNT = 1100


def drawn(rank: int, dtype: str) -> npt.NDArray[Any]:
    return draw(np.random.default_rng((rank, DTYPES.index(dtype))), "special", dtype, COUNT)


def each_operation(node: Node) -> dict[tuple[str, str], npt.NDArray[Any]]:
    assert node.init() == 1
    comm = node.form()
    buffers = Buffer(1 << 16), Buffer(1 << 16)
    for each in buffers:
        comm.register(each)
    found = {
        (dtype, red_op): comm.all_reduce(drawn(node.rank, dtype), dtype, red_op, buffers)
        for dtype in DTYPES
        for red_op in RED_OPS
    }
    comm.close()
    return found


def check(found: list[dict[tuple[str, str], npt.NDArray[Any]]]) -> None:
    for dtype, red_op in found[0]:
        tensors = [drawn(rank, dtype) for rank in range(len(found))]
        expected = bits_of(all_reduce(tensors, dtype, red_op), dtype)
        for results in found:
            assert (bits_of(results[dtype, red_op], dtype) == expected).all(), (dtype, red_op)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_simulated_engine():
    # The build of other tests, so that no further model has to be compiled.
    with VerilatedEngine(bus_bits=32, **LARGE) as engine:
        served = Served(engine)
        try:
            url = "udp://{}:{}".format(*served.address)
            environment = {"AFFLUX_AGGREGATOR": url, "AFFLUX_PEER_TIMEOUT": "60"}
            found = run_nodes(each_operation, 2, environment=environment, limit_s=120)
        finally:
            served.stop()
    check(found)


def test_hosts_of_a_network_that_loses_packets():
    with network(hosts=4, aggregators=1, loss=0.01) as made:
        process, line = serving.start(place=made.aggregators[0])
        try:
            url = next(word for word in line.split() if word.startswith("udp://"))
            environment = {"AFFLUX_AGGREGATOR": url.rstrip(",.;")}
            found = run_nodes(each_operation, 4, environment=environment, hosts=made.hosts)
        finally:
            process.terminate()
            serving.finish(process)
    check(found)


def test_hosts_of_a_network_with_streams_to_each_other():
    with network(hosts=3, aggregators=0, loss=0.01) as made:
        environment = {"AFFLUX_AGGREGATOR": "streams://"}
        found = run_nodes(each_operation, 3, environment=environment, hosts=made.hosts)
    check(found)


def test_a_multicast_group():
    with network(hosts=3, aggregators=1) as made:
        options = "--group", "239.1.2.3:4701"
        process, line = serving.start(*options, place=made.aggregators[0])
        try:
            url = next(word for word in line.split() if word.startswith("udp://"))
            environment = {"AFFLUX_AGGREGATOR": url.rstrip(",.;")}
            found = run_nodes(each_operation, 3, environment=environment, hosts=made.hosts)
        finally:
            process.terminate()
            serving.finish(process)
    check(found)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_simulated_board_in_a_network():
    """The Verilated node behind its MAC, to which the nodes' packets go as to one in hardware."""
    unlimited = {"gbit": None, "aggregator_gbit": None, "aggregators": 0, "boards": 1}
    with network(hosts=2, **unlimited) as made, plugged(made) as url:
        environment = {"AFFLUX_AGGREGATOR": url, "AFFLUX_PEER_TIMEOUT": "60", "AFFLUX_SLOTS": "4"}
        found = run_nodes(each_operation, 2, environment=environment, hosts=made.hosts, limit_s=200)
    check(found)
