"""The node on its pins: what goes where, whole, in order and at full rate.

Run by test_cocotb_node.py; not collected by pytest itself.
"""

import random
from collections import Counter
from typing import Any

import cocotb
from cocotb.triggers import FallingEdge
from scapy.layers.inet import IP
from scapy.layers.l2 import Ether
from scapy.utils import checksum

from afflux_hdl.contract.registers import (
    NODE_FRAME_COUNTERS,
    NODE_HOST_COUNTERS,
    Command,
    address_of,
    node_address_of,
)
from afflux_hdl.node.classify import HEADER_BYTES
from tests.scenarios.afflux_layer import Afflux
from tests.scenarios.cases import Round
from tests.scenarios.job_frames import ENGINE_ADDRESS, ENGINE_MAC, Job
from tests.scenarios.node_frames import (
    arp_reply,
    arp_request,
    echo_reply,
    echo_request,
    padded,
    random_host_frame,
)
from tests.testbench.node_testbench import NodeTestbench

JUMBO = 9000
JOINED = 11


def wide(dut: Any) -> bool:
    return len(dut.net_rx_data) == 512


async def check_sums(testbench: NodeTestbench, host_frames: int = 0) -> dict[str, int]:
    """Every frame has been counted once, wherever it went. The counters."""
    await testbench.settle()
    counted = await testbench.counters()
    assert counted["network_frames_in"] == sum(counted[each.name] for each in NODE_FRAME_COUNTERS)
    assert counted["to_engine"] == counted["engine.frames_in"]
    assert host_frames == sum(counted[each.name] for each in NODE_HOST_COUNTERS)
    sent = ("engine.frames_out", "arp_replies", "echo_replies", "from_host")
    assert counted["network_frames_out"] == sum(counted[name] for name in sent)
    return counted


@cocotb.test()
async def arp_is_answered(dut: Any) -> None:
    """Send requests and probes for the local address, in all forms that are not answered too."""
    testbench = NodeTestbench(dut, gaps=0.2, net_ready=0.7, seed=1)
    await testbench.start()
    asked = [
        arp_request(),
        arp_request(to=ENGINE_MAC),
        # A probe (RFC 5227) has no sender address yet.
        arp_request(address="0.0.0.0"),
        *(arp_request(f"02:00:0b:00:01:{n:02x}", f"10.0.1.{n}") for n in range(12)),
    ]
    await testbench.send(asked)
    passed = [
        arp_request(pdst="10.0.0.10"),
        arp_request(psrc=ENGINE_ADDRESS),
        arp_request(op="is-at"),
        arp_request(hwtype=6),
        arp_request(ptype=0x86DD),
        arp_request(to="02:00:0c:00:00:01"),
    ]
    await testbench.send(passed)
    # Frames that the MAC marks as bad are not answered.
    await testbench.send([arp_request()], mac_error=True)
    counted = await check_sums(testbench)
    assert testbench.to_net() == [arp_reply(request) for request in asked]
    assert testbench.to_host() == passed
    assert (counted["arp_replies"], counted["bad_frames"]) == (len(asked), 1)


def same_reply(got: bytes, request: bytes) -> None:
    """`got` is the reply, and a receiver that only sums it finds it right."""
    length = Ether(request)[IP].len
    assert checksum(got[34 : 14 + length]) == 0, "the reply's ICMP checksum is wrong"
    assert checksum(got[14:34]) == 0, "the reply's IPv4 checksum is wrong"
    assert got == echo_reply(request)


@cocotb.test()
async def echo_is_answered(dut: Any) -> None:
    """Payloads of 0 to 1472 bytes and more, good, and with each thing wrong."""
    testbench = NodeTestbench(dut, gaps=0.1, net_ready=0.8, seed=2)
    await testbench.start()
    choose = random.Random(3)
    sizes = [*range(0, 40), 56, *(choose.randrange(40, 1472) for _ in range(6)), 1471, 1472, 1476]
    bad, overlong = 0, []
    for size in sizes:
        payload = choose.randbytes(size)
        icmp: dict[str, object] = {"id": choose.getrandbits(16), "seq": choose.getrandbits(16)}
        request = echo_request(payload, icmp=icmp, tos=choose.choice([0, 0xB8]), ttl=1)
        await testbench.send([request])
        if choose.random() < 0.5:
            wrong = bytearray(request)
            wrong[choose.randrange(14 + 20, 14 + 28 + size)] ^= 1 << choose.randrange(8)
            if wrong[34:36] == b"\x08\0":
                await testbench.send([bytes(wrong)])
                bad += 1
        await testbench.settle()
        (got,) = testbench.to_net()
        same_reply(got, request)
    # All sums zero; a wrong IPv4 checksum; bytes missing; padding behind the end; too long.
    zeros = echo_request(bytes(4), icmp={"id": 0, "seq": 0})
    padding = echo_request(b"abc") + bytes(range(20))
    wrong_ip = echo_request(b"x", chksum=0x1234)
    cut = echo_request(bytes(100))[:100]
    beyond = echo_request(b"y") + bytes(1500)
    overlong = [echo_request(bytes(1477)), echo_request(bytes(3000))]
    await testbench.send([zeros, padding, wrong_ip, cut, beyond, *overlong])
    counted = await check_sums(testbench)
    first, second = testbench.to_net()
    same_reply(first, zeros)
    assert second[:45] == echo_reply(padding)[:45] and len(second) == len(padding)
    assert testbench.to_host() == overlong
    assert counted["echo_bad"] == bad + 3
    assert counted["echo_replies"] == len(sizes) + 2


@cocotb.test()
async def others_pass_to_the_host_unharmed(dut: Any) -> None:
    """Frames of all protocols and sizes, both ways at once, with pauses everywhere."""
    testbench = NodeTestbench(dut, gaps=0.3, net_ready=0.8, host_ready=0.75, seed=3)
    await testbench.start()
    choose = random.Random(5)
    number = 120 if wide(dut) else 40
    down = [random_host_frame(choose) for _ in range(number)]
    down += [choose.randbytes(JUMBO), random_host_frame(choose)]
    up = [choose.randbytes(choose.choice([1, 60, 64, 100, 1514])) for _ in range(number)]
    up += [choose.randbytes(JUMBO), b"\x55" * 60]
    sending = cocotb.start_soon(testbench.send_from_host(up))
    got: list[bytes] = []
    for frame in down:
        # Below the buffer's size, so that the slow host does not make it drop.
        while sum(map(len, down[: down.index(frame)])) - sum(map(len, got)) > 6000:
            await FallingEdge(dut.clk)
            got += testbench.to_host()
        await testbench.send([frame])
    await sending
    counted = await check_sums(testbench, len(up))
    got += testbench.to_host()
    assert got == down
    assert testbench.to_net() == up
    assert counted["to_host"] == len(down)
    assert counted["from_host"] == len(up)
    assert counted["network_bytes_in"] == sum(map(len, down))
    assert counted["network_bytes_out"] == sum(map(len, up))


async def count_gaps(dut: Any, prefix: str, beats: int) -> int:
    """Cycles without a beat between the first and the last of `beats` beats."""
    valid = getattr(dut, f"{prefix}_valid")
    while not valid.value:
        await FallingEdge(dut.clk)
    gaps = 0
    while beats:
        if valid.value:
            beats -= 1
        else:
            gaps += 1
        await FallingEdge(dut.clk)
    return gaps


@cocotb.test()
async def full_rate_to_the_host_and_back(dut: Any) -> None:
    """Smallest frames and 1,500-byte frames back to back: no beat is lost, no cycle is empty."""
    testbench = NodeTestbench(dut)
    await testbench.start()
    size = len(dut.net_rx_keep)
    choose = random.Random(6)
    mixes = {60: 1000, 1500: 200 if wide(dut) else 40}
    expected = 0
    for length, number in mixes.items():
        frames = [bytes([0x33]) + choose.randbytes(length - 1) for _ in range(number)]
        beats = number * -(-length // size)
        down = cocotb.start_soon(count_gaps(dut, "host_rx", beats))
        up = cocotb.start_soon(count_gaps(dut, "net_tx", beats))
        sending = cocotb.start_soon(testbench.send_from_host(frames))
        await testbench.send(frames)
        await sending
        assert (await down, await up) == (0, 0)
        await testbench.settle()
        assert testbench.to_host() == frames
        assert testbench.to_net() == frames
        assert testbench.host_tx.stalls == 0
        expected += number
    counted = await check_sums(testbench, expected)
    assert counted["to_host"] == counted["from_host"] == expected
    assert counted["host_overflow"] == 0


@cocotb.test()
async def a_stalled_host_loses_whole_frames(dut: Any) -> None:
    """Nothing but its own frames suffers, and each is counted."""
    testbench = NodeTestbench(dut, host_ready=0.0, seed=7)
    await testbench.start()
    choose = random.Random(8)
    length = 1500
    frames = [bytes([0x33]) + choose.randbytes(length - 1) for _ in range(14)]
    bad = bytes([0x33]) + choose.randbytes(59)
    await testbench.send(frames)
    await testbench.send([bad], mac_error=True)
    await testbench.send([arp_request()])
    for _ in range(100):
        await FallingEdge(dut.clk)
    assert testbench.to_net() == [arp_reply(arp_request())]
    testbench.open("host_rx")
    counted = await check_sums(testbench)
    size = len(dut.net_rx_keep)
    fit = 16384 // (-(-length // size) * size)
    # The last of them fit whole, or not at all.
    assert testbench.to_host() == frames[:fit]
    assert (counted["to_host"], counted["host_overflow"]) == (fit, len(frames) - fit)
    assert counted["bad_frames"] == 1


@cocotb.test()
async def the_host_path_can_be_switched_off(dut: Any) -> None:
    """And frames of the host that are bad or too large are dropped, alone."""
    testbench = NodeTestbench(dut)
    await testbench.start()
    choose = random.Random(9)
    good = [choose.randbytes(n) for n in (100, 60)]
    oversize = choose.randbytes(16384 + 1)
    await testbench.send_from_host([good[0], oversize])
    await testbench.send_from_host([choose.randbytes(300)], error=True)
    await testbench.send_from_host([good[1]])
    await testbench.write(node_address_of("host_path"), 0)
    await testbench.send_from_host(good)
    down = [padded(bytes([0x33])), arp_request()]
    await testbench.send(down)
    await testbench.settle()
    await testbench.write(node_address_of("host_path"), 1)
    await testbench.send(down[:1])
    counted = await check_sums(testbench, 6)
    assert testbench.to_net() == [*good, arp_reply(arp_request())]
    assert testbench.to_host() == down[:1]
    names = ("from_host", "from_host_oversize", "from_host_bad", "from_host_off", "host_off")
    assert [counted[name] for name in names] == [2, 1, 1, 2, 1]


@cocotb.test()
async def floods_of_requests_are_bounded(dut: Any) -> None:
    """While the network takes nothing, replies wait; replies beyond their room are counted."""
    testbench = NodeTestbench(dut, net_ready=0.0, seed=10)
    await testbench.start()
    arps = [arp_request(f"02:00:0b:00:01:{n:02x}", f"10.0.1.{n}") for n in range(40)]
    echoes = [echo_request(bytes([n]) * 200) for n in range(40)]
    mixed = [frame for pair in zip(arps, echoes, strict=True) for frame in pair]
    await testbench.send(mixed)
    testbench.open("net_tx")
    counted = await check_sums(testbench)
    replies = testbench.to_net()
    assert len(replies) == counted["arp_replies"] + counted["echo_replies"]
    assert counted["replies_dropped"] == len(mixed) - len(replies) > 0
    expected = Counter(map(arp_reply, arps)) + Counter(map(echo_reply, echoes))
    assert not Counter(replies) - expected
    assert counted["arp_replies"] >= 16 and counted["echo_replies"] >= 12


@cocotb.test()
async def rounds_amid_host_traffic(dut: Any) -> None:
    """All-reduce rounds, with a host that sends and takes, and requests, in random order."""
    testbench = NodeTestbench(dut, gaps=0.1, net_ready=0.9, host_ready=0.9, seed=11)
    await testbench.start()
    choose = random.Random(12)
    job = Job(number=1, workers=4, lanes=2, slots=2)
    await create_job(testbench, job)
    await testbench.send(job.joins())
    await testbench.settle()
    assert [packet_of(frame).type for frame in testbench.to_net()] == [JOINED] * 4

    sent_down, sent_up, asked, rounds = [], [], [], []
    for step in range(3):
        for slot in range(job.slots):
            current = Round(job, slot, step, choose)
            rounds.append(current)
            others = [random_host_frame(choose, 400) for _ in range(4)]
            requests = [arp_request(f"02:00:0b:00:01:{step:02x}"), echo_request(bytes([slot]) * 99)]
            up = [choose.randbytes(choose.randrange(60, 700)) for _ in range(4)]
            frames = [*current.frames, *others, *requests]
            choose.shuffle(frames)
            sending = cocotb.start_soon(testbench.send_from_host(up))
            await testbench.send(frames)
            await sending
            sent_down += [frame for frame in frames if frame in others]
            sent_up += up
            asked += requests
            await testbench.settle()
    counted = await check_sums(testbench, len(sent_up))
    assert testbench.to_host() == sent_down
    got = testbench.to_net()
    results = [frame for frame in got if is_afflux(frame)]
    for number, current in enumerate(rounds):
        packets = [packet_of(frame) for frame in results[4 * number : 4 * number + 4]]
        current.check(packets, range(job.workers))
    rest = Counter(frame for frame in got if not is_afflux(frame))
    replies = [arp_reply(f) if f[12:14] == b"\x08\x06" else echo_reply(f) for f in asked]
    assert rest == Counter(sent_up) + Counter(replies)
    ups = [frame for frame in got if frame in set(sent_up)]
    assert ups == sent_up, "the host's frames changed their order"
    assert counted["engine.accepted"] == 4 * len(rounds)


@cocotb.test()
async def what_is_for_the_engine_is_the_engines_to_judge(dut: Any) -> None:
    """Wrong frames to its port, and to the ports above it, are counted by the engine."""
    testbench = NodeTestbench(dut)
    await testbench.start()
    job = Job(number=1, workers=4, lanes=2, slots=2)
    probe = job.probe(0, 0, 0)
    fragment = bytearray(job.wrap(0, packet_of(probe)))
    fragment[20] |= 0x20
    above = bytearray(probe)
    above[36:38] = (4700 + 2).to_bytes(2, "big")
    beyond = bytearray(probe)
    beyond[36:38] = (4700 + 3).to_bytes(2, "big")
    await testbench.send([probe, bytes(fragment), probe[:100], bytes(above), bytes(beyond)])
    await testbench.send([probe], mac_error=True)
    counted = await check_sums(testbench)
    assert counted["to_engine"] == 4
    assert counted["engine.mac_error"] == 1
    assert counted["engine.bad_length"] == 1
    assert counted["engine.bad_job"] == 1
    assert testbench.to_host() == [bytes(fragment), bytes(beyond)]


@cocotb.test()
async def sources_take_turns(dut: Any) -> None:
    """Under a flood from the host, each reply waits for a frame of the host's at most."""
    testbench = NodeTestbench(dut)
    await testbench.start()
    up = [bytes([0x33]) + bytes([n]) * 255 for n in range(24)]
    sending = cocotb.start_soon(testbench.send_from_host(up))
    for _ in range(3 * 256 // len(dut.net_rx_keep)):
        await FallingEdge(dut.clk)
    request = arp_request()
    await testbench.send([request] * 8)
    await sending
    await check_sums(testbench, len(up))
    kinds = "".join("a" if frame[12:14] == b"\x08\x06" else "h" for frame in testbench.to_net())
    first = kinds.index("a")
    # At 32 bits requests come more slowly than they could be answered.
    assert "hhhh" not in kinds[first : kinds.rindex("a")], kinds
    assert "aa" not in kinds, kinds


@cocotb.test()
async def results_leave_without_gaps(dut: Any) -> None:
    """Between frames of the host too: a MAC cannot wait within a frame."""
    testbench = NodeTestbench(dut)
    await testbench.start()
    choose = random.Random(14)
    job = Job(number=0, workers=4, lanes=2, slots=2)
    await create_job(testbench, job)
    await testbench.send(job.joins())
    await testbench.settle()
    testbench.to_net()
    rounds = [Round(job, slot, 0, choose) for slot in range(job.slots)]
    size = len(dut.net_rx_keep)
    up = [choose.randbytes(256) for _ in range(60)]
    result_beats = sum(-(-len(frame) // size) for each in rounds for frame in each.frames)
    gaps = cocotb.start_soon(count_gaps(dut, "net_tx", len(up) * -(-256 // size) + result_beats))
    sending = cocotb.start_soon(testbench.send_from_host(up))
    for current in rounds:
        await testbench.send(current.frames)
    await sending
    assert await gaps == 0
    counted = await check_sums(testbench, len(up))
    assert counted["engine.rounds"] == len(rounds)
    kinds = "".join("r" if is_afflux(frame) else "h" for frame in testbench.to_net())
    assert kinds.count("r") == 4 * len(rounds)
    assert kinds.endswith("h"), "the results came after all frames of the host: nothing is shown"


@cocotb.test()
async def latencies_are_as_documented(dut: Any) -> None:
    """From a frame's last beat in to the first beat out, as docs/node.md says."""
    testbench = NodeTestbench(dut)
    await testbench.start()
    headers = -(-HEADER_BYTES // len(dut.net_rx_keep))

    async def measure(i: str, o: str, frame: bytes) -> int:
        arrived = cycle = 0
        sending = cocotb.start_soon(
            (testbench.send if i == "net_rx" else testbench.send_from_host)([frame])
        )
        while not getattr(dut, f"{o}_valid").value:
            await FallingEdge(dut.clk)
            cycle += 1
            # The values at the falling edge before.
            if getattr(dut, f"{i}_valid").value and getattr(dut, f"{i}_last").value:
                arrived = cycle - 1
        await sending
        await testbench.settle()
        return cycle - arrived

    other = bytes([0x33]) * 60
    measured = [
        await measure("net_rx", "host_rx", other),
        await measure("host_tx", "net_tx", other),
        await measure("net_rx", "net_tx", arp_request()),
        await measure("net_rx", "net_tx", echo_request(bytes(40))),
    ]
    assert measured == [8 + headers, 3, 10 + headers, 15 + headers]


async def create_job(testbench: NodeTestbench, job: Job) -> None:
    for name, value in {**job.registers(), "job_command": Command.CREATE}.items():
        await testbench.write(address_of(name), value)
    while await testbench.read(address_of("job_busy")):
        pass


def packet_of(frame: bytes) -> Any:
    return Ether(frame)[Afflux]


def is_afflux(frame: bytes) -> bool:
    return frame[6:12] == bytes.fromhex(ENGINE_MAC.replace(":", "")) and Afflux in Ether(frame)
