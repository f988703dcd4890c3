"""The node behind a MAC on its pins: at the wire's rate, by the MAC's rules, beside the model.

Run by test_cocotb_port.py; not collected by pytest itself.
"""

import random
from typing import Any

import cocotb
from cocotb.triggers import FallingEdge

from afflux_hdl.contract.registers import PORT_IDENTITY, port_address_of
from tests.scenarios.cases import Round
from tests.scenarios.director import Actions, Build, Director
from tests.scenarios.job_frames import Job
from tests.testbench.pace import Pace
from tests.testbench.port_testbench import CMAC, MAC_25G, PortTestbench, Rules

SIZES: Build = {"workers": 4, "lanes": 2, "jobs": 2, "slots": 8}
"""The sizes of the node."""

TX_BEATS = 64
"""Depth of the crossing to the MAC. In a board it is larger."""

NODE_PS = {64: 6402, 512: 4002}
"""Period of the node's clock by the width of the MAC's streams; it drifts against the MAC's."""


def rules_of(dut: Any) -> Rules:
    """Return the MAC whose streams are as wide."""
    (rules,) = (each for each in (MAC_25G, CMAC) if each.bits == len(dut.mac_rx_tdata))
    return rules


async def started(dut: Any, **options: Any) -> PortTestbench:
    """Return a testbench whose node has its addresses."""
    rules = rules_of(dut)
    testbench = PortTestbench(dut, rules, node_ps=NODE_PS[rules.bits], **options)
    await testbench.start()
    return testbench


def rounds(director: Director, job: Job, choose: random.Random, steps: int) -> Actions[None]:
    """Play rounds of all slots of a job: all contributions at once, two rounds of each slot."""
    for step in range(0, steps, 2):
        current = [
            Round(job, slot, step + later, choose) for later in (0, 1) for slot in range(job.slots)
        ]
        got = yield from director.flood([frame for each in current for frame in each.frames])
        assert len(got) == len(current) * job.workers


@cocotb.test()
async def rounds_at_full_rate(dut: Any) -> None:
    """Four workers' frames back to back with the least gap: every result, to the bit."""
    testbench = await started(dut)
    director = Director(**SIZES)
    job = Job(number=1, workers=4, lanes=2, slots=8)

    def scenario() -> Actions[dict[str, int]]:
        yield from director.configure()
        yield from director.create(job)
        yield from rounds(director, job, random.Random(1), 4)
        return (yield from director.check_counters())

    counters = await testbench.perform(scenario())
    assert counters["rounds"] == 4 * 8
    assert counters["receive_overflow"] == 0
    assert director.left_out == 0
    assert int(dut.rx_dropped.value) == int(dut.tx_cut.value) == 0


@cocotb.test()
async def bad_frames_and_a_mac_that_waits(dut: Any) -> None:
    """Frames that the MAC marks as bad are not summed; a MAC that is often not ready gets all."""
    pace = Pace(0.4, 3)
    testbench = await started(dut, ready=lambda _: pace())
    director = Director(**SIZES)
    job = Job(number=0, workers=3, lanes=2, slots=4)
    choose = random.Random(2)

    def scenario() -> Actions[dict[str, int]]:
        yield from director.configure()
        yield from director.create(job)
        for step in range(2):
            current = [Round(job, slot, step, choose) for slot in range(job.slots)]
            frames = [frame for each in current for frame in each.frames]
            # First each of them as the MAC has found it to be bad, and then among others as such.
            yield from director.flood(frames, [True] * len(frames))
            mixed = [(frame, bad) for frame in frames for bad in (True, False)]
            yield from director.flood(*map(list, zip(*mixed, strict=True)))
        return (yield from director.check_counters())

    counters = await testbench.perform(scenario())
    assert counters["rounds"] == 2 * job.slots
    assert counters["mac_error"] == 2 * 2 * job.slots * job.workers


@cocotb.test()
async def frames_of_every_size(dut: Any) -> None:
    """Pass frames both ways: at the wire's rate in, at random pauses out, whole and in order."""
    pace = Pace(0.7, 4)
    testbench = await started(dut, ready=lambda _: pace())
    choose = random.Random(5)
    sizes = [*range(14, 140), *(choose.randrange(140, 2048) for _ in range(12)), 60, 61]
    frames = [b"\2\0\0\0\0\1" + choose.randbytes(size - 6) for size in sizes]
    long_enough = [frame for frame in frames if len(frame) >= 60] + [choose.randbytes(9000)]
    await testbench.mac.receive(long_enough)
    await testbench.settle()
    assert testbench.to_host() == long_enough

    await testbench.send(frames)
    await testbench.settle()
    least = min(60, len(dut.host_tx_data) // 8)
    assert testbench.mac.take() == [frame.ljust(least, b"\0") for frame in frames]
    counted = await testbench.counters()
    assert counted["from_host"] == len(frames)
    assert counted["to_host"] == counted["network_frames_in"] == len(long_enough)


@cocotb.test()
async def floods_of_small_frames(dut: Any) -> None:
    """All sizes around those that take most beats, at the wire's rate: whole frames or none.

    At 25 Gbit/s none is ever lost. At 100 the node's clock is too slow for 65 to 75 bytes.
    """
    testbench = await started(dut)
    too_fast = rules_of(dut) == CMAC
    choose, count = random.Random(6), 1500 if too_fast else 150
    lost = sent = 0
    for size in (60, 64, 65, 75, 76, 97, 128, 129):
        frames = [
            b"\2\0\0\0\0\1" + number.to_bytes(2, "big") + choose.randbytes(size - 8)
            for number in range(count)
        ]
        await testbench.mac.receive(frames)
        await testbench.settle()
        arrived = testbench.to_host()
        left = iter(frames)
        assert all(frame in left for frame in arrived), "not those that came, in their order"
        assert (len(arrived) < count) == (too_fast and size == 65), (
            f"{len(arrived)} of {size} bytes"
        )
        lost += count - len(arrived)
        sent += count
    counted = await testbench.counters()
    dropped = int(dut.rx_dropped.value)
    assert dropped == lost == await testbench.read(port_address_of("port_rx_dropped"))
    # Those that were cut off in the middle arrive as bad ones, the others not at all.
    assert counted["bad_frames"] <= dropped and counted["host_overflow"] == 0
    assert counted["network_frames_in"] - counted["bad_frames"] == sent - lost


@cocotb.test()
async def too_long_to_be_kept(dut: Any) -> None:
    """Send what does not fit into the crossing: it is spoiled, never sent as if it were whole."""
    testbench = await started(dut)
    size = TX_BEATS * (len(dut.host_tx_data) // 8)
    frames = [bytes([n]) * length for n, length in enumerate((100, size, size + 1, 3 * size, 101))]
    await testbench.send(frames)
    await testbench.settle()
    sent = [(each.frame, each.spoiled) for each in testbench.mac.sent]
    kept = [(frame[:size], len(frame) > size) for frame in frames]
    assert sent == kept
    assert int(dut.tx_cut.value) == 2
    assert await testbench.read(port_address_of("port_tx_cut")) == 2
    assert await testbench.read(port_address_of("port_identity")) == PORT_IDENTITY


@cocotb.test()
async def resets_of_the_mac(dut: Any) -> None:
    """Reset it amid frames of both directions: no tail passes for a frame, later ones all pass."""
    testbench = await started(dut)
    mac, edge = testbench.mac, FallingEdge(dut.mac_rx_clk)
    frames = [bytes([2, 0, 0, 0, 0, n]) + bytes([n]) * 900 for n in range(30)]
    step = 5 if rules_of(dut) == CMAC else 17
    for cycle in range(step, 15 * step, step):
        receiving = cocotb.start_soon(mac.receive(frames[:3]))
        sending = cocotb.start_soon(testbench.send(frames[10:13]))
        for _ in range(cycle):
            await edge
        mac.stop()
        dut.mac_rx_rst.value = dut.mac_tx_rst.value = 1
        receiving.cancel()
        for _ in range(9):
            await edge
        dut.mac_rx_rst.value = dut.mac_tx_rst.value = 0
        for _ in range(9):
            await edge
        await mac.receive(frames[20:22])
        await sending
        await testbench.send(frames[25:27])
        await testbench.settle()
        to_host = testbench.to_host()
        assert to_host[-2:] == frames[20:22] and set(to_host[:-2]) <= set(frames[:3])
        to_net = mac.take()
        assert to_net[-2:] == frames[25:27] and set(to_net[:-2]) <= set(frames[10:13])
    counted = await testbench.counters()
    assert counted["bad_frames"] > 3


@cocotb.test()
async def resets_of_the_node(dut: Any) -> None:
    """Reset the node while the MAC goes on: it is given no tail, and nothing but whole frames."""
    testbench = await started(dut)
    mac, edge = testbench.mac, FallingEdge(dut.clk)
    frames = [bytes([2, 0, 0, 0, 0, n]) + bytes([n]) * 900 for n in range(30)]
    spoiled = 0
    for cycle in range(3, 120, 13):
        receiving = cocotb.start_soon(mac.receive(frames[:3]))
        sending = cocotb.start_soon(testbench.send(frames[10:13]))
        for _ in range(cycle):
            await edge
        dut.rst.value = 1
        for _ in range(6):
            await edge
        dut.rst.value = 0
        await receiving
        await sending
        for _ in range(9):
            await edge
        await mac.receive(frames[20:22])
        await testbench.send(frames[25:27])
        await testbench.settle()
        to_host = testbench.to_host()
        assert to_host[-2:] == frames[20:22]
        # One may have been cut: the host sees that by its error mark, which is not looked at here.
        assert sum(frame not in frames[:3] for frame in to_host[:-2]) <= 1
        spoiled += sum(each.spoiled for each in mac.sent)
        to_net = [each.frame for each in mac.sent if not each.spoiled]
        mac.sent.clear()
        assert to_net[-2:] == frames[25:27] and set(to_net[:-2]) <= set(frames[10:13])
    assert spoiled > 0


@cocotb.test()
async def the_wire_is_full(dut: Any) -> None:
    """While frames wait, the MAC's wire has no gap but the least: measured in its own cycles."""
    testbench = await started(dut)
    rules = rules_of(dut)
    frames = [bytes([2, 0, 0, 0, 0, n]) + bytes([n]) * 1500 for n in range(8)]
    await testbench.send(frames)
    await testbench.settle()
    assert testbench.mac.take() == frames
    first, last = testbench.mac.begun[-8], testbench.mac.begun[-1]
    bytes_between = 7 * (1506 + 24)
    assert last - first <= bytes_between / rules.bytes_per_cycle * 1.01 + 4
