"""A path that carries short packets only, and does not say so."""

import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from afflux_drivers.aggregator.engine import SoftEngine
from afflux_drivers.collective import Reduction
from afflux_drivers.control.client import create_job
from afflux_drivers.errors import PacketTooLong
from afflux_hdl.contract import wire
from tests.support.drivers.ranks import Ranks
from tests.support.drivers.served import Served


@contextmanager
def relay(aggregator: tuple[str, int], longest: int) -> Iterator[int]:
    """Pass one worker's packets on, but for longer ones; yield the port that it sends to."""
    stopped = threading.Event()
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as near,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as far,
    ):
        near.bind(("127.0.0.1", 0))
        far.connect(aggregator)

        def run() -> None:
            worker = ("127.0.0.1", 9)
            while not stopped.is_set():
                readable, _, _ = select.select([near, far], [], [], 0.05)
                if near in readable:
                    packet, worker = near.recvfrom(9000)
                    if len(packet) <= longest:
                        far.send(packet)
                if far in readable:
                    near.sendto(far.recv(9000), worker)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield near.getsockname()[1]
        finally:
            stopped.set()
            thread.join()


def test_packets_that_never_arrive_are_a_clear_error(no_threads_left):
    served = Served(SoftEngine())
    try:
        lease = create_job(served.address, 1, 16, 4, 5.0)
        short, long = np.ones(64, np.int32), np.ones(100_000, np.int32)
        with (
            relay(served.address, 1472) as port,
            Ranks(replace(lease.ticket, port=port)) as ranks,
        ):
            began = time.monotonic()
            (result,) = ranks.all_reduce([short], wire.Dtype.INT32, Reduction.SUM)
            assert (result == short).all()
            (error,) = ranks.all_reduce([long], wire.Dtype.INT32, Reduction.SUM)
            with pytest.raises(PacketTooLong, match=r"4182 bytes .* AFFLUX_LANES to 5"):
                raise error
            # Long before the operation's timeout of 30 s.
            assert time.monotonic() - began < 15
        lease.close()
    finally:
        served.stop()
