"""A worker written from `docs/protocol.md` alone shares a job with a rank of Afflux's own.

The stranger's part is the golden worker over a plain socket, and section 10.4 typed from the page.
"""

import json
import socket
import threading
from collections.abc import Iterator
from datetime import timedelta

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store

from afflux.group.call.collectives import Asked
from afflux.group.forming.rendezvous import meet
from afflux.group.settings.aggregator_url import AggregatorUrl
from afflux.group.settings.membership import Membership
from afflux.group.settings.variables import Settings
from afflux.group.store.notices import Notices
from afflux_drivers.aggregator.engine import SoftEngine
from afflux_drivers.frames import frame_header
from afflux_sim.golden.frames import Endpoint
from afflux_sim.golden.worker import GoldenWorker
from tests.support.drivers.served import Served

HEADERS = 42
MACS = bytes.fromhex("020000000001"), bytes.fromhex("020000000002")
TIMEOUT = timedelta(seconds=20)
OTHER_HOST = "a host of its own"


@pytest.fixture
def served() -> Iterator[Served]:
    there = Served(SoftEngine())
    yield there
    there.stop()


class Stranger:
    """Rank 1 of two: knows the store's keys and the packets, and nothing of Afflux's code."""

    def __init__(self, store: Store, url: str) -> None:
        self._store = store
        self._url = url
        self._prefix = "afflux/0"
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._udp.settimeout(10)

    def get(self, key: str) -> str:
        self._store.wait([f"{self._prefix}/{key}"], TIMEOUT)
        return self._store.get(f"{self._prefix}/{key}").decode()

    def set(self, key: str, text: str) -> None:
        self._store.set(f"{self._prefix}/{key}", text)

    def join(self) -> None:
        """Take steps 1 to 6."""
        introduction = {"url": self._url, "host": OTHER_HOST, "lanes": 4, "nonce": "a stranger"}
        self.set("rank/1", json.dumps(introduction))
        roll = json.loads(self.get("ticket"))
        assert "a stranger" in roll["roll"]
        self._prefix = f"afflux/{roll['life']}"
        self.set("heard/1", "1")
        published = json.loads(json.loads(self.get("ticket"))["ticket"])
        (ticket,) = map(json.loads, json.loads(published["job"]))
        assert (ticket["workers"], ticket["lanes"], ticket["members"]) == (2, 4, [])
        self._udp.connect((ticket["host"], ticket["port"]))
        own, there = self._udp.getsockname(), self._udp.getpeername()
        self._worker = GoldenWorker(
            endpoint=Endpoint(MACS[0], *own),
            engine=Endpoint(MACS[1], *there),
            job=ticket["job"],
            key=int(ticket["key"], 16),
            round=ticket["round"],
            worker=1,
            workers=ticket["workers"],
            lanes=ticket["lanes"],
            slots=ticket["slots"],
        )
        self._udp.send(self._worker.join()[HEADERS:])
        self._receive()
        told = tuple(ticket[name] for name in ("workers", "lanes", "slots", "credit"))
        assert self._worker.joined is not None
        assert self._worker.joined[:4] == told
        self.set("joined/1", "ok")
        assert self.get("joined/0") == "ok"
        self.set("finding/1", json.dumps({"error": "", "stays": True, "waited": False}))
        assert json.loads(self.get("verdict"))["error"] == ""

    def reduce(self, tensor: np.ndarray, dtype: str, reduction: str) -> np.ndarray:
        """Call one operation, over a network that loses nothing."""
        self._worker.start(tensor, dtype, reduction)
        while True:
            for frame in self._worker.frames_to_send():
                self._udp.send(frame[HEADERS:])
            if self._worker.done:
                return self._worker.result()
            self._receive()

    def leave(self) -> None:
        """Take step 9, after rank 0's step 8."""
        assert self.get("notice") == "1"
        assert self.get("closing").isdecimal()
        self.set("closed/1", "1")
        self._udp.close()

    def _receive(self) -> None:
        datagram = self._udp.recv(65536)
        ends = [
            int.from_bytes(socket.inet_aton(host), "big")
            for host, _ in (self._udp.getpeername(), self._udp.getsockname())
        ]
        ports = self._udp.getpeername()[1], self._udp.getsockname()[1]
        header = frame_header(MACS, (ends[0], ends[1]), ports, len(datagram))
        self._worker.receive(header + datagram)


def test_a_stranger_shares_a_job_with_a_rank(served):
    store = dist.HashStore()
    host, port = served.address
    url = f"udp://{host}:{port}"
    stranger = Stranger(store, url)
    tensors = [np.linspace(-1, 1, 500, dtype=np.float32) * (w + 1) for w in range(2)]
    results: list[np.ndarray] = []
    failures: list[BaseException] = []

    def play_the_stranger() -> None:
        try:
            stranger.join()
            results.append(stranger.reduce(tensors[1], "float32", "sum"))
            # An agreement on the text "barrier".
            stranger.reduce(np.zeros((0, 3780049576), np.int32), "int32", "sum")
            results.append(stranger.reduce(tensors[1][:20], "float32", "avg"))
            stranger.leave()
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=play_the_stranger)
    thread.start()
    try:
        settings = Settings(AggregatorUrl.parse(url))
        reducer, keys = meet(Membership(store, 0, 2, TIMEOUT, ""), settings)
        for count, reduction, number in ((500, "sum", 3780049576), (20, "avg", 0)):
            tensor = torch.from_numpy(tensors[0][:count].copy())
            asked = Asked("all_reduce", torch.float32, tuple(tensor.shape), reduction)
            reducer.run(reducer.plan(asked), [], [tensor], 20, lambda: None)
            if number:
                reducer.agree(number, 20, lambda: None)
            results.append(tensor.numpy())
        notices = Notices(keys, 0, 2)
        notices.begin_close(3)
        assert notices.unconfirmed(20) == []
        reducer.leave()
        keys.release()
    finally:
        thread.join(20)
    assert failures == []
    by_size = sorted(results, key=len)
    assert [len(each) for each in by_size] == [20, 20, 500, 500]
    assert by_size[0].tobytes() == by_size[1].tobytes()
    assert by_size[2].tobytes() == by_size[3].tobytes()
    assert np.allclose(by_size[2], tensors[0] + tensors[1], atol=1e-6)
