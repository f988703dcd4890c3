"""The engine's packet streams as cocotbext-axi understands AXI4-Stream: an independent model.

Run by test_cocotb_engine.py; not collected by pytest itself.
"""

from typing import Any, ClassVar

import cocotb
from cocotb.triggers import RisingEdge, with_timeout
from cocotbext.axi import AxiStreamBus, AxiStreamFrame, AxiStreamSink, AxiStreamSource

from tests.scenarios.director import Play
from tests.scenarios.job_frames import Job
from tests.testbench.model_testbench import ModelTestbench


class PlainNames(AxiStreamBus):
    """AXI4-Stream whose signals' names lack the t."""

    _signals: ClassVar = {"tdata": "data", "tvalid": "valid", "tready": "ready"}
    _optional_signals: ClassVar = {"tkeep": "keep", "tlast": "last"}


class AxiTestbench(ModelTestbench):
    """A source and a sink, both with random pauses."""

    def __init__(self, dut: Any, seed: int) -> None:
        super().__init__(dut, seed)
        dut.rx_error.value = 0
        self.source = AxiStreamSource(PlainNames(dut, "rx"), dut.clk, dut.rst)
        self.sink = AxiStreamSink(PlainNames(dut, "tx"), dut.clk, dut.rst)
        for end in (self.source, self.sink):
            end.set_pause_generator(iter(lambda: self.choose.random() < 0.3, None))

    async def play(self, action: Play) -> list[bytes]:
        for frame in action.frames:
            await self.source.send(AxiStreamFrame(frame))
        await with_timeout(self.source.wait(), 1, "ms")
        quiet = 0
        # The sink counts frames only when they are whole.
        while quiet < 20:
            await RisingEdge(self.dut.clk)
            quiet = quiet + 1 if self.dut.idle.value else 0
        frames = []
        while not self.sink.empty():
            frames.append(bytes((await self.sink.recv()).tdata))
        return frames


@cocotb.test()
async def rounds_over_axi_stream(dut: Any) -> None:
    """Play rounds, with random pauses on both sides."""
    await AxiTestbench(dut, seed=4).run_rounds([Job(number=3, workers=3, lanes=2, slots=2)], 3)
