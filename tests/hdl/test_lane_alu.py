"""Lane ALU against plain Python, and its latency."""

import random

import pytest
from amaranth.hdl import Module
from amaranth.sim import Simulator

from afflux_hdl.contract.wire import Opcode
from afflux_hdl.engine.lane_alu import LaneAlu

CORNERS = [0, 1, 2, 0x7FFF_FFFE, 0x7FFF_FFFF, 0x8000_0000, 0x8000_0001, 0xFFFF_FFFF]


def signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


def reference(opcode: Opcode, fresh: bool, held: int, arriving: int) -> tuple[int, bool]:
    if fresh:
        return arriving, False
    a, b = signed(held), signed(arriving)
    if opcode is Opcode.SUM:
        return (a + b) % 2**32, not -(2**31) <= a + b < 2**31
    if opcode is Opcode.MAX:
        return max(a, b) % 2**32, False
    if opcode is Opcode.MIN:
        return min(a, b) % 2**32, False
    return min(held, arriving), False


@pytest.mark.parametrize("opcode", list(Opcode))
def test_outcomes_follow_after_one_cycle(opcode: Opcode) -> None:
    choose = random.Random(1)
    pairs = [(a, b) for a in CORNERS for b in CORNERS]
    pairs += [(choose.getrandbits(32), choose.getrandbits(32)) for _ in range(200)]
    alu = LaneAlu()

    async def testbench(ctx) -> None:
        for held, arriving in pairs:
            for fresh in (False, True):
                ctx.set(alu.opcode, opcode)
                ctx.set(alu.fresh, fresh)
                ctx.set(alu.held, held)
                ctx.set(alu.arriving, arriving)
                ctx.set(alu.less, held < arriving)
                # A residue of 15 is as good as one of 0.
                ctx.set(alu.held_residue, held % 15 or choose.choice([0, 15]))
                ctx.set(alu.arriving_residue, arriving % 15 or choose.choice([0, 15]))
                await ctx.tick()
                outcome = ctx.get(alu.merged), bool(ctx.get(alu.overflow))
                assert outcome == reference(opcode, fresh, held, arriving)
                assert ctx.get(alu.merged_residue) % 15 == outcome[0] % 15

    top = Module()
    top.submodules.alu = alu
    simulator = Simulator(top)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()
