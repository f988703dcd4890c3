"""Requests as NCCL's proxy makes them: rings of eight steps, padded chunks, communicators."""

import contextlib
import mmap
import os
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from afflux_drivers.aggregator.access import Access
from afflux_drivers.aggregator.engine import SoftEngine
from afflux_drivers.aggregator.server import AggregatorServer
from afflux_drivers.control.client import read_counters
from afflux_sim.golden.reductions import all_reduce
from tests.support.golden_tensors import DTYPES, bits_of, draw
from tests.support.host.aggregators import aggregator
from tests.support.nccl.node import RED_OPS, Buffer, Node, run_nodes
from tests.support.nccl.ring import CHUNK, SLOT, STEPS, Ring


def poison(ring: Ring, kind: str) -> None:
    """Leave bytes of another collective in all slots of the ring, as a padded chunk finds them."""
    count = STEPS * SLOT
    if kind == "nan":
        ring.all_reduce(np.full(count // 4, np.nan, np.float32), "float32", "sum")
    else:
        whole = np.full(count // np.dtype(np.int32).itemsize, 0x7F7F7F7F, np.int32)
        ring.all_reduce(whole.view(np.float16 if kind == "float16" else np.int32), kind, "max")


def drawn(rank: int, dtype: str, count: int) -> npt.NDArray[Any]:
    return draw(np.random.default_rng((rank, DTYPES.index(dtype))), "mixed", dtype, count)


SHORT = 70
"""Elements: more than a block, and far less than a chunk."""


def padded(node: Node) -> dict[tuple[str, str, str], npt.NDArray[Any]]:
    node.init()
    ring = Ring(node)
    found = {}
    for stale in ("nan", "int32", "float16"):
        for dtype in DTYPES:
            for red_op in RED_OPS:
                poison(ring, stale)
                tensor = drawn(node.rank, dtype, SHORT)
                found[stale, dtype, red_op] = ring.all_reduce(tensor, dtype, red_op)
    ring.close()
    return found


def test_stale_bytes_behind_the_valid_ones_change_nothing():
    with aggregator() as url:
        found = run_nodes(padded, 2, environment={"AFFLUX_AGGREGATOR": url})
    for stale, dtype, red_op in found[0]:
        tensors = [drawn(rank, dtype, SHORT) for rank in range(2)]
        expected = bits_of(all_reduce(tensors, dtype, red_op), dtype)
        for results in found:
            assert (bits_of(results[stale, dtype, red_op], dtype) == expected).all(), (
                stale,
                dtype,
                red_op,
            )


def short_calls(node: Node, calls: int) -> int:
    """Return how many blocks the aggregator has got from all nodes for calls of eight bytes."""
    node.init()
    ring = Ring(node)
    poison(ring, "nan")
    # All slots have been used by then, so none has stale bytes in it any more.
    before = blocks_accepted(node)
    for _ in range(calls):
        ring.all_reduce(np.array([1.5, 2.5], np.float32), "float32", "sum")
    after = blocks_accepted(node)
    ring.close()
    return after - before


def blocks_accepted(node: Node) -> int:
    node.gather(None)
    host, port = os.environ["AFFLUX_AGGREGATOR"].removeprefix("udp://").split(":")
    found = read_counters((host, int(port)), 5.0)["blocks_accepted"]
    node.gather(None)
    return found


def test_a_padded_call_of_eight_bytes_sends_one_block():
    with aggregator() as url:
        found = run_nodes(short_calls, 2, 12, environment={"AFFLUX_AGGREGATOR": url})
    # Beside the one in which the opening round has the nodes' fingerprints.
    assert found == [2 * 12 * (1 + 1)] * 2


def rings(node: Node, count: int, backwards: bool) -> list[npt.NDArray[Any]]:
    node.init()
    ring = Ring(node)
    tensor = np.random.default_rng(node.rank).integers(-(2**31), 2**31, count).astype(np.int32)
    found = [ring.all_reduce(tensor, "int32", "sum", backwards=backwards) for _ in range(3)]
    ring.close()
    return found


def test_rings_of_eight_steps_tested_in_any_order():
    # Twenty steps and a half: the last one has a short chunk.
    count = 20 * SLOT // 4 + 5 * CHUNK // 8
    with aggregator() as url:
        environment = {"AFFLUX_AGGREGATOR": url}
        found = run_nodes(rings, 3, count, True, environment=environment)
    tensors = [
        np.random.default_rng(rank).integers(-(2**31), 2**31, count).astype(np.int32)
        for rank in range(3)
    ]
    expected = np.sum(tensors, axis=0, dtype=np.int32)
    assert all((each == expected).all() for results in found for each in results)


@contextlib.contextmanager
def serving(server: AggregatorServer) -> Iterator[str]:
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield "udp://{}:{}".format(*server.address)
    finally:
        server.stop()
        thread.join()


def many(node: Node, comms: int) -> list[int]:
    node.init()
    made = [node.form() for _ in range(comms)]
    pages = mmap.PAGESIZE
    buffers = [(Buffer(pages), Buffer(pages)) for _ in made]
    requests = []
    for number, (comm, (send, receive)) in enumerate(zip(made, buffers, strict=True)):
        comm.register(send)
        comm.register(receive)
        send.view("int32", 0, 100)[:] = node.rank + number
        request = comm.iallreduce((send, 0), (receive, 0), 100, "int32", "sum")
        assert request is not None
        requests.append(request)
    for comm, request in reversed(list(zip(made, requests, strict=True))):
        comm.wait(request)
    sums = [int(receive.view("int32", 0, 100)[99]) for _, receive in buffers]
    for comm in made:
        comm.close()
    return sums


def test_many_communicators():
    engine = SoftEngine(jobs=64, slots=512)
    server = AggregatorServer(engine, access=Access(peer_share=1.0))
    with serving(server) as url:
        # A slot each: the engine has 512 in all, and a peer may have half of the rest.
        environment = {"AFFLUX_AGGREGATOR": url, "AFFLUX_SLOTS": "4", "AFFLUX_NCCL_JOBS": "1"}
        found = run_nodes(many, 2, 64, environment=environment)
    assert found == [[2 * number + 1 for number in range(64)]] * 2
