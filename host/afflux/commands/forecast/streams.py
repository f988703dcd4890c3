"""The cost of a byte over streams, at ranks that have a connection on the loopback interface."""

import socket
from collections.abc import Callable
from contextlib import ExitStack
from statistics import median

import numpy as np
from numpy.typing import NDArray

from afflux.commands.forecast.ranks import RANKS, TIMEOUT_S, Rank, at_once
from afflux_drivers.collective import Reduction
from afflux_drivers.collectives.call import GroupCall
from afflux_drivers.sockets import set_up_tcp
from afflux_drivers.streams.worker import StreamsWorker
from afflux_hdl.contract import wire

__all__ = ["PAYLOAD_SHARE", "measure_streams"]

PAYLOAD_SHARE = (1500 - 52) / (1500 + 38)
"""The share of a port's bits that a stream carries, in packets of 1,500 bytes: without the headers
of IPv4 and TCP, and those of Ethernet with preamble, check sequence and gap."""


def measure_streams(tensor_bytes: int, repeats: int) -> float:
    """All-reduce a dense tensor of float32 in place, as often as asked for and once before.

    Each of two ranks sums a half, if the tensor is larger than one for a single hop: more ranks add
    as many elements for a byte that they send.

    Args:
        tensor_bytes: Size of each rank's tensor.
        repeats: Calls; the median is taken.

    Returns:
        Seconds of a rank's processor time for a byte that it sends and one that it receives.

    Raises:
        AffluxError: It did not work, or the sums were wrong.
        OSError: There can be no such sockets.
    """
    count = max(1, tensor_bytes // 4)
    call = GroupCall.of(wire.Dtype.FLOAT32, Reduction.SUM, (count,))
    with ExitStack() as held:
        lower, higher = _connected()
        workers = [StreamsWorker(0, [[None, lower]]), StreamsWorker(1, [[higher, None]])]
        for worker in workers:
            held.callback(worker.close)
        ranks = [Rank(_all_reduce(worker, call), count) for worker in workers]
        at_once([rank.call for rank in ranks])
        samples = []
        for _ in range(repeats):
            at_once([rank.call for rank in ranks])
            samples.append(sum(rank.cpu_s for rank in ranks) / RANKS / ranks[0].nbytes)
        for rank in ranks:
            rank.check(calls=repeats + 1)
    return median(samples)


def _all_reduce(worker: StreamsWorker, call: GroupCall) -> Callable[[NDArray[np.float32]], None]:
    def all_reduce(tensor: NDArray[np.float32]) -> None:
        worker.run((), tensor.ctypes.data, call, TIMEOUT_S, lambda: None)

    return all_reduce


def _connected() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(TIMEOUT_S)
        connecting = socket.create_connection(listener.getsockname(), TIMEOUT_S)
        accepted = listener.accept()[0]
    for each in (connecting, accepted):
        set_up_tcp(each)
    return connecting, accepted
