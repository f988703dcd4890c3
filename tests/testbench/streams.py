"""Whole tensors on the engine's pins: sizes at every boundary, and an unkind network.

Run by test_cocotb_engine.py; not collected by pytest itself.
"""

import random
from typing import Any

import cocotb

from tests.scenarios.director import Actions, Director
from tests.scenarios.job_frames import Job
from tests.scenarios.stream_worker import StreamWorker
from tests.scenarios.streams import (
    boundary_sizes,
    draw_tensor,
    reduce_in_order,
    reduce_unkindly,
)
from tests.testbench.pins import run_on_pins

SHAPES = [(1, 2, 1), (2, 5, 2), (3, 1, 4)]


def new_job(shape: tuple[int, int, int]) -> Job:
    workers, lanes, slots = shape
    return Job(number=2, workers=workers, lanes=lanes, slots=slots, slot_base=5)


@cocotb.test()
@cocotb.parametrize(shape=SHAPES, flood=[False, True])
async def sizes(dut: Any, shape: tuple[int, int, int], flood: bool) -> None:
    """Tensors of one element, and of a block, a packet and a row, -1, 0 and +1 element."""
    job = new_job(shape)
    choose = random.Random(2)

    def scenario(director: Director) -> Actions[None]:
        yield from director.create(job)
        workers = [StreamWorker(job, number) for number in range(job.workers)]
        for size in boundary_sizes(job):
            tensors = [draw_tensor(size, choose) for _ in workers]
            yield from reduce_in_order(director, workers, tensors, flood)
        counters = yield from director.check_counters()
        assert counters["duplicates"] == director.left_out == 0

    await run_on_pins(dut, scenario, ready_share=0.8 if flood else 1.0)


@cocotb.test()
@cocotb.parametrize(shape=SHAPES)
async def all_zero(dut: Any, shape: tuple[int, int, int]) -> None:
    """Nothing but zeros, of many rows: one round in each slot, and the fingerprints in it."""
    job = new_job(shape)

    def scenario(director: Director) -> Actions[None]:
        yield from director.create(job)
        workers = [StreamWorker(job, number) for number in range(job.workers)]
        tensors = [[0] * (5 * job.slots * job.lanes * 64)] * job.workers
        yield from reduce_in_order(director, workers, tensors)
        counters = yield from director.check_counters()
        assert counters["rounds"] == job.slots
        assert counters["blocks_accepted"] == job.workers

    await run_on_pins(dut, scenario)


@cocotb.test()
@cocotb.parametrize(shape=SHAPES, ready_share=[1.0, 0.5])
async def unkind(dut: Any, shape: tuple[int, int, int], ready_share: float) -> None:
    """Loss, duplication and reordering in both directions."""
    job = new_job(shape)
    choose = random.Random(3)

    def scenario(director: Director) -> Actions[None]:
        yield from director.create(job)
        workers = [StreamWorker(job, number) for number in range(job.workers)]
        for size in (1, 3 * job.slots * job.lanes * 64 - 1, 63):
            tensors = [draw_tensor(size, choose) for _ in workers]
            yield from reduce_unkindly(
                director, workers, tensors, choose, loss=0.2, duplication=0.2
            )
        counters = yield from director.check_counters()
        assert counters["duplicates"] + counters["probes"] > 0

    await run_on_pins(dut, scenario, ready_share=ready_share, gap_share=1 - ready_share)
