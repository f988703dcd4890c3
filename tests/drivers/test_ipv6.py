"""Aggregators and workers on IPv6 sockets: the same bits, and clear words where it cannot be."""

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from afflux_drivers.addresses import authority, connect_tcp, lanes_for_mtu, resolve, route_to
from afflux_drivers.aggregator.access import Access
from afflux_drivers.aggregator.engine import Engine, SoftEngine
from afflux_drivers.aggregator.server import AggregatorServer
from afflux_drivers.collective import Reduction
from afflux_drivers.control.client import create_job, read_counters
from afflux_drivers.control.tickets import JobTicket
from afflux_drivers.control.tree import create_tree
from afflux_drivers.errors import AggregatorRefused, AggregatorUnreachable
from afflux_drivers.sockets import MulticastGroup
from afflux_drivers.worker.worker import Worker
from afflux_hdl.contract import wire
from tests.support.drivers.frames_only import FramesOnly
from tests.support.drivers.golden_check import assert_same_bits, expected
from tests.support.drivers.ranks import run_ranks
from tests.support.drivers.tensors import OPERATIONS, gaussian

F32 = wire.Dtype.FLOAT32
GROUP = MulticastGroup("239.1.2.3", 4701)


@pytest.fixture(autouse=True)
def ipv6() -> None:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind(("::1", 0))
    except OSError as error:
        pytest.skip(f"this machine has no IPv6: {error}")


@contextmanager
def serving(host: str, engine: Engine | None = None) -> Iterator[tuple[str, int]]:
    server = AggregatorServer(engine or SoftEngine(), host, access=Access(no_secret=True))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.address
    finally:
        server.stop()
        thread.join(10)
        assert not thread.is_alive()


@contextmanager
def joined(tickets: Sequence[JobTicket]) -> Iterator[list[Worker]]:
    """Give the worker of each rank its own ticket."""
    with ExitStack() as held:
        workers = []
        for rank, ticket in enumerate(tickets):
            workers.append(Worker([ticket], rank))
            held.callback(workers[-1].close)
        for worker in workers:
            worker.join(10.0)
        yield workers


def check(workers: Sequence[Worker], dtype: wire.Dtype, reduction: Reduction) -> None:
    generator = np.random.default_rng(3)
    tensors = [gaussian(generator, 10_000, dtype) for _ in workers]
    results = run_ranks(
        [
            partial(worker.all_reduce, tensor, dtype, reduction, tensor.shape, 30.0)
            for worker, tensor in zip(workers, tensors, strict=True)
        ]
    )
    assert_same_bits(results, expected(tensors, dtype, reduction))


@pytest.mark.parametrize("shares", [pytest.param(1, marks=pytest.mark.long), 3])
def test_sums_over_ipv6(shares):
    with serving("::1", SoftEngine(shares=shares)) as address:
        assert address[0] == "::1"
        lease = create_job(address, 3, 16, 8, 5.0)
        assert lease.ticket.host == "::1"
        with joined([lease.ticket] * 3) as workers:
            for dtype, reduction in OPERATIONS:
                check(workers, dtype, reduction)
        counters = read_counters(address, 5.0)
        assert counters["rounds"] > 0
        assert counters["bad_address"] == 0
        lease.close()


def test_all_addresses_are_those_of_both_families():
    with serving("::", SoftEngine(shares=2)) as (host, port):
        assert host == "::"
        lease = create_job(("127.0.0.1", port), 3, 16, 8, 5.0)
        four = lease.ticket
        assert four.host == "127.0.0.1"
        six = replace(four, host="::1")
        with joined([four, six, four]) as workers:
            check(workers, F32, Reduction.SUM)
        lease.close()


def test_packets_of_another_address_are_refused():
    """Only the whole address and the port say who a worker is."""
    with serving("::") as (_, port):
        lease = create_job(("::1", port), 2, 4, 2, 5.0)
        with joined([lease.ticket] * 2) as workers:
            own = workers[0]._loop.lines[0].own_address
            assert own[0] == "::1"
            data = bytearray(wire.datagram_bytes(0))
            data[0] = wire.VERSION << 4 | wire.Type.DATA
            data[2], data[3] = lease.ticket.job, 0
            data[12:20] = lease.ticket.key.to_bytes(8, "little")
            before = read_counters(("::1", port), 5.0)
            for other in ("::1", "127.0.0.1"):
                family, where = resolve(other, port)[0]
                with socket.socket(family, socket.SOCK_DGRAM) as foreign:
                    foreign.sendto(data, where)
            give_up = time.monotonic() + 10
            while (counters := read_counters(("::1", port), 5.0))["bad_address"] < 2:
                assert time.monotonic() < give_up
                time.sleep(0.02)
            assert counters["accepted"] == before["accepted"]
            check(workers, F32, Reduction.SUM)
        lease.close()


@pytest.mark.parametrize(
    ("above", "below"), [("::1", "::1"), ("::1", "::"), ("127.0.0.1", "::"), ("::", "127.0.0.1")]
)
def test_trees(above, below):
    with serving(above) as parent, serving(below, SoftEngine(shares=2)) as leaf:
        named = "127.0.0.1" if above == "::" else above
        lease = create_tree((named, parent[1]), [leaf, leaf], 16, 8, 10.0)
        try:
            with joined([*lease.tickets, *lease.tickets]) as workers:
                check(workers, F32, Reduction.SUM)
                check(workers, wire.Dtype.INT32, Reduction.MAX)
        finally:
            lease.close()
        # Numbers are given out again, and lead to the parent of the new job.
        with serving(above) as another:
            lease = create_tree((named, another[1]), [leaf, leaf], 16, 8, 10.0)
            with joined([*lease.tickets, *lease.tickets]) as workers:
                check(workers, F32, Reduction.SUM)
            assert read_counters((named, another[1]), 5.0)["rounds"] > 0
            lease.close()


@pytest.mark.parametrize(
    ("above", "below", "why"),
    [
        ("::1", "127.0.0.1", "127.0.0.1, where this aggregator listens, is an address of IPv4"),
        ("127.0.0.1", "::1", "::1, where this aggregator listens, is an address of IPv6"),
    ],
)
def test_a_parent_of_the_other_family_is_refused(above, below, why):
    with serving(above) as parent, serving(below) as leaf:
        with pytest.raises(AggregatorRefused) as caught:
            create_tree(parent, [leaf], 16, 8, 5.0)
        assert f"cannot reach the parent at {authority(*parent)}: {why}" in str(caught.value)


def test_an_engine_that_takes_frames_has_no_parent_of_ipv6():
    with (
        serving("::1") as parent,
        serving("127.0.0.1", FramesOnly()) as leaf,
        pytest.raises(AggregatorRefused, match="addresses of IPv4 only"),
    ):
        create_tree(parent, [leaf], 16, 8, 5.0)


def test_what_is_of_ipv4_only_is_refused():
    with pytest.raises(OSError, match=r"takes frames of IPv4 only, and ::1 is IPv6"):
        AggregatorServer(FramesOnly(), "::1")
    with pytest.raises(OSError, match=r"group 239\.1\.2\.3:4701 is one of IPv4, and ::1 is IPv6"):
        AggregatorServer(SoftEngine(), "::1", group=GROUP)


def test_a_group_of_an_aggregator_that_is_reached_by_ipv6():
    with serving("::1") as address:
        lease = create_job(address, 1, 4, 2, 5.0)
        ticket = replace(lease.ticket, group=GROUP.address, group_port=GROUP.port)
        with pytest.raises(AggregatorUnreachable, match=r"239\.1\.2\.3:4701 of IPv4, which ::1 is"):
            Worker([ticket], 0)
        lease.close()


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("fe80::1", r"fe80::1 is a link-local address, to which an interface must be named"),
        ("fe80::1%nowhere0", r"this host has no interface nowhere0"),
    ],
)
def test_addresses_that_lead_nowhere(host, why):
    with pytest.raises(AggregatorUnreachable, match=rf"at \[{host}\]:9: {why}"):
        create_job((host, 9), 1, 1, 1, 1.0)
    ticket = JobTicket(host, 9, 0, 0, 0, 1, 1, 1, 1, "soft")
    with pytest.raises(AggregatorUnreachable, match=rf"at \[{host}\]:9: {why}"):
        Worker([ticket], 0)
    with pytest.raises(OSError, match=why):
        AggregatorServer(SoftEngine(), host)


def test_what_a_route_carries():
    assert route_to("::1", 9).own == "::1"
    assert route_to("::1", 9).lanes == wire.LANES_MAX
    for mtu, lanes in ((1280, 4), (1417, 4), (1418, 5), (1500, 5), (9000, 16)):
        assert lanes_for_mtu(mtu, "fd00::1") == lanes
        # With the header of IPv6, a packet is as long as the MTU at most.
        assert 40 + wire.UDP_BYTES + wire.datagram_bytes(lanes) <= mtu
    assert lanes_for_mtu(1398, "10.0.0.1") == 5
    with pytest.raises(ValueError, match="an MTU of 393 bytes holds no packet"):
        lanes_for_mtu(393, "fd00::1")


def test_a_name_is_one_of_ipv4_first(monkeypatch):
    """Ranks come to the address at which rank 0 has found the control channel."""
    both = [("::1", socket.AF_INET6), ("127.0.0.1", socket.AF_INET)]

    def lookup(host, port, *_, type=0, **__):
        wanted = [each for each in both if host in ("both", each[0])]
        return [
            (family, type, 0, "", (address, port, *((0, 0) * (family == socket.AF_INET6))))
            for address, family in wanted
        ]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    assert [place.host for place in resolve("both", 9)] == ["127.0.0.1", "::1"]
    for host, named in (("127.0.0.1", "both"), ("::1", "::1")):
        with socket.create_server(
            (host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        ) as server:
            made, found = connect_tcp("both", server.getsockname()[1], 5.0)
            made.close()
            assert found == named
    with pytest.raises(ConnectionRefusedError):
        connect_tcp("both", 1, 5.0)
