"""The simulated board in a network, addressed as one in hardware: its gateware answers and sums.

Nothing on its host does that for it: what its kernel receives is looked at, frame by frame.
"""

import contextlib
import socket
import struct
import time
from collections import Counter
from functools import cache

import numpy as np
import pytest
import torch
import torch.distributed as dist

import afflux
from afflux_drivers.control.client import read_counters
from afflux_hdl.contract import wire
from afflux_sim.golden.reductions import all_reduce
from benchmarks.network.faults import Fault
from tests.support import golden_tensors
from tests.support.host import boards, serving
from tests.support.host.boards import kind_of, overhearing, plugged
from tests.support.host.network import network
from tests.support.host.ranks import run_ranks, values
from tests.support.node_build import OPTIONS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

UNLIMITED = {"gbit": None, "aggregator_gbit": None, "aggregators": 0, "boards": 1}

TORCH = {
    "int32": torch.int32,
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}
COUNTS = (5, 700, 20_000)
KINDS = ("dense", "sparse", "special", "mixed")
OPS = {"sum": dist.ReduceOp.SUM, "avg": dist.ReduceOp.AVG, "max": dist.ReduceOp.MAX}
REDUCTIONS = ("sum", "avg", "sum", "max")
CASES = [
    (dtype, kind, count, reduction)
    for dtype in TORCH
    for kind, reduction in zip(KINDS, REDUCTIONS, strict=True)
    for count in COUNTS
    if (dtype, reduction) != ("int32", "avg")
]
# Each type, kind and count, and of type and kind each pair, with one count.
FEW = [
    case
    for case in CASES
    if case[2] == COUNTS[([*TORCH].index(case[0]) + KINDS.index(case[1])) % 3]
]


def inputs(case, rank):
    dtype, kind, count, _ = case
    seed = [CASES.index(case), rank]
    return golden_tensors.draw(np.random.default_rng(seed), kind, dtype, count)


def reduce_all(rank, size, cases):
    """Return the bits of each case's result, and what the group says of itself."""
    results = []
    for case in cases:
        bits = golden_tensors.bits_of(inputs(case, rank), case[0])
        tensor = torch.from_numpy(bits.copy()).view(TORCH[case[0]])
        dist.all_reduce(tensor, op=OPS[case[3]])
        results.append(tensor.view(torch.uint8).numpy().tobytes())
    found = afflux.statistics()
    return results, found["engine"], found["lanes"], found["blocks_sent"]


@cache
def golden_bits(case, size):
    """Return the bits of a case's sum."""
    tensors = [inputs(case, rank) for rank in range(size)]
    return golden_tensors.bits_of(all_reduce(tensors, case[0], case[3]), case[0]).tobytes()


def golden(size, cases):
    return [golden_bits(case, size) for case in cases]


def counters_from(host, url):
    """Read a board's counters from another host."""
    address, _, port = url.removeprefix("udp://").rpartition(":")
    # The connection is made there; it is read here.
    with host.sockets_here():
        return read_counters((address, int(port)), 10.0)


def neighbours(host):
    """Return which MAC address a host's kernel has for which IPv4 address."""
    lines = host.run("ip", "-4", "neigh").stdout.splitlines()
    fields = [line.split() for line in lines if "lladdr" in line]
    return {each[0]: each[each.index("lladdr") + 1] for each in fields}


def checksum(data):
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ping(host, address, data):
    """Return what comes back for an echo request with this data, and its time to live."""
    with host.sockets_here():
        icmp = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    with icmp:
        icmp.settimeout(10.0)
        head = struct.pack(">BBHHH", 8, 0, 0, 7, 1)
        head = struct.pack(">BBHHH", 8, 0, checksum(head + data), 7, 1)
        icmp.sendto(head + data, (address, 0))
        while True:
            packet = icmp.recv(65536)
            if packet[20] == 0:
                return packet[28:], packet[8]


def test_the_gateware_answers_and_all_else_is_its_hosts():
    with network(hosts=2, **UNLIMITED) as made:
        (first, second), (board,) = made.hosts, made.boards
        with plugged(made) as url, overhearing(board) as heard:
            shown = board.run("ip", "link", "show", board.interface).stdout.split()
            own = shown[shown.index("link/ether") + 1]
            assert board.address not in neighbours(first)
            data = bytes(range(256)) * 4
            assert ping(first, board.address, data) == (data, 64)
            assert neighbours(first)[board.address] == own
            counters = counters_from(second, url)
            assert counters["node_arp_replies"] >= 2
            assert counters["node_echo_replies"] == 1
            assert counters["frames_in"] == 0

            # Another port than the engine's: the datagram is the host's, and the host answers.
            with board.sockets_here():
                there = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                there.bind((board.address, 0))
            with first.sockets_here():
                here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                here.bind((first.address, 0))
            with there, here:
                for end in (there, here):
                    end.settimeout(10.0)
                here.sendto(b"to the host", there.getsockname())
                assert there.recv(100) == b"to the host"
                there.sendto(b"from the host", here.getsockname())
                assert here.recv(100) == b"from the host"
            kinds = Counter(map(kind_of, heard.frames()))
            assert kinds[f"arp request {board.address}"] == kinds["echo request"] == 0
            assert kinds[f"tcp {wire.PORT}"] > 0

            # Nothing for the engine is the host's, right or wrong.
            with first.sockets_here():
                wrong = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            with wrong:
                wrong.sendto(bytes(100), (board.address, wire.PORT))
            deadline = time.monotonic() + 10.0
            while (counters := counters_from(first, url))["frames_in"] == 0:
                assert time.monotonic() < deadline
            assert counters["bad_length"] == 1
            assert f"udp {wire.PORT}" not in map(kind_of, heard.frames())
            assert counters["node_host_overflow"] == counters["node_bad_frames"] == 0


@pytest.mark.parametrize(
    # Two ranks of each host send partial sums, which are twice as long.
    ("mtu", "lanes", "cases"),
    [
        (1500, 2, FEW),
        pytest.param(1500, 2, CASES, marks=pytest.mark.long),
        pytest.param(9000, 8, CASES, marks=pytest.mark.long),
    ],
    ids=["few at 1500", "all at 1500", "all at 9000"],
)
def test_ranks_of_two_hosts_sum_at_the_board(mtu, lanes, cases):
    with network(hosts=2, mtu=mtu, **UNLIMITED) as made, plugged(made) as url:
        board = made.boards[0]
        with overhearing(board) as heard:
            environment = {"AFFLUX_AGGREGATOR": url}
            outcomes = values(
                run_ranks(
                    reduce_all, 4, cases, hosts=made.hosts, environment=environment, limit_s=120
                )
            )
            kinds = Counter(map(kind_of, heard.frames()))
        assert kinds[f"arp request {board.address}"] == kinds[f"udp {wire.PORT}"] == 0
        # Nothing else is heard: the second host's request for the first comes to all.
        assert kinds[f"arp request {made.hosts[0].address}"] > 0
        wanted = golden(4, cases)
        for results, engine, of_group, _ in outcomes:
            assert results == wanted
            assert (engine, of_group) == ("node", lanes)
        counters = counters_from(made.hosts[0], url)
        # The ranks of a host are one worker.
        assert counters["joins"] >= len(made.hosts)
        assert counters["blocks_accepted"] == sum(sent for *_, sent in outcomes)
        assert counters["bad_checksum"] == counters["bad_ip"] == counters["bad_length"] == 0
        assert counters["node_to_engine"] == counters["frames_in"]


def test_ranks_sum_where_the_boards_cable_loses_packets():
    with network(hosts=2, **UNLIMITED) as made, plugged(made) as url:
        board = made.boards[0]
        for incoming in (True, False):
            made.impair(board, Fault(0.02, udp=True), incoming=incoming)
        environment = {"AFFLUX_AGGREGATOR": url}
        outcomes = values(
            run_ranks(reduce_all, 4, FEW, hosts=made.hosts, environment=environment, limit_s=120)
        )
        wanted = golden(4, FEW)
        assert all(results == wanted for results, *_ in outcomes)
        counters = counters_from(made.hosts[0], url)
        assert counters["blocks_accepted"] == sum(sent for *_, sent in outcomes)
        assert counters["duplicates"] + counters["probes"] > 0
        assert counters["replays"] > 0


def test_each_result_goes_once_to_a_group():
    with network(hosts=2, **UNLIMITED) as made, plugged(made, "--group", "239.1.2.3:4701") as url:
        environment = {"AFFLUX_AGGREGATOR": url}
        outcomes = values(
            run_ranks(reduce_all, 4, FEW, hosts=made.hosts, environment=environment, limit_s=120)
        )
        wanted = golden(4, FEW)
        assert all(results == wanted for results, *_ in outcomes)
        counters = counters_from(made.hosts[0], url)
        asked = counters["duplicates"] + counters["probes"]
        results_sent = counters["frames_out"] - counters["joins"]
        assert 0 <= results_sent - counters["rounds"] <= asked


@pytest.mark.long
def test_aggregators_of_the_hosts_have_the_board_above_them():
    with (
        network(hosts=2, **UNLIMITED) as made,
        plugged(made) as url,
        contextlib.ExitStack() as held,
    ):
        parent = url.removeprefix("udp://")
        leaves = []
        for host in made.hosts:
            process, line = serving.start("--port", "0", place=host)
            held.callback(serving.finish, process)
            held.callback(process.terminate)
            leaves.append(f"{line.split()[-1]}?parent={parent}")
        environment = {
            "AFFLUX_AGGREGATOR": leaves[0],
            "BAD_RANK": "1",
            "BAD": f"AFFLUX_AGGREGATOR={leaves[1]}",
        }
        outcomes = values(
            run_ranks(reduce_all, 2, CASES, hosts=made.hosts, environment=environment, limit_s=120)
        )
        wanted = golden(2, CASES)
        assert all(results == wanted for results, *_ in outcomes)
        assert counters_from(made.hosts[0], url)["rounds"] > 0


def test_a_board_whose_network_port_is_gone_ends_its_server():
    with network(hosts=1, **UNLIMITED) as made:
        board = made.boards[0]
        taps = ("--network-tap", "wire0", "--host-tap", board.interface)
        process, line = boards.start(board, *taps, *OPTIONS)
        assert "node engine" in line
        assert board.run("ip", "link", "delete", "wire0").returncode == 0
        _, said = process.communicate(timeout=30)
        assert process.returncode == 1
        assert "the simulated board has failed" in said


def test_what_a_board_needs_is_said():
    with network(hosts=1, **UNLIMITED) as made:
        board = made.boards[0]
        process, line = boards.start(board, "--network-tap", "wire0", "--host-tap", "lo")
        assert serving.finish(process) == 1
        assert line.startswith("afflux: cannot serve: tap device lo:")
        # Neither interface that was made for it is left.
        assert "wire0" not in board.run("ip", "link").stdout
