"""Ranks that come late, not at all or again, on every kind of store."""

import json
import threading
import time
from datetime import timedelta

import pytest
import torch.distributed as dist

from afflux.group.forming.rendezvous import decline, meet
from afflux.group.settings.aggregator_url import AggregatorUrl
from afflux.group.settings.membership import Membership
from afflux.group.settings.variables import Settings
from afflux.group.store.exchange import Exchange, RendezvousError
from afflux.group.store.introduction import Introduction, check_agreement, host_identity
from afflux.group.store.roll_call import RollCall

SHM = Settings(AggregatorUrl("shm"))
TIMEOUT = timedelta(seconds=10)


def file_store(folder):
    return dist.FileStore(str(folder / "store"), 3)


def tcp_store(_folder):
    return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def hash_store(_folder):
    return dist.HashStore()


STORES = [file_store, tcp_store, hash_store]
ME = Introduction(AggregatorUrl("soft"), host_identity(), 16)


def own_connections(store, count):
    """Return a connection for each of several threads, as ranks have."""
    others = range(1, count)
    return [store, *(store.clone() if isinstance(store, dist.TCPStore) else store for _ in others)]


class Ranks:
    """Ranks as threads: each runs `step(rank)`, and `ended` has what it returned or raised."""

    def __init__(self, ranks, step):
        self.ended = {}
        self._threads = {
            rank: threading.Thread(target=self._run, args=(rank, step)) for rank in ranks
        }
        for thread in self._threads.values():
            thread.start()

    def _run(self, rank, step):
        try:
            self.ended[rank] = step(rank)
        except Exception as error:
            self.ended[rank] = error

    def join(self):
        for thread in self._threads.values():
            thread.join(30)
        return [self.ended[rank] for rank in sorted(self._threads)]


@pytest.mark.parametrize("make", STORES)
def test_who_is_missing_is_named(make, tmp_path):
    stores = own_connections(make(tmp_path), 3)
    started = time.monotonic()
    limit = timedelta(seconds=1.5)
    ranks = Ranks([0, 2], lambda rank: meet(Membership(stores[rank], rank, 3, limit, ""), SHM))
    for error in ranks.join():
        assert isinstance(error, RendezvousError)
        assert "Timed out waiting 1500ms (timeout 1.5 s): rank " in str(error)
        assert "of 3 waited for rank 1 to come to the new group" in str(error)
    with pytest.raises(RendezvousError, match=r"rank 0 to get a job"):
        Exchange(stores[1], 1, 3, 0.5).ticket(0.5)
    with pytest.raises(RendezvousError, match=r"ranks 1, 2 to join the aggregator"):
        # Of another incarnation: in the first one a rank has failed.
        Exchange(dist.PrefixStore("other", stores[1]), 0, 3, 0.5).join(lambda: None)
    assert time.monotonic() - started < 8


@pytest.mark.parametrize("make", STORES)
def test_late_is_not_never(make, tmp_path):
    stores = own_connections(make(tmp_path), 2)

    def come(rank):
        time.sleep(2.3 * rank)
        reducer, keys = meet(Membership(stores[rank], rank, 2, TIMEOUT, ""), SHM)
        reducer.leave()
        keys.release()
        return reducer.engine, keys.prefix

    first, second = Ranks([0, 1], come).join()
    assert first[0] == "shm"
    assert first == second


@pytest.mark.parametrize(
    "make", [file_store, tcp_store, pytest.param(hash_store, marks=pytest.mark.long)]
)
def test_every_incarnation_of_a_group_is_its_own(make, tmp_path):
    """Ranks find all keys of earlier lives: one that was made, two that were not."""
    stores = own_connections(make(tmp_path), 2)

    def come(rank, late=0):
        time.sleep(0.3 * (rank == late))
        reducer, keys = meet(Membership(stores[rank], rank, 2, TIMEOUT, ""), settings)
        lives.append(keys.prefix)
        reducer.leave()
        keys.release()
        return reducer.engine

    lives: list[str] = []
    for settings in (SHM, Settings()):
        for late in (0, 1):
            assert Ranks([0, 1], lambda rank, late=late: come(rank, late)).join() == ["shm"] * 2
        # Alone, and then gone without a trace but in the store.
        with pytest.raises(RendezvousError, match=r"for rank 1 to"):
            meet(Membership(stores[0], 0, 2, timedelta(seconds=0.3), ""), settings)
        with pytest.raises(RendezvousError, match=r"for rank 0 to"):
            meet(Membership(stores[1], 1, 2, timedelta(seconds=0.3), ""), settings)
        decline(Membership(stores[1], 1, 2, timedelta(seconds=0.3), ""), "a bad setting")
    assert Ranks([0, 1], come).join() == ["shm"] * 2
    assert len(lives) == 10
    assert len(set(lives)) == 5


def test_the_roll_is_called_again_for_who_comes_again():
    store = dist.HashStore()
    gone = RollCall(store, 1, 2, 10)
    gone.introduce(Introduction(AggregatorUrl("soft"), "its last host", 3))
    first = RollCall(store, 0, 2, 10)
    first.introduce(ME)
    keys = first.keys()
    calling = Ranks([0], lambda _: first.call_roll(keys))
    while "roll" not in json.loads(store.get("afflux/0/ticket")):
        time.sleep(0.01)
    again = RollCall(store, 1, 2, 10)
    again.introduce(ME)
    assert "roll" in again.next_ticket()
    assert again.incarnation == first.incarnation
    theirs = again.keys()
    again.confirm(theirs)
    assert calling.join() == [[ME, ME]]
    keys.release()
    theirs.release()


def test_other_aggregators_are_an_error():
    store = dist.HashStore()
    settings = [Settings(AggregatorUrl.parse(url)) for url in ("shm://", "auto")]

    def join(rank):
        return meet(Membership(store, rank, 2, TIMEOUT, ""), settings[rank])

    for error in Ranks([0, 1], join).join():
        assert "the ranks disagree on AFFLUX_AGGREGATOR: rank 0: shm://; rank 1: auto" in str(error)
    other = AggregatorUrl.parse("udp://a:1")
    with pytest.raises(RendezvousError, match=r"rank 0: soft://; rank 1: udp://a:1"):
        check_agreement([ME, Introduction(other, host_identity(), 16)])


def test_who_cannot_take_part_is_named_at_every_rank():
    store = dist.HashStore()

    def come(rank):
        if rank == 2:
            decline(Membership(store, 2, 3, TIMEOUT, ""), "a bad setting")
            return None
        return meet(Membership(store, rank, 3, TIMEOUT, ""), SHM)

    started = time.monotonic()
    first, second, third = Ranks([0, 1, 2], come).join()
    assert str(first) == str(second) == "rank 2: a bad setting"
    assert third is None
    assert time.monotonic() - started < 4


def test_a_dead_store_is_an_error_at_once(tmp_path):
    master = tcp_store(tmp_path)
    client = dist.TCPStore("127.0.0.1", master.port, timeout=timedelta(seconds=5))
    del master
    started = time.monotonic()
    with pytest.raises(RuntimeError):
        Exchange(client, 1, 2, 20).ticket(0)
    assert time.monotonic() - started < 10
