"""The node's registers as cocotbext-axi understands AXI4-Lite: an independent master.

Run by test_cocotb_node.py; not collected by pytest itself.
"""

import logging
import random
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, Combine, with_timeout
from cocotbext.axi import (
    AxiLiteBus,
    AxiLiteMaster,
    AxiResp,
    AxiStreamBus,
    AxiStreamFrame,
    AxiStreamSink,
    AxiStreamSource,
)

from afflux_hdl.contract import registers, wire
from afflux_hdl.contract.registers import (
    Access,
    Command,
    Reason,
    address_of,
    counter_address,
    node_counter_address,
)
from tests.scenarios.afflux_layer import ENGINE_PORT
from tests.scenarios.job_frames import ENGINE_ADDRESS, ENGINE_MAC
from tests.scenarios.node_frames import arp_reply, arp_request, random_host_frame

EVERY = (*registers.REGISTERS, *registers.NODE_REGISTERS)
COMMANDS = ("job_command",)
COUNTER_ADDRESSES = [
    *(counter_address(counter.name) for counter in registers.COUNTERS),
    *(node_counter_address(counter.name) for counter in registers.NODE_COUNTERS),
]


class PlainNames(AxiStreamBus):
    """AXI4-Stream whose signals' names lack the t."""

    _signals = {"tdata": "data", "tvalid": "valid", "tready": "ready"}  # noqa: RUF012
    _optional_signals = {"tkeep": "keep", "tlast": "last"}  # noqa: RUF012


class AxiTestbench:
    """All of the node's ports on cocotbext-axi's models, with random pauses on every channel.

    Args:
        dut: The node.
        seed: Of the pauses.
        share: Of the cycles in which a channel pauses.
    """

    def __init__(self, dut: Any, seed: int, share: float = 0.4) -> None:
        self.dut = dut
        for name in ("s_axil", "net_rx", "net_tx", "host_rx", "host_tx"):
            logging.getLogger(f"cocotb.afflux_node.{name}").setLevel(logging.WARNING)
        dut.rst.value = 1
        dut.net_rx_error.value = 0
        dut.host_tx_error.value = 0
        Clock(dut.clk, 4, unit="ns").start()
        self.choose = random.Random(seed)
        self.axil = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.clk, dut.rst)
        self.net_rx = AxiStreamSource(PlainNames(dut, "net_rx"), dut.clk, dut.rst)
        self.host_tx = AxiStreamSource(PlainNames(dut, "host_tx"), dut.clk, dut.rst)
        self.net_tx = AxiStreamSink(PlainNames(dut, "net_tx"), dut.clk, dut.rst)
        self.host_rx = AxiStreamSink(PlainNames(dut, "host_rx"), dut.clk, dut.rst)
        write, read = self.axil.write_if, self.axil.read_if
        channels = [write.aw_channel, write.w_channel, write.b_channel]
        channels += [read.ar_channel, read.r_channel]
        streams = [self.net_rx, self.host_tx, self.net_tx, self.host_rx]
        for end in (*channels, *streams):
            end.set_pause_generator(iter(lambda: self.choose.random() < share, None))

    async def start(self) -> None:
        await ClockCycles(self.dut.clk, 4)
        self.dut.rst.value = 0
        # Under reset still inside: the first access is offered at once.

    async def read(self, address: int, resp: AxiResp = AxiResp.OKAY) -> int:
        answer = await with_timeout(self.axil.read(address, 4), 20, "us")
        assert answer.resp == resp, f"read of {address:#x} answered {answer.resp!r}"
        return int.from_bytes(answer.data, "little")

    async def write(self, address: int, value: int, resp: AxiResp = AxiResp.OKAY) -> None:
        answer = await with_timeout(self.axil.write(address, value.to_bytes(4, "little")), 20, "us")
        assert answer.resp == resp, f"write of {address:#x} answered {answer.resp!r}"

    async def configure(self) -> None:
        mac = int(ENGINE_MAC.replace(":", ""), 16)
        address = int.from_bytes(bytes(map(int, ENGINE_ADDRESS.split("."))), "big")
        await self.write(address_of("local_mac_low"), mac % 2**32)
        await self.write(address_of("local_mac_high"), mac >> 32)
        await self.write(address_of("local_address"), address)
        await self.write(address_of("local_port"), ENGINE_PORT)


def constants(dut: Any) -> dict[str, int]:
    """Return what registers show that nothing changes, for what test_cocotb_node.py builds."""
    return {
        "identity": registers.IDENTITY,
        "protocol": wire.VERSION,
        "build_workers": 4,
        "build_lanes": 2,
        "build_jobs": 2,
        "build_slots": 4,
        "build_bus_bits": len(dut.net_rx_data),
        "node_identity": registers.NODE_IDENTITY,
        "build_host_buffer": 16384,
        "build_echo_buffer": 4096,
    }


@cocotb.test()
async def every_register_is_as_the_table_says(dut: Any) -> None:
    """Each address of the map and of the holes in it, in random order, again and again."""
    testbench = AxiTestbench(dut, seed=21)
    await testbench.start()
    known = constants(dut)
    held = {each.address: 0 for each in EVERY if each.access == Access.READ_WRITE}
    held[registers.node_address_of("host_path")] = 1
    readable = {each.address for each in EVERY}
    readable |= {address + half for address in COUNTER_ADDRESSES for half in (0, 4)}
    width = len(dut.s_axil_araddr)
    holes = [address for address in range(0, 1 << width, 4) if address not in readable]
    accesses = [(each, turn) for each in EVERY for turn in range(2)]
    testbench.choose.shuffle(accesses)
    for each, _ in accesses:
        value = testbench.choose.getrandbits(32)
        if each.access == Access.READ_ONLY:
            await testbench.write(each.address, value, AxiResp.SLVERR)
            got = await testbench.read(each.address)
            assert got == known.get(each.name, got)
            assert got < 1 << each.width
        elif each.name in COMMANDS:
            assert await testbench.read(each.address) == 0
        elif each.access == Access.WRITE_ONLY:
            await testbench.write(each.address, value)
            assert await testbench.read(each.address) == 0
        else:
            await testbench.write(each.address, value)
            held[each.address] = value % (1 << each.width)
    for address, value in held.items():
        assert await testbench.read(address) == value, hex(address)
    for address in COUNTER_ADDRESSES:
        await testbench.write(address, 5, AxiResp.SLVERR)
        assert [await testbench.read(address), await testbench.read(address + 4)] == [0, 0]
    for address in [*holes[:8], *holes[-8:], *testbench.choose.sample(holes, 60)]:
        await testbench.write(address, 0xFFFFFFFF, AxiResp.SLVERR)
        assert await testbench.read(address, AxiResp.SLVERR) == 0
    for address, value in held.items():
        assert await testbench.read(address) == value, hex(address)
    assert set(known) <= {each.name for each in EVERY}


@cocotb.test()
async def what_cannot_be_done_is_an_error(dut: Any) -> None:
    """Parameters and commands while one is carried out, and commands for no job."""
    testbench = AxiTestbench(dut, seed=26, share=0.0)
    await testbench.start()
    command = address_of("job_command")
    job = {"job_workers": 2, "job_lanes": 1, "job_slot_base": 1, "job_slot_count": 2}
    for name, value in job.items():
        await testbench.write(address_of(name), value)
    for name, value in {"job_workers": 9, "job_index": 1, "job_command": Command.DESTROY}.items():
        await testbench.write(command, Command.CREATE)
        await testbench.write(address_of(name), value, AxiResp.SLVERR)
        # Others are free all the time.
        await testbench.write(address_of("debug_slot"), 3)
        while await testbench.read(address_of("job_busy")):
            pass
        for each, held in job.items():
            assert await testbench.read(address_of(each)) == held
        assert await testbench.read(address_of("job_enabled")) == 1
        assert await testbench.read(address_of("job_reason")) == Reason.NONE
    await testbench.write(command, 0, AxiResp.SLVERR)
    assert await testbench.read(address_of("job_reason")) == Reason.COMMAND
    await testbench.write(address_of("job_index"), 2)
    await testbench.write(command, Command.CREATE, AxiResp.SLVERR)
    assert await testbench.read(address_of("job_reason")) == Reason.INDEX


@cocotb.test()
async def a_write_is_whole_or_not_at_all(dut: Any) -> None:
    """With any strobe missing it is an error and changes nothing."""
    testbench = AxiTestbench(dut, seed=22)
    await testbench.start()
    place = address_of("job_round")
    await testbench.write(place, 0x01020304)
    for first in range(4):
        for length in range(1, 5 - first):
            if length == 4:
                continue
            answer = await testbench.axil.write(place + first, b"\xff" * length)
            assert answer.resp == AxiResp.SLVERR
            assert await testbench.read(place) == 0x01020304


@cocotb.test()
async def reads_and_writes_overlap(dut: Any) -> None:
    """Many of both are under way; each is answered, with the value that it must have."""
    testbench = AxiTestbench(dut, seed=23, share=0.6)
    await testbench.start()
    low, high = address_of("job_round"), address_of("job_group_address")
    await testbench.write(high, 0x77777777)

    async def writer() -> None:
        for value in range(80):
            await testbench.write(low, value)

    async def reader() -> None:
        before = 0
        for _ in range(80):
            value = await testbench.read(low)
            assert before <= value < 80
            before = value
            assert await testbench.read(high) == 0x77777777

    await with_timeout(Combine(cocotb.start_soon(writer()), cocotb.start_soon(reader())), 1, "ms")
    assert await testbench.read(low) == 79


@cocotb.test()
async def channels_do_not_wait_for_one_another(dut: Any) -> None:
    """Leave a write response untaken: it stops no read; and send data before its address."""
    testbench = AxiTestbench(dut, seed=24, share=0.0)
    await testbench.start()
    place = address_of("job_round")
    write = testbench.axil.write_if
    write.b_channel.pause = True
    write.b_channel.clear_pause_generator()
    write.aw_channel.clear_pause_generator()
    write.aw_channel.pause = True
    pending = cocotb.start_soon(testbench.write(place, 0xABCD))
    await ClockCycles(dut.clk, 30)
    assert await testbench.read(place) == 0
    write.aw_channel.pause = False
    await ClockCycles(dut.clk, 30)
    assert await testbench.read(place) == 0xABCD
    assert not pending.done()
    write.b_channel.pause = False
    await with_timeout(pending, 1, "us")


@cocotb.test()
async def counters_are_read_whole_while_they_count(dut: Any) -> None:
    """All streams on AXI4-Stream models with pauses; counters read meanwhile, and at the end."""
    testbench = AxiTestbench(dut, seed=25, share=0.2)
    await testbench.start()
    await testbench.configure()
    down = [random_host_frame(testbench.choose, 200) for _ in range(25)]
    asked = [arp_request(f"02:00:0b:00:01:{n:02x}") for n in range(8)]
    up = [testbench.choose.randbytes(testbench.choose.randrange(60, 300)) for _ in range(25)]
    frames = [*down, *asked]
    testbench.choose.shuffle(frames)
    for frame in frames:
        await testbench.net_rx.send(AxiStreamFrame(frame))
    for frame in up:
        await testbench.host_tx.send(AxiStreamFrame(frame))
    place = node_counter_address("network_bytes_in")
    before = 0
    while not (testbench.net_rx.idle() and testbench.host_tx.idle()):
        low = await testbench.read(place)
        count = low | await testbench.read(place + 4) << 32
        assert before <= count <= sum(map(len, frames))
        before = count
    quiet = 0
    while quiet < 30:
        await ClockCycles(dut.clk, 1)
        quiet = quiet + 1 if dut.idle.value else 0

    def taken(sink: AxiStreamSink) -> list[bytes]:
        got = []
        while not sink.empty():
            got.append(bytes(sink.recv_nowait().tdata))
        return got

    assert taken(testbench.host_rx) == [frame for frame in frames if frame in down]
    sent = taken(testbench.net_tx)
    assert [frame for frame in sent if frame in up] == up
    replies = [arp_reply(frame) for frame in frames if frame in asked]
    assert [frame for frame in sent if frame not in up] == replies
    for name, value in {
        "network_bytes_in": sum(map(len, frames)),
        "network_bytes_out": sum(map(len, sent)),
        "to_host": len(down),
        "arp_replies": len(asked),
        "from_host": len(up),
    }.items():
        place = node_counter_address(name)
        assert await testbench.read(place) | await testbench.read(place + 4) << 32 == value, name
