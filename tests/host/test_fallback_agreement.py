"""Ranks of a new group that fail at any stage: all go to Gloo then, or none."""

import threading
import time
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest
import torch.distributed as dist

from afflux.group.forming import plans, rendezvous, streams
from afflux.group.forming.rendezvous import meet
from afflux.group.forming.streams import _Joining
from afflux.group.settings.membership import Membership
from afflux.group.settings.variables import Settings
from afflux.group.store.bounded import BoundedStore
from afflux.group.store.exchange import Exchange, RendezvousError

HOSTS = ["host A", "host A", "host B"]
SETTINGS = Settings(interface=("127.0.0.1",), connect_timeout_s=2.0)
LIMIT_S = 30.0

# A step that ranks do one after the other: where it is, and for the how manieth call the failure is
# drawn.
STAGES = [
    ("memory", plans, "share_on_hosts", 1),
    ("memory, its verdict", Exchange, "parts", 1),
    ("port", _Joining, "_listen", 1),
    ("ports of others", Exchange, "parts", 3),
    ("connections", streams, "connect_mesh", 1),
    ("connections of others", Exchange, "parts", 4),
    ("networks", _Joining, "_judge", 1),
    ("worker", plans, "HostsWorker", 1),
]


class OneProcess(threading.local):
    """The mark that tells ranks apart that are threads of one process."""

    rank = -1


@dataclass
class Drawn:
    """Makes one rank fail at one stage."""

    rank: int
    error: Exception
    at: int
    late: bool
    calls: int = 0

    def around(self, own, call):
        def carried_out(*arguments, **named):
            mine = own.rank == self.rank
            self.calls += mine
            fails = mine and self.calls == self.at
            if fails and not self.late:
                raise self.error
            result = call(*arguments, **named)
            if fails:
                raise self.error
            return result

        return carried_out

    @property
    def failed(self):
        return self.calls >= self.at


@pytest.fixture
def own(monkeypatch):
    """Plant two hosts, of which one has two ranks, in this process."""
    own = OneProcess()
    monkeypatch.setattr(rendezvous, "host_identity", lambda: HOSTS[own.rank])
    return own


def outcomes(own, settings):
    """Return what each rank has got: engine and reason, or the error."""
    store = dist.HashStore()
    found: dict[int, tuple[object, str]] = {}

    def come(rank):
        own.rank = rank
        membership = Membership(store, rank, len(HOSTS), timedelta(seconds=LIMIT_S), "")
        try:
            reducer, keys = meet(membership, settings[rank])
        except Exception as error:
            found[rank] = type(error), str(error)
            return
        found[rank] = reducer.engine, reducer.topology.reason
        reducer.leave()
        keys.release()

    ranks = [threading.Thread(target=come, args=(rank,)) for rank in range(len(HOSTS))]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join(2 * LIMIT_S)
        assert not each.is_alive()
    return [found[rank] for rank in range(len(HOSTS))]


@pytest.mark.parametrize("rank", range(3))
@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage[0])
def test_one_verdict_for_all(own, monkeypatch, stage, rank):
    name, owner, method, at = stage
    # An error of its own, or that it alone has waited in vain for another rank.
    errors = OSError("drawn"), RendezvousError("drawn")
    drawn = Drawn(rank, errors[(rank + len(name)) % 2], at, late=rank % 2 == 1)
    monkeypatch.setattr(owner, method, drawn.around(own, getattr(owner, method)))
    found = outcomes(own, [SETTINGS] * 3)
    assert len({kind for kind, _ in found}) == 1, found
    assert len({reason for _, reason in found}) == 1, found
    assert found[0][0] == ("gloo" if drawn.failed else "streams")
    if drawn.failed:
        assert "drawn" in found[0][1]


def test_a_ticket_and_a_failure_that_come_between_two_looks(own, monkeypatch):
    """A rank that has looked in vain for the ticket finds both: it goes on by the ticket."""
    looked = BoundedStore.check
    looks: list[list[str]] = []

    def look(store, keys):
        if own.rank != 2 or keys != ["ticket"] or looks:
            return looked(store, keys)
        looks.append(keys)
        deadline = time.monotonic() + LIMIT_S
        while store.find("failed") is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return False

    drawn = Drawn(0, OSError("drawn"), 1, late=False)
    monkeypatch.setattr(BoundedStore, "check", look)
    monkeypatch.setattr(plans, "share_on_hosts", drawn.around(own, plans.share_on_hosts))
    found = outcomes(own, [SETTINGS] * 3)
    assert looks
    assert {engine for engine, _ in found} == {"gloo"}, found


@pytest.mark.parametrize("rank", range(3))
def test_require_is_for_all(own, monkeypatch, rank):
    """Rank 0's word counts."""
    drawn = Drawn(rank, OSError("drawn"), 1, late=True)
    monkeypatch.setattr(plans, "share_on_hosts", drawn.around(own, plans.share_on_hosts))
    insisting = replace(SETTINGS, require=True)
    for kind, text in outcomes(own, [insisting, SETTINGS, SETTINGS]):
        assert kind is RendezvousError
        assert text.startswith("AFFLUX_REQUIRE=1, but only Gloo is left: ")
        # Others may have waited for it in vain.
        assert "and there are no streams: " in text
        assert f"rank {rank}: drawn" in text
