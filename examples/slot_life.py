"""Draw a slot's life in a round, cycle by cycle: two workers contribute, and each gets the sum.

    python examples/slot_life.py

prints

    rx       from worker  000000111111.............................................
    admit    decides      ..................#.....#................................
    slot     contributors 000000000000000001111112222222222222222222222222222222222
    merge    writes words ......................#.....#............................
    merge    writes block .........................####..####......................
    tx       to worker    ..........................................00000001111111.

A column is a cycle, and a digit in `rx` and `tx` a beat of 64 bytes.
It takes `pip install 'afflux[rtl]'`. `docs/hardware.md` explains the stages.
"""

from typing import Any

import numpy as np
from amaranth.sim import Simulator

from afflux_hdl.contract import registers, wire
from afflux_hdl.engine.engine import Engine, Parameters
from afflux_sim.golden.frames import HEADER_AT, Endpoint
from afflux_sim.golden.worker import GoldenWorker

SIZES = Parameters(bus_bits=512, workers=2, lanes=2, jobs=1, slots=2)
ENGINE = Endpoint(bytes.fromhex("020000000009"), "10.0.0.9", wire.PORT)
KEY, ROUND = 0x1234, 1
TRACKS = ("rx", "admit", "slot", "words", "block", "tx")
NAMES = (
    "rx       from worker", "admit    decides", "slot     contributors",
    "merge    writes words", "merge    writes block", "tx       to worker",
)  # fmt: skip

engine = Engine(SIZES)
workers = [
    GoldenWorker(
        endpoint=Endpoint(bytes([2, 0, 0, 0, 0, number]), f"10.0.0.{number}", 5000),
        engine=ENGINE, job=0, key=KEY, round=ROUND, worker=number, workers=2,
        lanes=SIZES.lanes, slots=SIZES.slots,
    )
    for number in range(2)
]  # fmt: skip
drawn: dict[str, str] = dict.fromkeys(TRACKS, "")
leaving = bytearray()


async def cycle(ctx: Any, from_worker: str = ".") -> None:
    """Draw this cycle, take a beat that leaves, and go on to the next cycle."""
    admit, merge = engine.stages["admit"], engine.stages["merge"]
    seen = drawn["slot"][-1:] or "0"
    if ctx.get(admit.write_state.enable) and ctx.get(admit.write_state.address) == 0:
        seen = str(ctx.get(admit.write_state.data.seen).bit_count())
    to_worker = "."
    if ctx.get(engine.tx.valid):
        beat = ctx.get(engine.tx.payload)
        leaving.extend(beat.data.to_bytes(64, "little")[: beat.keep.bit_count()])
        to_worker = str(leaving[HEADER_AT + 3])
        if beat.last:
            for worker in workers:
                worker.receive(bytes(leaving))
            leaving.clear()
    marks = (admit.judged, merge.write_words.enable, merge.write_block.enable)
    judged, words, block = ("#" if ctx.get(mark) else "." for mark in marks)
    for name, mark in zip(
        TRACKS, (from_worker, judged, seen, words, block, to_worker), strict=True
    ):
        drawn[name] += mark
    await ctx.tick()


async def send(ctx: Any, worker: int, frame: bytes) -> None:
    """Send a worker's frame, 64 bytes in a beat."""
    for at in range(0, len(frame), 64):
        part = frame[at : at + 64]
        ctx.set(engine.rx.payload.data, int.from_bytes(part, "little"))
        ctx.set(engine.rx.payload.keep, (1 << len(part)) - 1)
        ctx.set(engine.rx.payload.last, at + 64 >= len(frame))
        ctx.set(engine.rx.valid, 1)
        await cycle(ctx, str(worker))
    ctx.set(engine.rx.valid, 0)


async def run(ctx: Any) -> None:
    """Create the job, join, send one packet each, and draw."""
    ctx.set(engine.tx.ready, 1)
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
    for number, worker in enumerate(workers):
        await send(ctx, number, worker.join())
    while any(worker.joined is None for worker in workers):
        await cycle(ctx)
    drawn.update(dict.fromkeys(TRACKS, ""))
    for worker in workers:
        worker.start(np.linspace(0, 1, 64, dtype=np.float32), "float32", "sum")
    for number, worker in enumerate(workers):
        await send(ctx, number, worker.frames_to_send()[0])
    # To the end of the second result.
    while "1" not in drawn["tx"] or drawn["tx"][-1] != ".":
        await cycle(ctx)


simulator = Simulator(engine)
simulator.add_clock(1e-8)
simulator.add_testbench(run)
simulator.run()
for name, marks in zip(NAMES, drawn.values(), strict=True):
    print(f"{name:22}{marks}")
