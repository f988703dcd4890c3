"""Small checks of NCCL's plugin, each of which fails with some planted bug.

Each takes the path of the library, empty for the one that is built, and raises an AssertionError.
"""

import ctypes
import os
import signal
import tempfile
import threading
import time

import numpy as np

from afflux_drivers.aggregator.access import Access
from afflux_drivers.aggregator.engine import SoftEngine
from tests.support.drivers.served import Served
from tests.support.host import serving
from tests.support.host.aggregators import aggregator
from tests.support.host.network import network
from tests.support.nccl.node import LIBRARY, Buffer, Comm, Node, PluginError, run_nodes
from tests.support.nccl.ring import SLOT, STEPS, Ring
from tests.support.nccl.tables import HANDLE_BYTES
from tests.support.nccl.tuner import ALL_REDUCE, CHAIN, Tuner

__all__ = [
    "changing",
    "choosing",
    "comparing",
    "deregistering",
    "dying",
    "failing",
    "padding",
    "releasing",
    "rings",
    "sums",
    "transfers",
    "vanishing",
]

LIMIT_S = 20.0


def variables(library: str, url: str) -> dict[str, str]:
    return {"NCCL_NET_PLUGIN": library or LIBRARY, "AFFLUX_AGGREGATOR": url}


def buffers_of(comm: Comm, size: int = 1 << 16) -> tuple[Buffer, Buffer]:
    made = Buffer(size), Buffer(size)
    for each in made:
        comm.register(each)
    return made


def padded(node: Node) -> bool:
    node.init()
    ring = Ring(node)
    ring.all_reduce(np.full(STEPS * SLOT // 4, np.nan, np.float32), "float32", "sum")
    # The stale NaN would share a block with the valid elements.
    found = ring.all_reduce(np.ones(3, np.float32), "float32", "sum")
    before = ring.send.bytes[: STEPS * SLOT].any()
    return bool((found == node.size).all()) and not before


def padding(library: str) -> None:
    with aggregator() as url:
        assert (
            run_nodes(padded, 2, environment=variables(library, url), limit_s=LIMIT_S) == [True] * 2
        )


def summed(node: Node) -> list[float]:
    node.init()
    comm = node.form()
    send, receive = buffers_of(comm)
    found = []
    for dtype, one in (("float32", 1.0), ("bfloat16", 0x3F80)):
        send.view(dtype, 0, 9000)[:] = one
        node.gather(None)
        if node.rank == 1:
            # Until then nothing can be over.
            time.sleep(0.3)
        request = comm.iallreduce((send, 0), (receive, 0), 9000, dtype, "sum")
        assert request is not None
        comm.wait(request, LIMIT_S / 2)
        found.append(float(receive.view(dtype, 0, 9000)[8999]))
    return found


def sums(library: str) -> None:
    with aggregator() as url:
        found = run_nodes(summed, 2, environment=variables(library, url), limit_s=LIMIT_S)
    assert found == [[2.0, float(0x4000)]] * 2


def steps(node: Node) -> bool:
    node.init()
    ring = Ring(node)
    tensor = np.arange(40 * SLOT // 4, dtype=np.int32)
    return all(
        bool((ring.all_reduce(tensor, "int32", "sum") == node.size * tensor).all())
        for _ in range(4)
    )


def rings(library: str) -> None:
    with aggregator() as url:
        found = run_nodes(steps, 3, environment=variables(library, url), limit_s=60.0)
    assert found == [True] * 3


def dropped(node: Node) -> bool:
    node.init()
    comm = node.form()
    send, receive = buffers_of(comm)
    node.gather(None)
    if node.rank == 1:
        time.sleep(1.0)
        return True
    request = comm.iallreduce((send, 0), (receive, 0), 9000, "float32", "sum")
    assert request is not None
    time.sleep(0.2)
    comm.deregister(send)
    comm.deregister(receive)
    try:
        comm.test(request)
    except PluginError:
        return True
    return False


def deregistering(library: str) -> None:
    with aggregator() as url:
        assert (
            run_nodes(dropped, 2, environment=variables(library, url), limit_s=LIMIT_S)
            == [True] * 2
        )


def told(node: Node, dies: bool) -> bool:
    node.init()
    comm = node.form()
    send, receive = buffers_of(comm)
    node.gather(None)
    if node.rank == 1 and dies:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        request = comm.iallreduce((send, 0), (receive, 0), 9000, "float32", "sum")
        assert request is not None
        if node.rank == 1:
            comm.close()
            return True
        began = time.monotonic()
        while time.monotonic() < began + 3:
            assert comm.test(request) is None
            time.sleep(0.01)
    except PluginError:
        return True
    return False


def failing(library: str) -> None:
    with aggregator() as url:
        environment = variables(library, url)
        # The third node never calls, so nothing can be over.
        assert run_nodes(half_told, 3, environment=environment, limit_s=LIMIT_S) == [True] * 3


def half_told(node: Node) -> bool:
    if node.rank != 2:
        found = told(node, False)
        # Its connections stay, so they say nothing.
        node.gather(None)
        return found
    node.init()
    comm = node.form()
    node.gather(None)
    time.sleep(2.0)
    send, receive = Buffer(4096), Buffer(4096)
    try:
        comm.iallreduce((send, 0), (receive, 0), 9, "float32", "sum")
    except PluginError:
        return True
    finally:
        node.gather(None)
    return False


def dying(library: str) -> None:
    with aggregator() as url:
        environment = variables(library, url)
        found = run_nodes(told, 2, True, environment=environment, may_die=[1], limit_s=LIMIT_S)
    assert found[0]


def sent(node: Node) -> bool:
    """Send a message to oneself that goes over all streams."""
    node.init()
    net, context = node.plugin.net, ctypes.c_void_p()
    handle = ctypes.create_string_buffer(HANDLE_BYTES)
    listening = ctypes.c_void_p()
    at = ctypes.addressof(handle)
    assert net("listen", context, 0, at, ctypes.byref(listening)) == 0
    sending, receiving, device = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    while sending.value is None or receiving.value is None:
        if sending.value is None:
            net("connect", context, 0, at, ctypes.byref(sending), ctypes.byref(device))
        if receiving.value is None:
            net("accept", listening, ctypes.byref(receiving), ctypes.byref(device))
    outward, inward = Buffer(1 << 18), Buffer(1 << 18)
    outward.view("int32", 0, 1 << 16)[:] = np.arange(1 << 16)
    first, second = ctypes.c_void_p(), ctypes.c_void_p()
    net("isend", sending, outward.address, outward.size, 0, None, None, ctypes.byref(first))
    data, size, tag = ctypes.c_void_p(inward.address), ctypes.c_size_t(inward.size), ctypes.c_int()
    memory = ctypes.c_void_p()
    lists = ctypes.byref(data), ctypes.byref(size), ctypes.byref(tag), ctypes.byref(memory)
    net("irecv", receiving, 1, *lists, None, ctypes.byref(second))
    waiting = [first, second]
    while waiting:
        done, count = ctypes.c_int(), ctypes.c_int()
        assert net("test", waiting[0], ctypes.byref(done), ctypes.byref(count)) == 0
        waiting = [*waiting[1:], *([] if done.value else waiting[:1])]
    return bool((inward.bytes == outward.bytes).all())


def transfers(library: str) -> None:
    found = run_nodes(sent, 1, environment=variables(library, ""), limit_s=LIMIT_S)
    assert found == [True]


def again(node: Node) -> bool:
    """Form two communicators, one after the other, where there is room for one job."""
    node.init()
    comm = node.form()
    comm.close()
    try:
        node.form().close()
    except PluginError:
        return False
    return True


def releasing(library: str) -> None:
    served = Served(SoftEngine(jobs=1, slots=64), access=Access(peer_share=1.0))
    try:
        environment = variables(library, "udp://{}:{}".format(*served.address))
        assert run_nodes(again, 2, environment=environment, limit_s=LIMIT_S) == [True] * 2
    finally:
        served.stop()


def changed(node: Node, aggregator: int) -> bool:
    """Sum on when the aggregator ends; node 2 lags behind, as its packets are lost."""
    node.init()
    ring = Ring(node)
    tensor = np.arange(16 * SLOT // 4, dtype=np.int32)
    good = True
    # It takes longer than that.
    kill = threading.Timer(0.1, os.kill, (aggregator, signal.SIGKILL))
    for step in range(3):
        if step == 1 and node.rank == 0:
            kill.start()
        good = good and bool((ring.all_reduce(tensor, "int32", "sum") == node.size * tensor).all())
    return good


def changing(library: str) -> None:
    # Node 2 need not lag behind just then.
    for _ in range(5):
        change_once(library)


def change_once(library: str) -> None:
    process, line = serving.start("--port", "0", "--no-secret")
    try:
        url = next(word for word in line.split() if "://" in word).rstrip(",.;")
        found = run_nodes(
            changed,
            3,
            process.pid,
            environment={**variables(library, url), "AFFLUX_NCCL_JOBS": "8"},
            own={2: {"AFFLUX_TEST_LOSS": "0.3", "AFFLUX_TEST_SEED": "3"}},
            limit_s=LIMIT_S,
        )
        assert found == [True] * 3
    finally:
        process.kill()
        serving.finish(process)


def without_its_host(node: Node) -> tuple[bool, float, list[str]]:
    """Sum, and sum on when the aggregator's host has vanished; say how long that took."""
    node.init()
    comm = node.form()
    # Too much for the nodes to sum without the aggregator.
    ones = np.ones(30_000, np.float32)
    buffers = buffers_of(comm, ones.nbytes)

    def sums_are_right() -> bool:
        found = comm.all_reduce(ones, "float32", "sum", buffers)
        return bool((found == node.size).all())

    good = sums_are_right()
    node.gather(None)
    # What is sent from now on nobody acknowledges.
    time.sleep(1)
    began = time.monotonic()
    for _ in range(8):
        good = sums_are_right() and good
    took_s = time.monotonic() - began
    comm.close()
    return good, took_s, node.warnings()


def vanishing(library: str, kind: str = "streams") -> None:
    with network(hosts=3) as made:
        where = made.aggregator
        process, line = serving.start(engine=(kind,), place=where)
        try:
            url = next(word for word in line.split() if "://" in word).rstrip(",.;")
            environment = {**variables(library, url), "AFFLUX_PEER_TIMEOUT": "2"}
            found = run_nodes(
                without_its_host, 3, environment=environment, hosts=made.hosts, limit_s=60,
                between=lambda: made.unplug(where),
            )  # fmt: skip
        finally:
            process.kill()
            serving.finish(process)
    for good, took_s, warnings in found:
        assert good
        assert [each.partition("; ")[2] for each in warnings] == [
            "the nodes go on over streams to each other"
        ]
        # Where data are on their way, TCP keepalive does not run: the kernel has its own patience.
        assert took_s < 20


def chosen(node: Node) -> list[float]:
    node.init()
    node.form().close()
    tuner = Tuner(6, node._logger, 3)
    found = [tuner.costs(ALL_REDUCE, size)[CHAIN] for size in (8, 64, 128)]
    tuner.end()
    return found


def choosing(library: str) -> None:
    with tempfile.NamedTemporaryFile("w") as table:
        # Of three nodes both neighbours count.
        table.write("mesh 10 2 0:64\nmesh 10 4 64:128\nmesh 10 8 none\nmesh 25 2 none\n")
        table.flush()
        environment = variables(library, "streams://") | {"AFFLUX_NCCL_TABLE": table.name}
        environment["AFFLUX_INTERFACE"] = "lo"
        found = run_nodes(chosen, 2, environment=environment, limit_s=LIMIT_S)
    assert found == [[-1.0, 0.0, -1.0]] * 2


def refused(node: Node) -> str:
    node.init()
    try:
        node.form().close()
    except PluginError as error:
        return str(error)
    return ""


def comparing(library: str) -> None:
    own = {rank: {"AFFLUX_NCCL_BYTES": f"0:{rank + 1}"} for rank in range(2)}
    environment = variables(library, "streams://")
    found = run_nodes(refused, 2, environment=environment, own=own, limit_s=LIMIT_S)
    assert all("AFFLUX_NCCL_BYTES" in text for text in found)
