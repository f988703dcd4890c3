"""Ranks that come late or not at all, on every kind of store."""

import threading
import time
from datetime import timedelta

import pytest
import torch.distributed as dist

from afflux.group.aggregator_url import AggregatorUrl
from afflux.group.exchange import Exchange, Introduction, RendezvousError, host_identity


def file_store(folder):
    return dist.FileStore(str(folder / "store"), 3)


def tcp_store(_folder):
    return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def hash_store(_folder):
    return dist.HashStore()


STORES = [file_store, tcp_store, hash_store]
ME = Introduction(AggregatorUrl("soft"), host_identity(), 16)


@pytest.mark.parametrize("make", STORES)
def test_who_is_missing_is_named(make, tmp_path):
    store = make(tmp_path)
    Exchange(store, 2, 3, 0.1).introduce(ME)
    exchange = Exchange(store, 0, 3, 1.5)
    exchange.introduce(ME)
    started = time.monotonic()
    with pytest.raises(RendezvousError, match=r"waited 1.5 s for rank 1 to come to the new group"):
        exchange.introductions()
    with pytest.raises(RendezvousError, match=r"rank 0 to get a job"):
        Exchange(store, 1, 3, 0.5).ticket(0.5)
    with pytest.raises(RendezvousError, match=r"ranks 1, 2 to join the aggregator"):
        Exchange(store, 0, 3, 0.5).join(lambda: None)
    assert time.monotonic() - started < 8


@pytest.mark.parametrize("make", STORES)
def test_late_is_not_never(make, tmp_path):
    store = make(tmp_path)
    other = store.clone() if make is not file_store else file_store(tmp_path)
    first, second = Exchange(store, 0, 2, 20), Exchange(other, 1, 2, 20)
    first.introduce(ME)

    def come_late():
        time.sleep(2.3)
        second.introduce(ME)

    thread = threading.Thread(target=come_late)
    thread.start()
    assert first.introductions() == [ME, ME]
    thread.join()


def test_other_aggregators_are_an_error():
    store = dist.HashStore()
    other = AggregatorUrl.parse("udp://a:1")
    Exchange(store, 1, 2, 1).introduce(Introduction(other, host_identity(), 16))
    exchange = Exchange(store, 0, 2, 1)
    exchange.introduce(ME)
    with pytest.raises(RendezvousError, match=r"rank 0: soft://; rank 1: udp://a:1"):
        exchange.introductions()


def test_a_dead_store_is_an_error_at_once(tmp_path):
    master = tcp_store(tmp_path)
    client = dist.TCPStore("127.0.0.1", master.port, timeout=timedelta(seconds=5))
    del master
    started = time.monotonic()
    with pytest.raises(RuntimeError):
        Exchange(client, 1, 2, 20).ticket(0)
    assert time.monotonic() - started < 10
