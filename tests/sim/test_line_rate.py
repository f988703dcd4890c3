"""Line rate: which frames a beat in every cycle carries, and that the node takes them.

The table of docs/hardware.md is computed here, and its sizes are played into the simulated node.
"""

import random
import re
from fractions import Fraction
from math import ceil

import pytest

from afflux_hdl.contract.registers import (
    NODE_FRAME_COUNTERS,
    address_of,
    counter_address,
    node_counter_address,
)
from afflux_sim.rtl.verilated_node import VerilatedNode
from tests.checks.flood_checks import check_mixed_flood, flood_frames
from tests.checks.node_checks import NodeAsEngine, build_of
from tests.scenarios.afflux_layer import ENGINE_PORT
from tests.scenarios.job_frames import ENGINE_ADDRESS, ENGINE_MAC, Job
from tests.support.checkout import ROOT
from tests.support.node_build import NODE

BEAT_BYTES = 64
CHECK_SEQUENCE, PREAMBLE, GAP = 4, 8, 12
"""Of Ethernet, in bytes (IEEE 802.3): what a frame takes on the link besides its bytes."""

LEAST, MOST = 60, 9000
"""Bytes of frames without check sequence: the least on Ethernet, and a jumbo frame."""


def cycles_between(size: int, clock_hz: int, bits_per_second: int) -> Fraction:
    """Cycles from one frame of `size` bytes to the next on a link that is never idle."""
    on_link = size + CHECK_SEQUENCE + PREAMBLE + GAP
    return Fraction(8 * on_link * clock_hz, bits_per_second)


def beats(size: int) -> int:
    return ceil(size / BEAT_BYTES)


def test_sizes_that_are_too_dense() -> None:
    clock, link = 250_000_000, 100_000_000_000
    every = range(LEAST, MOST + 1)
    dense = [size for size in every if beats(size) > cycles_between(size, clock, link)]
    assert dense == list(range(65, 76))
    assert [size for size in every if beats(size) == cycles_between(size, clock, link)] == [76]
    # The clock that is enough, and one that is not.
    assert all(beats(size) <= cycles_between(size, 280_900_000, link) for size in every)
    assert beats(65) > cycles_between(65, 280_890_000, link)
    # 32 bits at 125 MHz carry all of 1 Gbit/s.
    for size in every:
        assert ceil(size / 4) <= cycles_between(size, 125_000_000, 1_000_000_000)
    # No packet of Afflux, nor a request that the node answers at its smallest.
    assert not {128 + 256 * blocks for blocks in range(17)} & set(dense)


def test_the_document_has_these_numbers() -> None:
    page = (ROOT / "docs" / "hardware.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| (\d+) \| (\d+) \| ([\d.]+) \|", page, re.MULTILINE)
    assert len(rows) == 9
    for size, on_link, taken, cycles in rows:
        assert int(on_link) == int(size) + CHECK_SEQUENCE
        assert int(taken) == beats(int(size))
        between = cycles_between(int(size), 250_000_000, 100_000_000_000)
        assert float(cycles) == round(float(between), 2)
    too_many = 65
    arrive = 100e9 / 8 / (too_many + CHECK_SEQUENCE + PREAMBLE + GAP)
    surplus = 2 * arrive - 250e6
    for text in (
        f"{arrive / 1e6:.1f} million in a second come",
        f"{250e6 / 2 / 1e6:.1f} are taken",
        f"{surplus / 1e6:.1f} million beats",
        f"512 beats of FIFO are full after {512 / surplus * 1e6:.0f} µs",
        f"clock of {2 * arrive / 1e6:.1f} MHz",
    ):
        assert text in " ".join(page.split()), text


@pytest.fixture(scope="module")
def node():
    with VerilatedNode(NODE) as node:
        mac = int(ENGINE_MAC.replace(":", ""), 16)
        octets = bytes(map(int, ENGINE_ADDRESS.split(".")))
        node.write(address_of("local_mac_high"), mac >> 32)
        node.write(address_of("local_mac_low"), mac & 0xFFFF_FFFF)
        node.write(address_of("local_address"), int.from_bytes(octets, "big"))
        node.write(address_of("local_port"), ENGINE_PORT)
        yield node


def read(node: VerilatedNode, address: int) -> int:
    return node.read(address) | node.read(address + 4) << 32


@pytest.mark.parametrize("size", [1, 60, 64, 65, 66, 75, 76, 79, 128, 129, 192, 193])
def test_the_node_takes_a_beat_in_every_cycle(node: VerilatedNode, size: int) -> None:
    """Frames for the host and for the engine, back to back: none waits, each is counted once."""
    choose = random.Random(size)
    names = [counter.name for counter in NODE_FRAME_COUNTERS]
    before = {name: read(node, node_counter_address(name)) for name in names}
    kinds = [*flood_frames(Job(), size).values(), b"\x33" + choose.randbytes(size - 1)]
    frames = [choose.choice(kinds) for _ in range(1500 // beats(size))]
    begun = node.statistics()
    sent = node.play(frames, [], drain=False)
    ended = node.statistics()
    assert ended.network_stalls == 0
    # To the cycle: what goes in back to back ends with its last beat.
    assert ended.cycles - begun.cycles == sum(beats(len(frame)) for frame in frames)
    to_host = [*sent[1], *node.play([], [])[1]]
    grown = {name: read(node, node_counter_address(name)) - before[name] for name in names}
    assert sum(grown.values()) == len(frames)
    # The host takes what comes, so nothing of it is lost either: what is not for the engine.
    others = [frame for frame in frames if frame not in kinds[:-2] or size < 42]
    assert grown["host_overflow"] == 0 and len(to_host) == grown["to_host"] == len(others)
    assert read(node, counter_address("receive_overflow")) == 0


def test_a_flood_through_the_node_costs_no_contribution() -> None:
    """Frames of all sizes and kinds back to back, with rounds in them."""
    with VerilatedNode(NODE) as node:
        check_mixed_flood(NodeAsEngine(node), build_of(NODE), 512, seed=5, within_node=True)
        assert node.statistics().network_stalls == 0
