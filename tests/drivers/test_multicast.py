"""Results to a multicast group, over real sockets on the loopback interface."""

import socket
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from afflux_drivers import _native
from afflux_drivers.aggregator.engine import SoftEngine
from afflux_drivers.collective import Reduction
from afflux_drivers.control.client import create_job, read_counters
from afflux_drivers.errors import AggregatorRefused, AggregatorUnreachable
from afflux_drivers.sockets import MulticastGroup, send_to_groups
from afflux_drivers.worker.line import Line, UdpLoop
from afflux_drivers.worker.session import Session
from afflux_hdl.contract import wire
from tests.support.drivers.frames_only import FramesOnly
from tests.support.drivers.golden_check import assert_same_bits, expected
from tests.support.drivers.groups import LOOPBACK, free_group, why_no_group
from tests.support.drivers.ranks import Ranks
from tests.support.drivers.served import Served
from tests.support.drivers.tensors import OPERATIONS, awkward, gaussian
from tests.support.drivers.virtual_job import ticket_of


@pytest.fixture
def group() -> MulticastGroup:
    group = free_group()
    reason = why_no_group(group)
    if reason:
        pytest.skip(reason)
    return group


@pytest.fixture(params=["one thread", "two threads", "frames"])
def served_group(
    no_threads_left: None, group: MulticastGroup, request: pytest.FixtureRequest
) -> Iterator[Served]:
    if request.param == "frames":
        running = Served(FramesOnly(), group)
    else:
        running = Served(SoftEngine(shares=2 if request.param == "two threads" else 1), group)
    try:
        yield running
    finally:
        running.stop()


def test_three_ranks_get_the_same_bits_from_one_frame_a_round(served_group, group):
    generator = np.random.default_rng(1)
    lease = create_job(served_group.address, 3, 16, 8, 5.0)
    assert (lease.ticket.group, lease.ticket.group_port) == (group.address, group.port)
    with Ranks(lease.ticket) as ranks:
        for dtype, reduction in OPERATIONS:
            tensors = [awkward(generator, 9000, dtype, True) for _ in range(3)]
            results = ranks.all_reduce(tensors, dtype, reduction)
            assert_same_bits(results, expected(tensors, dtype, reduction))
        counters = read_counters(served_group.address, 5.0)
        assert counters["blocks_accepted"] == ranks.blocks_sent()
        # A busy host may make a rank ask again; each answer is a frame more.
        asked = counters["duplicates"] + counters["probes"]
        for_all = counters["frames_out"] - counters["joins"]
        assert counters["rounds"] <= for_all <= counters["rounds"] + asked
        if asked == 0:
            assert for_all == counters["rounds"]
    lease.close()


@pytest.mark.parametrize("loss", [0.05, pytest.param(0.1, marks=pytest.mark.long)])
def test_loss_both_ways_changes_no_bit(served_group, loss):
    generator = np.random.default_rng(2)
    lease = create_job(served_group.address, 3, 16, 8, 5.0)
    with Ranks(lease.ticket, loss=loss) as ranks:
        for dtype, reduction in OPERATIONS:
            tensors = [awkward(generator, 5000, dtype, True) for _ in range(3)]
            results = ranks.all_reduce(tensors, dtype, reduction)
            assert_same_bits(results, expected(tensors, dtype, reduction))
        for worker in ranks.workers:
            assert worker.statistics.dropped_received > 0
            assert worker.statistics.retransmissions > 0
        counters = read_counters(served_group.address, 5.0)
        assert counters["blocks_accepted"] == ranks.blocks_sent()
        assert counters["replays"] > 0
    lease.close()


def test_jobs_share_a_group(served_group):
    """Each rank sees the other job's results too, and takes none of them."""
    generator = np.random.default_rng(3)
    leases = [create_job(served_group.address, workers, 4, 4, 5.0) for workers in (2, 3)]
    with Ranks(leases[0].ticket) as first, Ranks(leases[1].ticket) as second:
        for ranks in (first, second, first):
            count = len(ranks.workers)
            tensors = [gaussian(generator, 20_000, wire.Dtype.FLOAT32) for _ in range(count)]
            results = ranks.all_reduce(tensors, wire.Dtype.FLOAT32, Reduction.SUM)
            assert_same_bits(results, expected(tensors, wire.Dtype.FLOAT32, Reduction.SUM))
        # Packets for the other job lay in the sockets when the own operation began.
        for worker in (*first.workers, *second.workers):
            assert worker.statistics.ignored > 10
    for lease in leases:
        lease.close()


def test_only_the_aggregator_reaches_a_worker_through_its_group(group):
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as foreign,
    ):
        for sender in (peer, foreign):
            sender.bind((LOOPBACK, 0))
            send_to_groups(sender, LOOPBACK, 1)
        ticket = ticket_of(1, 4, 1)
        host, port = peer.getsockname()
        # Every rank of a host can join; packets to one of them alone are not taken by another.
        for _ in range(3):
            session = Session(ticket, 0)
            line = Line(host, port, session, None, group)
            loop = UdpLoop([line])
            join = _native.Join(session)
            line.open(join)
            foreign.sendto(b"abc", (group.address, group.port))
            peer.sendto(b"to nobody", (LOOPBACK, group.port))
            loop.run(time.monotonic() + 0.05)
            assert session.statistics.packets_received == 0
            peer.sendto(b"abcd", (group.address, group.port))
            loop.run(time.monotonic() + 0.05)
            assert session.statistics.packets_received == 1
            assert session.statistics.bytes_received == 4
            line.close()


@pytest.mark.parametrize("told", ["", "239.255.71.4"])
def test_a_rank_that_was_told_of_another_group_is_refused(served_group, told):
    lease = create_job(served_group.address, 1, 4, 1, 5.0)
    ticket = replace(lease.ticket, group=told, group_port=lease.ticket.group_port if told else 0)
    with pytest.raises(AggregatorRefused, match=r"results of job 0 to the group 239\.255\.71\.3"):
        Ranks(ticket).__enter__()
    lease.close()


def test_a_group_that_cannot_be_joined(group):
    """Its port is taken by a socket that shares it with nobody."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind((group.address, group.port))
        with pytest.raises(
            AggregatorUnreachable,
            match=rf"cannot join the multicast group {group} .*{LOOPBACK}:9 .*{LOOPBACK}: .*in use",
        ):
            Line(LOOPBACK, 9, Session(ticket_of(1, 4, 1), 0), None, group)


@pytest.mark.parametrize(
    "text",
    [
        *("", "239.1.2.3", "239.1.2.3:", ":4701", "host:4701", "239.1.2:1", "10.0.0.1:4701"),
        *("239.1.2.3:0", "239.1.2.3:65536", "239.1.2.3:-1", "239.1.2.3:4701:1"),
    ],
)
def test_texts_that_name_no_group(text):
    with pytest.raises(ValueError, match="multicast"):
        MulticastGroup.parse(text)


def test_a_group_as_text_and_words():
    group = MulticastGroup.parse("239.1.2.3:4701")
    assert group == MulticastGroup("239.1.2.3", 4701)
    assert str(group) == "239.1.2.3:4701"
    assert group.words == (0xEF01_0203, 4701)
