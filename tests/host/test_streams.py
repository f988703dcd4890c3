"""Hosts of one rank each, in network namespaces, whose ranks sum over streams: bits and ways."""

import itertools

import pytest
import torch
import torch.distributed as dist

import afflux
from afflux.group.forming import plans
from benchmarks.network.faults import Fault
from tests.support.host.all_reduces import LARGE, digest, drawn, reductions, together
from tests.support.host.network import network
from tests.support.host.ranks import run_ranks, values
from tests.support.host.warnings_heard import Recording


def scatters(rank, size, group):
    found = {}
    for count in (0, 1, 77, LARGE // 4):
        for dtype in (torch.float32, torch.bfloat16, torch.int64):
            own = torch.empty(count, dtype=dtype)
            whole = drawn((size * count,), dtype, rank, 32)
            dist.reduce_scatter_tensor(own, whole, group=group)
            parts = [torch.empty_like(own) for _ in range(size)]
            dist.all_gather(parts, own, group=group)
            found[f"reduce_scatter {dtype} {count}"] = digest(*parts)
            again = torch.empty_like(own)
            dist.reduce_scatter(again, list(whole.split(count)) if count else parts, group=group)
            assert digest(again) == digest(own)
    return found


def moves(rank, size, group):
    found = {}
    for count in (0, 1, 777, LARGE):
        for dtype in (torch.bool, torch.complex64, torch.float32):
            for root in range(size):
                tensor = drawn((count,), torch.float32, rank, 33).to(dtype)
                dist.broadcast(tensor, root, group=group)
                found[f"broadcast {dtype} {count} {root}"] = digest(tensor)
            own = drawn((count,), torch.float32, rank, 34).to(dtype)
            whole = torch.empty(size * count, dtype=dtype)
            dist.all_gather_into_tensor(whole, own, group=group)
            found[f"all_gather {dtype} {count}"] = digest(whole)
            if count:
                in_place = torch.zeros(size, count, dtype=dtype)
                in_place[rank] = own
                dist.all_gather_into_tensor(in_place.view(-1), in_place[rank], group=group)
                assert digest(in_place) == digest(whole)
    return found


def everything(rank, size):
    found = reductions(rank, None) | scatters(rank, size, None)
    found |= moves(rank, size, None) | together(rank, size, None)
    return found, afflux.statistics()


AUTO = {"AFFLUX_AGGREGATOR": "auto"}


@pytest.mark.parametrize("size", [2, 3, pytest.param(4, marks=pytest.mark.long)])
def test_all_collectives_have_the_bits_of_shared_memory(size):
    here = values(run_ranks(everything, size, environment=AUTO))
    with network(hosts=size, aggregators=0, gbit=None) as made:
        there = values(run_ranks(everything, size, hosts=made.hosts, environment=AUTO))
    right, of_memory = here[0]
    assert of_memory["engine"] == "shm"
    for found, statistics in there:
        assert {name for name in right if found[name] != right[name]} == set()
        assert (statistics["topology"], statistics["engine"]) == ("streams", "streams")
        # Gloo has what shared memory leaves to it, and no more.
        for name in ("operations_engine", "operations_gloo", "gloo"):
            assert statistics[name] == of_memory[name]


@pytest.mark.parametrize("size", [3, *(pytest.param(n, marks=pytest.mark.long) for n in (4, 5))])
def test_hosts_with_several_ranks_have_these_bits_too(size):
    right = values(run_ranks(everything, size, environment=AUTO))[0][0]
    with network(hosts=2, aggregators=0, gbit=None) as made:
        for found, statistics in values(
            run_ranks(everything, size, hosts=made.hosts, environment=AUTO)
        ):
            assert {name for name in right if found[name] != right[name]} == set()
            assert statistics["topology"] == "streams by host"


def sums(rank, size):
    return reductions(rank, None)


def test_all_reduces_have_the_bits_of_gloo():
    environment = {"AFFLUX_AGGREGATOR": "gloo://"}
    right = values(run_ranks(sums, 3, environment=environment))[0]
    with network(hosts=3, aggregators=0, gbit=None) as made:
        for found in values(run_ranks(sums, 3, hosts=made.hosts, environment=AUTO)):
            # Gloo adds float64 in an order of its own, and rounds each product.
            names = {
                name
                for name in right
                if "float64" not in name and not ("float" in name and "PRODUCT" in name)
            }
            assert len(names) > 100
            assert {name for name in names if found[name] != right[name]} == set()


def sparsely(rank, size):
    """Return the bytes that this rank has sent for tensors of which ever less is not zero."""
    count = 64 * 10_000
    sent = [afflux.statistics()["bytes_sent"]]
    for step in (1, 100, 0):
        tensor = torch.zeros(count)
        if step:
            for block in range(0, count // 64, step):
                tensor[64 * block + rank] = 1.0
        dist.all_reduce(tensor)
        right = torch.zeros(count)
        if step:
            for peer in range(size):
                right[peer :: 64 * step] = 1.0
        assert torch.equal(tensor, right)
        sent.append(afflux.statistics()["bytes_sent"])
    return [after - before for before, after in itertools.pairwise(sent)]


@pytest.mark.parametrize("size", [2, 3])
def test_zeros_do_not_travel(size):
    with network(hosts=size, aggregators=0, gbit=None) as made:
        for dense, sparse, nothing in values(
            run_ranks(sparsely, size, hosts=made.hosts, environment=AUTO)
        ):
            assert dense > 4 * 64 * 10_000 * 0.9
            assert sparse < dense / 90
            assert nothing == 0


def in_subgroups(rank, size):
    """Let groups take turns that overlap."""
    groups = {members: dist.new_group(list(members)) for members in ((0, 2), (1, 2, 3), (3, 1))}
    said = []
    for turn in range(5):
        for members, group in groups.items():
            if rank in members:
                tensor = torch.full((1000 * turn + 1,), float(rank))
                dist.all_reduce(tensor, group=group)
                said.append(bool((tensor == sum(members)).all()))
                out = [torch.empty(3) for _ in members]
                dist.all_gather(out, torch.full((3,), float(rank)), group=group)
                said.append([int(each[0]) for each in out] == sorted(members))
        tensor = torch.ones(10)
        dist.all_reduce(tensor)
        said.append(tensor[0].item() == size)
    found = {
        afflux.statistics(group)["topology"] for members, group in groups.items() if rank in members
    }
    return said, found


def test_subgroups_have_streams_of_their_own():
    with network(hosts=4, aggregators=0, gbit=None) as made:
        for said, found in values(run_ranks(in_subgroups, 4, hosts=made.hosts, environment=AUTO)):
            assert all(said)
            assert found == {"streams"}


def asked_for(rank, size):
    plans._warn_of_gloo.cache_clear()
    recording = Recording()
    group = dist.new_group(backend="afflux")
    tensor = torch.full((300_000,), 1.0)
    dist.all_reduce(tensor, group=group)
    return tensor[7].item() == size, afflux.statistics(group), recording.messages


@pytest.mark.parametrize(
    ("mtu", "loss"),
    [
        (9000, 0.0),
        (1280, 0.02),
        pytest.param(1280, 0.0, marks=pytest.mark.long),
        pytest.param(9000, 0.02, marks=pytest.mark.long),
    ],
)
def test_nothing_is_given_and_nothing_need_be_started(mtu, loss):
    with network(hosts=3, aggregators=0, gbit=None, mtu=mtu, loss=loss) as made:
        for right, found, warnings in values(run_ranks(asked_for, 3, hosts=made.hosts)):
            assert right
            assert found["topology"] == "streams"
            assert found["topology_reason"].startswith("rank 1 is on another host")
            assert warnings == []


def test_streams_need_no_udp():
    with network(hosts=2, aggregators=0, gbit=None) as made:
        made.impair(made.hosts[1], Fault(udp=True))
        for right, found, warnings in values(run_ranks(asked_for, 2, hosts=made.hosts)):
            assert right
            assert found["topology"] == "streams"
            assert warnings == []
