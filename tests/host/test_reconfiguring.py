"""Groups whose ranks change by handles: who leaves, who comes, and who has been told otherwise."""

import hashlib
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store

import afflux
from afflux.group import reconfiguring
from afflux.group.store import own_store
from afflux.group.store.own_store import Handle, HandleError
from afflux.group_statistics import group_of
from tests.support.host.digests import ENGINES, digest
from tests.support.host.network import network
from tests.support.host.ranks import caught, run_ranks, values

IN_PLACE = hasattr(dist, "_reconfigure")
"""torch from 2.14 on."""


def all_handles(rank, size):
    """Return the handles of all ranks, by way of a store that has no further part in it."""
    store = _get_default_store()
    store.set(f"handle/{rank}", afflux.reconfigure_handle())
    return [store.get(f"handle/{each}").decode() for each in range(size)]


def digest_of(rank, group):
    """Return the digest of a group of some ranks, which is made for it."""
    generator = torch.Generator().manual_seed(rank)
    tensor = torch.randn(20_000, generator=generator).exp()
    dist.all_reduce(tensor, group=group)
    return hashlib.sha256(tensor.numpy().tobytes()).hexdigest()


CHANGES = [(0, 1), (3, 1, 0, 2), (3, 0, 1), (3, 1)]
"""Two leave; they come back, as they do not know the group, in another order; rank 2 is killed;
then rank 0 is, in whose process the ranks first met."""

DEAD = {2: 2, 0: 3}
"""By rank, the change before which it is killed."""


def changed(rank, size, in_place):
    """Change the ranks time after time; return the digests, and those of fresh groups."""
    fresh = []
    for members in CHANGES:
        group = dist.new_group(sorted(members))
        fresh.append(digest_of(rank, group) if rank in members else None)
    if in_place:
        store = _get_default_store()
        dist.destroy_process_group()
        # The stubs of torch 2.13 do not have it.
        more: dict[str, Any] = {"enable_reconfigure": True}
        dist.init_process_group("afflux", store=store, rank=rank, world_size=size, **more)
    handles = all_handles(rank, size)
    found: list[str | None] = []
    if not in_place and rank in (2, 3):
        # A new process has no group.
        dist.destroy_process_group()
    assert afflux.supports_reconfigure()
    for number, members in enumerate(CHANGES):
        if DEAD.get(rank) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        if rank not in members:
            found.append(None)
            continue
        if number in DEAD.values():
            with pytest.raises(RuntimeError, match=r"ended|closed|left|destroyed|failed"):
                for _ in range(3):
                    dist.all_reduce(torch.ones(1000))
        before = dist.group.WORLD
        made = afflux.reconfigure(100 + number, [handles[each] for each in members])
        assert made is dist.group.WORLD
        assert not in_place or made is before
        assert (dist.get_rank(), dist.get_world_size()) == (members.index(rank), len(members))
        found.append(digest(rank))
    return found, fresh


WAYS = [False, pytest.param(True, marks=pytest.mark.skipif(not IN_PLACE, reason="torch < 2.14"))]


@pytest.mark.parametrize("in_place", WAYS, ids=["anew", "in-place"])
@pytest.mark.parametrize("engine", ENGINES)
def test_ranks_leave_and_come_and_sums_are_those_of_fresh_groups(engine, in_place):
    outcomes = run_ranks(changed, 4, in_place, environment=ENGINES[engine], limit_s=120)
    assert [each.kind for each in outcomes] == ["died", "", "died", ""], outcomes
    for rank in (1, 3):
        found, fresh = outcomes[rank].value
        assert found == fresh
    assert outcomes[1].value[0] == outcomes[3].value[0] or outcomes[3].value[0][0] is None


def turned(rank, size):
    """Change places; return the rank, and where its process is."""
    handles = all_handles(rank, size)
    afflux.reconfigure(1, handles[::-1])
    return digest(rank), dist.get_rank(), Handle.parse(handles[rank]).addresses


def test_ranks_of_two_hosts_meet_by_their_addresses():
    with network(hosts=2, aggregators=0, gbit=None) as made:
        addresses = [each.address for each in made.hosts]
        first, second = values(run_ranks(turned, 2, hosts=made.hosts))
    assert first[0] == second[0]
    assert (first[1], second[1]) == (1, 0)
    assert [first[2][0], second[2][0]] == addresses


def disagree(rank, size):
    """Call with what does not go together, time after time; return errors and seconds by case."""
    store, h = _get_default_store(), all_handles(rank, size)

    def meet(name):
        store.set(f"{name}/{rank}", "1")
        store.wait([f"{name}/{each}" for each in range(size)])

    calls = {
        "uuid": [(10, h), (11, h), (10, h)],
        "order": [(12, h), (12, [h[0], h[2], h[1]]), (12, h)],
        "first": [(13, h), (13, [h[1], h[0], h[2]]), (13, h)],
        "fewer": [(14, h[:2]), (14, h), (14, h)],
        "missing": [(15, h), (15, [h[0], h[2]]), (15, h)],
        "equal": [(16, h), (16, [*h, h[0]]), (16, h)],
        "foreign": [(17, h), (17, [*h, "gloo:0"]), (17, h)],
        "used": [(18, h), (17, h), (18, h)],
        "late": [(19, h), (19, h), (19, h)],
    }
    told = {}
    for name, of_rank in calls.items():
        meet(name)
        if name == "late" and rank == 1:
            store.wait(["over/0", "over/2"])
        # Where a rank refuses and the others do not know why, they wait for it.
        limit = timedelta(seconds=2 if name in ("late", "used") else 20)
        uuid, listed = of_rank[rank]
        told[name] = caught(partial(afflux.reconfigure, uuid, listed, timeout=limit))
    store.set(f"over/{rank}", "1")
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    told["dead"] = caught(lambda: afflux.reconfigure(20, h))
    told["dead first"] = caught(lambda: afflux.reconfigure(21, [h[2], h[0], h[1]]))
    afflux.reconfigure(22, h[:2])
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    return told, tensor.tolist()


def test_all_ranks_are_told_of_a_disagreement_and_the_next_call_may_succeed():
    outcomes = run_ranks(disagree, 3, environment=ENGINES["shm"], limit_s=120)
    assert [each.kind for each in outcomes] == ["", "", "died"], outcomes
    (first, sums), (second, others) = outcomes[0].value, outcomes[1].value
    assert sums == others == [2.0] * 3
    for told in (first, second):
        for name, (text, kind, seconds) in told.items():
            assert kind == "RendezvousError", (name, text)
            assert text.startswith("reconfigure"), text
            # As a rule 0.5 to 2 s.
            assert seconds < 15, (name, text)
    for name, at_first, at_second in TOLD:
        assert at_first in first[name][0]
        assert at_second in second[name][0]


TOLD = [
    ("uuid", "rank 1 was told uuid 11 and", "rank 0 was told uuid 10 and"),
    ("order", "the handles of ranks [0, 2, 1]", "rank 0 was told uuid 12 and"),
    ("first", "rank 1 was told uuid 13 and the handles of ranks [1, 0, 2]", "rank 1 was told"),
    ("fewer", "the handles of ranks [0, 1, another]", "the handles of ranks [0, 1]"),
    ("missing", "ranks that leave do not call", "none of the 2 handles is this rank's own"),
    ("equal", "handles 0 and 3 are the same one", "handles 0 and 3 are the same one"),
    ("foreign", "not a handle", "handle 3: not a handle of this version of Afflux: 'gloo:0'"),
    ("used", "waited in vain for rank 1", "uuid 17 was already used by this group"),
    ("late", "waited in vain for rank 1", "rank 0 has given up: reconfigure, uuid 19, at rank 0"),
    ("dead", "rank 2 cannot be reached: port", "rank 2 cannot be reached: port"),
    ("dead first", "rank 0 cannot be reached: port", "rank 0 cannot be reached: port"),
]


@pytest.mark.parametrize(
    "fields",
    [
        '"i","p","h",["127.0.0.1"],1e400',
        '"i","p","h",["127.0.0.1"],70000',
        '"i","p","h",["127.0.0.1"],-3',
        '["i"],"p","h",["127.0.0.1"],7',
        '"i","p","h",{"127.0.0.1":1},7',
        '"i","p","h","127.0.0.1",7',
        '"i","p","h",[],7',
        "[" * 100_000,
    ],
)
def test_what_is_no_handle_is_refused_as_such(fields):
    with pytest.raises(HandleError, match="not a handle"):
        Handle.parse(f"afflux[1,{fields}]")


def test_what_is_no_text_is_no_handle():
    with pytest.raises(HandleError, match="None"):
        Handle.parse(None)  # type: ignore[arg-type]


def in_two_threads(_rank, _size):
    """Return the ports of the store that two threads ask for at once, both for the first time."""
    made = own_store.TCPStore

    def slowly(*arguments, **more):
        time.sleep(0.2)
        return made(*arguments, **more)

    with (
        mock.patch.object(own_store, "TCPStore", slowly),
        ThreadPoolExecutor(2) as both,
    ):
        return [each.result().port for each in [both.submit(own_store.own_store) for _ in "ab"]]


def test_two_threads_have_one_store():
    ((one, other),) = values(run_ranks(in_two_threads, 1, environment=ENGINES["shm"]))
    assert one == other


def after_a_failure(_rank, _size):
    """Return a group's timeout and options when the first attempt to change it has failed."""
    options = afflux.Options(slots=7)
    dist.destroy_process_group()
    store, limit = dist.HashStore(), timedelta(seconds=77)
    dist.init_process_group(
        "afflux", store=store, rank=0, world_size=1, timeout=limit, pg_options=options
    )
    handles = [afflux.reconfigure_handle()]
    with mock.patch.object(dist, "init_process_group", side_effect=RuntimeError("planted")):
        told = caught(lambda: afflux.reconfigure(1, handles))
    afflux.reconfigure(2, handles)
    return told[0], group_of(None).timeout_s, group_of(None).settings.slots


def test_a_failure_keeps_timeout_and_options():
    assert values(run_ranks(after_a_failure, 1, environment=ENGINES["shm"])) == [("planted", 77, 7)]


def with_bugs(rank, size):
    """Reconfigure with bugs in place; return the errors, by bug."""
    h, told, brief = all_handles(rank, size), {}, timedelta(seconds=3)
    with mock.patch.object(reconfiguring, "_rank_of", lambda *_: rank):
        turned = [h[1], h[0]]
        told["numbering"] = caught(lambda: afflux.reconfigure(1, turned, None, brief))
    meeting = reconfiguring._Meeting
    nothing = {"_gather": lambda *_: None, "_wait": lambda *_: None}
    with mock.patch.multiple(meeting, **nothing):  # type: ignore[call-overload]
        told["agreement"] = caught(lambda: afflux.reconfigure(2 + rank, h, None, brief))
    return told


def test_bugs_are_seen():
    """A rank that keeps its old number does no harm; without agreement, nobody learns the cause."""
    for told in values(run_ranks(with_bugs, 2, environment=ENGINES["shm"])):
        assert "another rank has come as rank" in told["numbering"][0]
        assert "was told" not in told["agreement"][0]
        assert told["agreement"][1] != "nothing raised"
