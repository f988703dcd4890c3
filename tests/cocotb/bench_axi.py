"""The engine's packet streams as cocotbext-axi understands AXI4-Stream: an independent model.

Run by test_engine.py; not collected by pytest itself.
"""

import random
from typing import ClassVar

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge, with_timeout
from cocotbext.axi import AxiStreamBus, AxiStreamFrame, AxiStreamSink, AxiStreamSource
from tests.cocotb.cases import Round
from tests.cocotb.director import Action, Director, Play, ReadRegister
from tests.cocotb.job_frames import Job


class PlainNames(AxiStreamBus):
    """AXI4-Stream whose signals' names lack the t."""

    _signals: ClassVar = {"tdata": "data", "tvalid": "valid", "tready": "ready"}
    _optional_signals: ClassVar = {"tkeep": "keep", "tlast": "last"}


class AxiBench:
    """A source, a sink and the registers of one engine."""

    def __init__(self, dut, seed: int) -> None:
        self.dut = dut
        dut.rst.value = 1
        dut.reg_write.value = 0
        dut.rx_error.value = 0
        Clock(dut.clk, 4, unit="ns").start()
        self.source = AxiStreamSource(PlainNames(dut, "rx"), dut.clk, dut.rst)
        self.sink = AxiStreamSink(PlainNames(dut, "tx"), dut.clk, dut.rst)
        self.choose = random.Random(seed)
        for end in (self.source, self.sink):
            end.set_pause_generator(iter(lambda: self.choose.random() < 0.3, None))

    async def start(self) -> None:
        for _ in range(4):
            await RisingEdge(self.dut.clk)
        self.dut.rst.value = 0
        await RisingEdge(self.dut.clk)

    async def perform(self, action: Action) -> object:
        if isinstance(action, Play):
            return await self.play(action)
        self.dut.reg_address.value = action.address
        if isinstance(action, ReadRegister):
            for _ in range(3):
                await RisingEdge(self.dut.clk)
            return self.dut.reg_read_data.value.to_unsigned()
        self.dut.reg_write_data.value = action.value
        self.dut.reg_write.value = 1
        await RisingEdge(self.dut.clk)
        self.dut.reg_write.value = 0
        await RisingEdge(self.dut.clk)
        return None

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
async def rounds_over_axi_stream(dut) -> None:
    """Rounds, with random pauses on both sides."""
    bench = AxiBench(dut, seed=4)
    await bench.start()
    director = Director(workers=64, lanes=16, jobs=4, slots=16)
    job = Job(number=3, workers=3, lanes=2, slots=2)

    def scenario():
        yield from director.configure()
        yield from director.create(job)
        for step in range(3):
            for slot in range(job.slots):
                current = Round(job, slot, step, bench.choose)
                got = yield from director.flood(current.frames)
                current.check(got, range(job.workers))
        yield from director.check_counters()

    actions, answer = scenario(), None
    while True:
        try:
            action = actions.send(answer)
        except StopIteration:
            break
        answer = await bench.perform(action)
