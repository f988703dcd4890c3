"""A whole board between RGMII pins and RGMII pins, beside cocotbext-eth's models of a PHY's ends.

The code that drives RXD, makes preambles and check sequences, and checks them behind TXD, is other
people's; sums are the golden engine's, answers of the management the golden management's. Three
clocks drift.

Run by test_cocotb_board.py; not collected by pytest itself.
"""

import logging
import random
from collections.abc import Sequence
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, Timer
from cocotbext.eth import GmiiFrame, RgmiiSink, RgmiiSource

from afflux_hdl.contract.registers import counter_address, node_counter_address
from afflux_sim.golden.management import GoldenManagement
from afflux_sim.golden.siphash import siphash_2_4
from tests.scenarios.afflux_layer import ENGINE_PORT
from tests.scenarios.board_build import BOARD_BUILD, BOARD_SETTINGS, CONTROLLER
from tests.scenarios.cases import Round
from tests.scenarios.director import Action, Actions, Director, Play, ReadRegister
from tests.scenarios.job_frames import ENGINE_ADDRESS, ENGINE_MAC, Job
from tests.scenarios.node_frames import arp_reply, arp_request
from tests.support.management_frames import HELLO, READ, WRITE, request, request_frame

ENGINE_PS, TRANSMIT_PS = 20_000, 8_002
RECEIVE_PS = {"fast": 7_998, "slow": 8_006}
"""More apart than the 200 parts in a million that Ethernet allows."""

CONTROLLER_PORT = 50_000
QUIET_US = 40
"""The longest frame takes 11 µs, an answer of the management 36 µs."""
IDENTITY = 0x000


class Constants:
    """The registers that requests amid traffic ask for. A `NodeBus`."""

    def __init__(self) -> None:
        self.values = {IDENTITY: 0x4146_4C58, 0x800: 0x4146_4C4E}

    def read(self, address: int) -> int | None:
        return self.values.get(address, 0)

    def write(self, address: int, value: int) -> bool:
        self.values[address] = value
        return True


class BoardTestbench:
    """Clocks, a PHY's two ends, and a controller.

    Args:
        dut: The board.
        receive: Whether RXC is the faster or the slower clock.
        gap: Bytes between frames to the board.

    Attributes:
        others: Frames of the board that are neither the engine's nor answers of the management.
        answers: Payloads of the management, in order.
    """

    def __init__(self, dut: Any, receive: str = "fast", gap: int = 12) -> None:
        self.dut = dut
        for name in ("rgmii_rx_data", "rgmii_tx_data"):
            logging.getLogger(f"cocotb.{dut._name}.{name}").setLevel(logging.WARNING)
        dut.rst.value = 0
        dut.entropy.value = 0
        for signal, period in (
            (dut.clk, ENGINE_PS),
            (dut.clk125, TRANSMIT_PS),
            (dut.rgmii_rx_clk, RECEIVE_PS[receive]),
        ):
            Clock(signal, period, unit="ps").start()
        self.source = RgmiiSource(dut.rgmii_rx_data, dut.rgmii_rx_ctl, dut.rgmii_rx_clk)
        self.source.ifg = gap
        self.sink = RgmiiSink(dut.rgmii_tx_data, dut.rgmii_tx_ctl, dut.rgmii_tx_clk)
        self.golden: GoldenManagement | None = None
        self.answers: list[bytes] = []
        self.others: list[bytes] = []
        self.overflows = 0

    async def begin(self) -> None:
        """Wait for the board's address, and learn its session."""
        noise = cocotb.start_soon(self._noise())
        for _ in range(200):
            await Timer(5, "us")
            if self.dut.configured.value:
                break
        assert self.dut.configured.value, "the board has not set its address"
        noise.cancel()
        cocotb.start_soon(self._watch())
        golden = GoldenManagement(BOARD_SETTINGS.to_bytes(), 0, Constants())
        (answer,) = await self._ask(request(golden, HELLO))
        golden.session = int.from_bytes(answer[10:18], "little")
        golden.latest = int.from_bytes(answer[18:26], "little")
        self.golden = golden

    async def _noise(self) -> None:
        choose = random.Random(5)
        while True:
            await FallingEdge(self.dut.clk)
            self.dut.entropy.value = choose.getrandbits(1)

    async def _watch(self) -> None:
        edge = cocotb.triggers.RisingEdge(self.dut.overflowed)
        while True:
            await edge
            self.overflows += 1

    async def play(self, frames: Sequence[GmiiFrame]) -> list[bytes]:
        """Send frames back to back; return the engine's until nothing has come for a while."""
        for frame in frames:
            self.source.send_nowait(frame)
        engine: list[bytes] = []
        quiet = 0
        while quiet < QUIET_US:
            await Timer(4, "us")
            quiet = quiet + 4 if self.source.idle() else 0
            while not self.sink.empty():
                quiet = 0
                self._take(self.sink.recv_nowait(), engine)
        return engine

    def _take(self, frame: GmiiFrame, engine: list[bytes]) -> None:
        assert frame.check_fcs(), "a frame left with a wrong check sequence"
        assert not frame.error, "a frame left with an error"
        data = bytes(frame.get_payload())
        port = int.from_bytes(data[34:36], "big") if data[23] == 17 else 0
        if port == BOARD_SETTINGS.port:
            self.answers.append(data[42:84])
        elif port == ENGINE_PORT:
            engine.append(data)
        else:
            self.others.append(data)

    def management_frame(self, payload: bytes) -> GmiiFrame:
        """Return the frame of a request by the controller."""
        data = request_frame(payload, source=CONTROLLER, to=ENGINE_ADDRESS, port=CONTROLLER_PORT)
        return GmiiFrame.from_payload(bytes.fromhex(ENGINE_MAC.replace(":", "")) + data[6:])

    async def _ask(self, payload: bytes) -> list[bytes]:
        self.answers.clear()
        await self._send(self.management_frame(payload))
        return self.answers

    async def _send(self, frame: GmiiFrame) -> None:
        """Send a request, and wait for its answer."""
        self.source.send_nowait(frame)
        for _ in range(60):
            await Timer(5, "us")
            while not self.sink.empty():
                self._take(self.sink.recv_nowait(), self.others)
            if self.answers:
                return
        raise AssertionError("the management does not answer")

    async def access(self, kind: int, address: int, value: int = 0) -> int:
        """Read or write a register; return what was read."""
        golden = self.golden
        assert golden is not None
        (answer,) = await self._ask(request(golden, kind, address, value))
        golden.latest += 1
        assert answer[3] == kind | 0x80 and answer[4] == 0, answer.hex(" ")
        tag = answer[34:42]
        assert int.from_bytes(answer[18:26], "little") == golden.latest
        pad = siphash_2_4(golden.key, tag)
        return int.from_bytes(
            bytes(a ^ b for a, b in zip(answer[26:30], pad, strict=False)), "little"
        )

    async def counter(self, name: str, node: bool = False) -> int:
        """Return the lower word of a counter."""
        address = node_counter_address(name) if node else counter_address(name)
        return await self.access(READ, address)

    async def perform(self, actions: Actions[Any]) -> None:
        """Run a scenario; its frames come alone."""
        answer: object = None
        while True:
            try:
                action: Action = actions.send(answer)
            except StopIteration:
                return
            if isinstance(action, Play):
                answer = await self.play([GmiiFrame.from_payload(each) for each in action.frames])
            elif isinstance(action, ReadRegister):
                answer = await self.access(READ, action.address)
            else:
                await self.access(WRITE, action.address, action.value)
                answer = None


def spoilt(frame: bytes, number: int) -> GmiiFrame:
    """Return a frame that must go no further: by its check sequence, RX_ER, or its length."""
    bad = GmiiFrame.from_payload(frame)
    if number % 3 == 0:
        bad.data[len(bad.data) // 2] ^= 0x10
    elif number % 3 == 1:
        bad.error = [n == len(bad.data) // 3 for n in range(len(bad.data))]
    else:
        bad = GmiiFrame.from_payload(frame[:40])
        # Cut behind its header: a runt, with the check sequence of what is missing.
        bad.data = bad.data[:48]
    return bad


async def full_rate(dut: Any, receive: str, gap: int, slots: int, steps: int) -> None:
    """Four workers' frames back to back, spoilt ones and requests between them."""
    testbench = BoardTestbench(dut, receive, gap)
    await testbench.begin()
    job = Job(workers=4, lanes=5, slots=slots)
    director = Director(**BOARD_BUILD)
    await testbench.perform(director.create(job))
    golden = testbench.golden
    assert golden is not None
    choose = random.Random(slots)
    bad = runts = good = 0
    wanted_answers: list[bytes] = []
    testbench.answers.clear()
    for step in range(steps):
        rounds = [Round(job, slot, step, choose) for slot in range(slots)]
        wire: list[GmiiFrame] = []
        expected: list[bytes] = []
        for number, current in enumerate(rounds):
            for frame in current.frames:
                if choose.random() < 0.4:
                    kind = choose.randrange(3)
                    wire.append(spoilt(frame, kind))
                    bad, runts = bad + (kind < 2), runts + (kind == 2)
                wire.append(GmiiFrame.from_payload(frame))
                good += 1
                expected += director.golden.receive(frame)
            if number % 2 == 0:
                asked = request(golden, READ, IDENTITY)
                wire.append(testbench.management_frame(asked))
                _, answer = golden.judge(asked)
                assert answer is not None
                wanted_answers.append(answer)
        wire.append(GmiiFrame.from_payload(arp_request()))
        got = await testbench.play(wire)
        assert len(got) == len(expected)
        assert sorted(got) == sorted(expected)
    assert testbench.answers == wanted_answers
    assert testbench.others == [arp_reply(arp_request())] * steps
    # Nothing was lost, and all is counted.
    assert testbench.overflows == 0
    assert await testbench.counter("receive_overflow") == 0
    assert await testbench.counter("accepted") == good
    assert await testbench.counter("rounds") == slots * steps
    assert await testbench.counter("mac_error") == bad
    assert await testbench.counter("bad_frames", node=True) == runts
    assert await testbench.counter("host_overflow", node=True) == 0
    assert bad > 2 and runts > 0 and wanted_answers


@cocotb.test()
async def four_workers_at_full_rate(dut: Any) -> None:
    """With the least gap, from a partner that is faster than the board."""
    await full_rate(dut, "fast", gap=12, slots=4, steps=2)


@cocotb.test()
async def least_gap_that_a_receiver_sees(dut: Any) -> None:
    """Eight byte times: what repeaters and clocks may leave of twelve."""
    await full_rate(dut, "fast", gap=8, slots=8, steps=3)


@cocotb.test()
async def from_a_slower_partner(dut: Any) -> None:
    """Send to a board whose clock is the faster one."""
    await full_rate(dut, "slow", gap=12, slots=8, steps=3)
