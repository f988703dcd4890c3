"""The engine behind cocotbext-eth's model of an Ethernet MAC: an independent idea of a port.

The model takes and gives frames at a port's rate, with preamble and gap, and fails if a frame that
has begun does not go on: a real MAC would have to break it off.

Run by test_cocotb_engine.py; not collected by pytest itself.
"""

import logging
from typing import Any, ClassVar

import cocotb
from cocotb.triggers import RisingEdge
from cocotb.utils import get_sim_time
from cocotbext.eth.eth_mac import AxiStreamBus, EthMacFrame, EthMacRx, EthMacTx

from tests.scenarios.director import Play
from tests.scenarios.job_frames import Job
from tests.testbench.model_testbench import CLOCK_PERIOD_NS, ModelTestbench

PORT_SHARE = 100 / 128
"""Of the stream's bits a second, as with 100 Gbit/s at 512 bits and 250 MHz."""

PREAMBLE_AND_GAP = 8 + 12


class Towards(AxiStreamBus):
    """The engine's input under the MAC's names."""

    _signals: ClassVar = {"tdata": "data", "tvalid": "valid", "tready": "ready"}
    _optional_signals: ClassVar = {"tkeep": "keep", "tlast": "last", "tuser": "error"}


class Away(AxiStreamBus):
    """Its output, which marks no frame as bad."""

    _signals: ClassVar = {"tdata": "data", "tvalid": "valid", "tready": "ready"}
    _optional_signals: ClassVar = {"tkeep": "keep", "tlast": "last"}


class MacTestbench(ModelTestbench):
    """Both halves of a MAC."""

    def __init__(self, dut: Any, seed: int) -> None:
        logging.getLogger("cocotb.afflux_engine").setLevel(logging.WARNING)
        super().__init__(dut, seed)
        self.speed = len(dut.rx_data) * 1e9 / CLOCK_PERIOD_NS * PORT_SHARE
        self.rx = EthMacRx(Towards.from_prefix(dut, "rx"), dut.clk, dut.rst, speed=self.speed)
        self.tx = EthMacTx(Away.from_prefix(dut, "tx"), dut.clk, dut.rst, speed=self.speed)
        self.sent: list[EthMacFrame] = []

    async def play(self, action: Play) -> list[bytes]:
        for frame in action.frames:
            await self.rx.send(EthMacFrame(frame))
        quiet, end = 0, get_sim_time("us") + 1000
        # The MAC's queues do not belong to the engine: it may have some still to take or to give.
        while quiet < 40:
            await RisingEdge(self.dut.clk)
            busy = not self.rx.empty() or self.rx.current_frame is not None
            quiet = 0 if busy or not self.dut.idle.value or self.tx.active else quiet + 1
            assert get_sim_time("us") < end, "the engine does not become idle"
        frames = []
        while not self.tx.empty():
            self.sent.append(self.tx.recv_nowait())
            frames.append(bytes(self.sent[-1]))
        return frames

    def check_times(self) -> None:
        """No frame took longer than its bytes, nor began within the gap behind the last."""
        byte_ns = 8e9 / self.speed
        step_ns = 1e9 / cocotb.utils.get_sim_steps(1, "sec")
        before = None
        for frame in self.sent:
            begun, ended = frame.sim_time_sfd * step_ns, frame.sim_time_end * step_ns
            assert ended - begun <= (len(frame) + 1) * byte_ns + 1
            assert before is None or begun - before >= (PREAMBLE_AND_GAP - 1) * byte_ns - 1
            before = ended


@cocotb.test()
async def rounds_through_a_mac(dut: Any) -> None:
    """Small and large frames, several workers back to back, at a port's rate."""
    testbench = MacTestbench(dut, seed=5)
    jobs = [
        Job(number=1, workers=5, lanes=16, slots=2),
        Job(number=2, workers=3, lanes=1, slots=2, slot_base=2),
    ]
    await testbench.run_rounds(jobs, 3)
    assert len(testbench.sent) >= 3 * 2 * (5 + 3)
    testbench.check_times()
