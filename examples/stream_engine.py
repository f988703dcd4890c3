"""The engine in an Amaranth stream design: a stage behind it counts the frames that go out.

    python examples/stream_engine.py

prints

    sums are right: True
    10 frames went out

It takes `pip install 'afflux[rtl]'`. Golden workers, which are models of the hosts' part in Python,
talk to the simulated design.
"""

from typing import Any

import numpy as np
from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.sim import Simulator

from afflux_hdl.contract import registers, wire
from afflux_hdl.engine.engine import Engine, Parameters
from afflux_hdl.lib.packet_stream import PacketBeat
from afflux_sim.golden.frames import Endpoint
from afflux_sim.golden.worker import GoldenWorker

SIZES = Parameters(bus_bits=512, workers=2, lanes=2, jobs=1, slots=2)
BEAT = stream.Signature(PacketBeat(SIZES.bus_bits))
ENGINE = Endpoint(bytes.fromhex("020000000009"), "10.0.0.9", wire.PORT)
KEY, ROUND = 0x1234, 1


class Design(wiring.Component):
    """Frames in, the engine, frames out; `frames` counts these."""

    i: In(BEAT)  # type: ignore[valid-type]
    o: Out(BEAT)  # type: ignore[valid-type]
    frames: Out(16)  # type: ignore[valid-type]

    def elaborate(self, platform: object) -> Module:
        """Connect the streams. The engine takes a beat in every cycle."""
        m = Module()
        m.submodules.engine = self.engine = Engine(SIZES)
        connect(m, flipped(self.i), self.engine.rx)
        connect(m, self.engine.tx, flipped(self.o))
        with m.If(self.o.valid & self.o.ready & self.o.payload.last):
            m.d.sync += self.frames.eq(self.frames + 1)
        return m


async def set_up(ctx: Any, engine: Engine) -> None:
    """Write the addresses and one job into the registers."""
    mac = int.from_bytes(ENGINE.mac, "big")
    values = {"local_mac_low": mac % 2**32, "local_mac_high": mac >> 32}
    values |= {"local_address": 0x0A000009, "local_port": ENGINE.port, "job_key_low": KEY}
    values |= {"job_workers": 2, "job_lanes": SIZES.lanes, "job_round": ROUND}
    values |= {"job_slot_count": SIZES.slots, "job_credit": SIZES.slots}
    for name, value in (values | {"job_command": registers.Command.CREATE}).items():
        ctx.set(engine.register_address, registers.address_of(name))
        ctx.set(engine.register_write_data, value)
        ctx.set(engine.register_write, 1)
        await ctx.tick()
    ctx.set(engine.register_write, 0)
    await ctx.tick().repeat(100)


async def send(ctx: Any, design: Design, frame: bytes) -> None:
    """Send a frame, 64 bytes in a beat."""
    for at in range(0, len(frame), 64):
        part = frame[at : at + 64]
        ctx.set(design.i.payload.data, int.from_bytes(part, "little"))
        ctx.set(design.i.payload.keep, (1 << len(part)) - 1)
        ctx.set(design.i.payload.last, at + 64 >= len(frame))
        ctx.set(design.i.valid, 1)
        await ctx.tick()
    ctx.set(design.i.valid, 0)


design = Design()
workers = [
    GoldenWorker(
        endpoint=Endpoint(bytes([2, 0, 0, 0, 0, number]), f"10.0.0.{number}", 5000),
        engine=ENGINE, job=0, key=KEY, round=ROUND, worker=number, workers=2,
        lanes=SIZES.lanes, slots=SIZES.slots,
    )
    for number in range(2)
]  # fmt: skip
tensors = [np.linspace(0, number + 1, 200, dtype=np.float32) for number in range(2)]


async def hosts(ctx: Any) -> None:
    """Join, and sum a tensor."""
    await set_up(ctx, design.engine)
    for worker in workers:
        await send(ctx, design, worker.join())
    while any(worker.joined is None for worker in workers):
        await ctx.tick()
    for worker, tensor in zip(workers, tensors, strict=True):
        worker.start(tensor, "float32", "sum")
    while not all(worker.done for worker in workers):
        for frame in [frame for worker in workers for frame in worker.frames_to_send()]:
            await send(ctx, design, frame)
        await ctx.tick()
    sums = [worker.result() for worker in workers]
    right = all(np.allclose(each, tensors[0] + tensors[1], atol=1e-6) for each in sums)
    print(f"sums are right: {right}")
    print(f"{ctx.get(design.frames)} frames went out")


async def network(ctx: Any) -> None:
    """Take what comes out to the workers; each knows its own frames."""
    ctx.set(design.o.ready, 1)
    frame = b""
    async for _, _, valid, beat in ctx.tick().sample(design.o.valid, design.o.payload):
        if valid:
            frame += beat.data.to_bytes(64, "little")[: beat.keep.bit_count()]
            if beat.last:
                for worker in workers:
                    worker.receive(frame)
                frame = b""


simulator = Simulator(design)
simulator.add_clock(1e-8)
simulator.add_testbench(hosts)
simulator.add_testbench(network, background=True)
simulator.run()
