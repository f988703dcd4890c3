"""Trees of C++ engines: frame by frame those of golden engines, and the right sums."""

import random
import socket
from collections.abc import Sequence
from contextlib import closing
from itertools import cycle
from typing import Self

import numpy as np
import pytest

from afflux_drivers.aggregator.engine import SoftEngine
from afflux_drivers.control.client import create_job
from afflux_sim.golden.engine import GoldenEngine
from afflux_sim.golden.frames import (
    DATA,
    HEADER_AT,
    JOIN,
    JOINED,
    NUMBER_SUM,
    RESULT,
    Packet,
    look_ahead,
    parse_packet,
)
from afflux_sim.golden.merge import block_of_elements
from afflux_sim.golden.reductions import reduce_numbers
from tests.scenarios.director import Build
from tests.scenarios.golden_device import GoldenDevice
from tests.scenarios.tree_network import Aggregator, Links, TreeNetwork
from tests.support.drivers.built_engine import BuiltEngine, build
from tests.support.drivers.built_worker import CAUGHT
from tests.support.drivers.served import Served
from tests.support.golden_tensors import BITS, KINDS, bits_of, draw, reductions
from tests.support.planting import Bug, first_now

BUILD: Build = {"workers": 8, "lanes": 3, "jobs": 2, "slots": 4}
KIND_LINKS = Links()
UNKIND_LINKS = Links(loss=0.1, duplication=0.1)
FLOATS = ("float32", "float16", "bfloat16")
OPERATIONS = [(dtype, reduction) for dtype in FLOATS for reduction in reductions(dtype)]
WIDTHS = (40, 48, 64)
# Of tensors whose sums doubles hold, so that each engine has one result to give.
EXACT_KINDS = [kind for kind in KINDS if kind != "mixed"]

LEAF = Aggregator(2)
TREES = {
    "three levels": Aggregator(children=(Aggregator(children=(LEAF, LEAF)), Aggregator(1))),
    "workers beside children": Aggregator(1, (Aggregator(1, (LEAF,)), Aggregator(3))),
    "hosts below a leaf": Aggregator(1, (Aggregator(2, worker_ranks=2), Aggregator(1))),
}


class Soft:
    """A C++ engine, which takes frames at no pace."""

    def __init__(self, partial_bits: int) -> None:
        self.engine: SoftEngine | BuiltEngine = SoftEngine(**BUILD, partial_bits=partial_bits)

    def play(self, frames: Sequence[bytes], *_: object) -> list[bytes]:
        return self.engine.play(frames)

    def read(self, address: int) -> int:
        return self.engine.read(address)

    def write(self, address: int, value: int) -> None:
        self.engine.write(address, value)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.close()


class Twins(Soft):
    """A C++ engine that must send what a golden one sends."""

    def __init__(self, partial_bits: int) -> None:
        super().__init__(partial_bits)
        self.golden = GoldenDevice(engine_class=GoldenEngine, partial_bits=partial_bits, **BUILD)

    def play(self, frames: Sequence[bytes], *_: object) -> list[bytes]:
        sent = super().play(frames)
        assert sent == self.golden.play(frames)
        return sent

    def write(self, address: int, value: int) -> None:
        super().write(address, value)
        self.golden.write(address, value)


def new_tree(
    name: str,
    seed: int,
    links: Links,
    widths: Sequence[int] = WIDTHS,
    engine: type[Soft] = Soft,
) -> TreeNetwork:
    width = cycle(widths)
    return TreeNetwork(
        TREES[name],
        lambda: engine(next(width)),
        build=BUILD,
        lanes=3,
        slots=2,
        choose=random.Random(seed),
        links=links,
        multicast=seed % 2 == 1,
        partial_bits=widths[0],
    )


def check(network: TreeNetwork, tensors: Sequence, dtype: str, reduction: str) -> None:
    columns = [bits_of(tensor, dtype).tolist() for tensor in tensors]
    right = np.array(reduce_numbers(columns, dtype, reduction), dtype=BITS[dtype])
    for worker, result in enumerate(network.run(tensors, dtype, reduction)):
        wrong = np.flatnonzero(bits_of(result, dtype) != right)
        assert not wrong.size, f"worker {worker}: {wrong[:10]}"


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("at", range(len(EXACT_KINDS)))
def test_frames_are_those_of_golden_engines(name: str, at: int) -> None:
    rng = np.random.default_rng(at)
    # All widths in one tree, or one in all.
    widths = (WIDTHS, *((width,) for width in WIDTHS))[(at + len(name)) % 4]
    with new_tree(name, at, UNKIND_LINKS, widths, Twins) as network:
        for dtype in FLOATS:
            reduction = ("sum", "avg")[at % 2]
            tensors = [draw(rng, EXACT_KINDS[at], dtype, 200) for _ in range(TREES[name].ranks)]
            check(network, tensors, dtype, reduction)
        network.deliver_late()


@pytest.mark.parametrize("at", range(len(OPERATIONS)))
def test_every_operation(at: int) -> None:
    """Of tensors of any magnitude, small ones too; most sums are brought again."""
    dtype, reduction = OPERATIONS[at]
    rng = np.random.default_rng(at)
    name = list(TREES)[at % len(TREES)]
    with new_tree(name, at, UNKIND_LINKS) as network:
        for kind, count in (("mixed", 150), ("special", 20), ("huge", 150)):
            tensors = [draw(rng, kind, dtype, count) for _ in range(TREES[name].ranks)]
            check(network, tensors, dtype, reduction)
        network.deliver_late()


@pytest.mark.parametrize(("width", "operations"), [(40, 2), (48, 1), (64, 1)])
def test_only_bits_that_do_not_fit_are_brought_again(width: int, operations: int) -> None:
    with new_tree("hosts below a leaf", 1, KIND_LINKS, (width,)) as network:
        tensor = np.ones(192, np.float32)
        tensor[100] = 2.0**-35
        check(network, [tensor] * TREES["hosts below a leaf"].ranks, "float32", "sum")
        for worker in network.workers:
            assert worker.operation is not None
            assert worker.operation.number == operations - 1


def test_what_doubles_do_not_hold_is_brought_again() -> None:
    """A sum of 64 bits goes up from a leaf of golden workers' hosts, and no double holds it."""
    with new_tree("hosts below a leaf", 1, KIND_LINKS, (64,)) as network:
        tensor = np.ones(192, np.float32)
        tensor[100:102] = 2.0**-54, -0.0
        tensors = [tensor * (1 + rank) for rank in range(TREES["hosts below a leaf"].ranks)]
        tensors[1][100] = 1.5
        check(network, tensors, "float32", "sum")
        assert network.workers[0].operation is not None
        assert network.workers[0].operation.number == 1


BUGS = {
    # Which name the next blocks.
    "finds exponents in the words of the round itself": Bug(
        "engine/slots.hpp",
        "body(slot, ~states_[slot].round & 1)[lane]",
        "body(slot, states_[slot].round & 1)[lane]",
    ),
    "leaves the places of its blocks as they were": Bug(
        "engine/slots.cpp", "place += dtype.block_bytes();", ""
    ),
}


@pytest.mark.parametrize("name", first_now(BUGS))
def test_an_engine_that(name: str) -> None:
    library = build(BUGS[name])

    class Built(Twins):
        def __init__(self, partial_bits: int) -> None:
            super().__init__(partial_bits)
            self.engine = BuiltEngine(library, **BUILD)

    with new_tree("workers beside children", 1, UNKIND_LINKS, (64,), Built) as network:
        rng = np.random.default_rng(1)
        tensors = [draw(rng, "sparse", "float32", 1000) for _ in network.workers]
        with pytest.raises(CAUGHT):
            check(network, tensors, "float32", "sum")


def test_the_longest_packet_comes_in_over_a_socket() -> None:
    """16 blocks of 512 bytes each, as an aggregator below sends them; the result is rounded."""
    words = (*(look_ahead(0, 127),) * 16,)
    ones = block_of_elements([2**56] * 64, 13)
    running = Served(SoftEngine())
    try:
        with (
            closing(create_job(running.address, 1, 16, 1, 5.0)) as lease,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        ):
            ticket = lease.ticket
            udp.connect((ticket.host, ticket.port))
            udp.settimeout(10.0)
            sent = Packet(type=JOIN, job=ticket.job, key=ticket.key)
            udp.send(sent.to_bytes())
            assert udp.recv(9000)[0] & 15 == JOINED
            for blocks, opcode in ({}, 0), (dict.fromkeys(range(16), ones), NUMBER_SUM):
                number = (ticket.round + bool(blocks)) % 2**32
                sent = Packet(
                    type=DATA, opcode=opcode, dtype=13 if blocks else 1, job=ticket.job,
                    key=ticket.key, round=number, words=words, blocks=blocks,
                )  # fmt: skip
                udp.send(sent.to_bytes())
                result = udp.recv(9000)
            assert len(sent.to_bytes()) == 86 + 16 * 512
            packet = parse_packet(bytes(HEADER_AT) + result)
            assert (packet.type, packet.dtype, packet.present) == (RESULT, 1, 0xFFFF)
            assert all((block.view(np.float32) == 1).all() for block in packet.blocks.values())
    finally:
        running.stop()


def test_widths_that_there_are_not() -> None:
    for width in (0, 32, 41, 65):
        with pytest.raises(ValueError, match="40, 48 or 64"):
            SoftEngine(partial_bits=width)
