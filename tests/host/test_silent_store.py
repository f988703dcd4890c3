"""Waits under a store that does not answer: its process is stopped, as if its host had gone."""

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from afflux.group.forming.rendezvous import meet
from afflux.group.settings.aggregator_url import AggregatorUrl
from afflux.group.settings.membership import Membership
from afflux.group.settings.variables import Settings
from afflux.group.store.bounded import Asker, BoundedStore, StoreSilent
from afflux.group.store.exchange import Exchange, RendezvousError
from afflux.group_statistics import group_of
from tests.support.host.ranks import caught, run_ranks, values

# Where each of these waits has a limit of two or three seconds.
ENOUGH_S = 25.0


def keep_store(ports: Connection) -> None:
    store = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    ports.send(store.port)
    with contextlib.suppress(EOFError):
        ports.recv()


class StoreProcess:
    """A TCPStore in a process of its own, which can be stopped."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("forkserver")
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=keep_store, args=(theirs,))
        self._process.start()
        self.port = self._ours.recv()
        assert self._process.pid is not None
        self.pid = self._process.pid
        self.name = f"the store at 127.0.0.1:{self.port}"

    def connect(self) -> TCPStore:
        return TCPStore("127.0.0.1", self.port, is_master=False)

    def stop(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        # On a busy machine its threads answer for a while yet.
        threads = list(Path(f"/proc/{self.pid}/task").iterdir())
        deadline = time.monotonic() + ENOUGH_S
        while not all("State:\tT" in (each / "status").read_text() for each in threads):
            assert time.monotonic() < deadline, "not stopped"
            time.sleep(0.01)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def end(self) -> None:
        self._process.kill()
        self._process.join()
        self._ours.close()


@pytest.fixture
def process():
    store = StoreProcess()
    yield store
    # A rank that still waits has its answer, and torch nothing to complain of.
    store.go_on()
    time.sleep(0.2)
    store.end()


def test_calls_end_and_what_was_written_is_written_later(process):
    store = BoundedStore(process.connect(), Asker())
    store.set("first", "1")
    assert store.get("first") == b"1"
    assert store.find("second") is None
    assert store.silence == ""
    process.stop()
    started = time.monotonic()
    with pytest.raises(StoreSilent, match=f"^{process.name} has not answered for "):
        store.until(started + 0.7).check(["first"])
    assert store.silence == f"{process.name} does not answer"
    for call in (lambda: store.find("first"), lambda: store.set("second", "2")):
        with pytest.raises(StoreSilent, match=f"^{process.name} "):
            call()
    assert time.monotonic() - started < ENOUGH_S
    process.go_on()
    late = store.until(time.monotonic() + ENOUGH_S)
    assert late.get("second") == b"2"
    assert late.compare_set("second", "2", "3") == b"3"
    assert store.silence == ""


def stopped_when(process, wait):
    """Stop the store while `wait` waits; return the error with which that ends."""
    ended = []
    waiting = threading.Thread(target=lambda: ended.append(caught(wait)), daemon=True)
    waiting.start()
    time.sleep(0.5)
    process.stop()
    waiting.join(ENOUGH_S)
    assert ended, "still waiting"
    return ended[0]


@pytest.mark.parametrize(
    ("url", "rank"),
    [
        ("auto", 0),
        ("soft", 1),
        pytest.param("auto", 1, marks=pytest.mark.long),
        pytest.param("soft", 0, marks=pytest.mark.long),
    ],
)
def test_a_rank_that_waits_for_others_to_come(process, rank, url):
    membership = Membership(process.connect(), rank, 3, timedelta(seconds=2), "")
    text, kind, seconds = stopped_when(
        process, lambda: meet(membership, Settings(AggregatorUrl(url)))
    )
    assert kind == "RendezvousError"
    assert f"rank {rank} of 3 waited for" in text
    assert process.name in text
    assert seconds < ENOUGH_S


def test_a_rank_that_comes_too_late_to_connect(process):
    store = process.connect()
    process.stop()
    started = time.monotonic()
    with pytest.raises(RendezvousError, match=process.name):
        meet(Membership(store, 0, 2, timedelta(seconds=1), ""), Settings())
    assert time.monotonic() - started < ENOUGH_S


def test_a_rank_that_waits_for_a_step(process):
    exchange = Exchange(process.connect(), 0, 3, 2.0)
    text, kind, seconds = stopped_when(process, lambda: exchange.join(lambda: None))
    assert kind == "RendezvousError"
    assert "rank 0 of 3 waited for ranks 0, 1, 2 to join the aggregator" in text
    assert process.name in text
    assert seconds < ENOUGH_S


def wait_for_an_idle_rank(rank, size, port, pid):
    # Gloo may still be connecting at the other rank.
    dist.barrier()
    dist.destroy_process_group()
    dist.init_process_group(
        "afflux",
        store=TCPStore("127.0.0.1", port, is_master=False),
        rank=rank,
        world_size=size,
        # A machine that compiles beside these tests may take long to bring both ranks here.
        timeout=timedelta(seconds=60),
    )
    dist.all_reduce(torch.ones(10))
    group_of(None).set_timeout(timedelta(seconds=3))
    if rank == 1:
        time.sleep(1.0)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(6.0)
        return None
    error = caught(lambda: dist.all_reduce(torch.ones(10)))
    closing = caught(dist.destroy_process_group)
    return error, closing[2]


@pytest.mark.parametrize("url", [pytest.param("auto", marks=pytest.mark.long), "soft://"])
def test_an_operation_that_waits_for_a_rank(process, url):
    outcomes = run_ranks(
        wait_for_an_idle_rank,
        2,
        process.port,
        process.pid,
        environment={"AFFLUX_AGGREGATOR": url},
        limit_s=90.0,
    )
    (text, kind, seconds), closing_s = values(outcomes)[0]
    assert kind == "RanksMissing"
    assert text.startswith("all_reduce sum float32 (10,) (operation 2): ")
    assert "rank(s) 1" in text
    assert f"{process.name} does not answer" in text
    assert 2 < seconds < ENOUGH_S
    assert closing_s < ENOUGH_S
