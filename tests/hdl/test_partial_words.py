"""Partial sums into a slot's form and out of it, against the golden model's integers."""

import random
from typing import Any

import pytest
from amaranth.hdl import Elaboratable, Module

from afflux_hdl.contract.wire import Dtype
from afflux_hdl.numbers.formats import Fixed
from afflux_hdl.numbers.partial_words import FromPartial, ToPartial
from afflux_sim.golden.frames import partial_dtype
from afflux_sim.golden.merge import block_of_elements
from tests.support.number_lane import simulate

FIXED = Fixed()
NAMES = {Dtype.FLOAT32: "float32", Dtype.FLOAT16: "float16", Dtype.BFLOAT16: "bfloat16"}
FLAGS = {1: (0, 0), 2: (3, 1), 3: (1, 1), 4: (2, 1)}
"""Special, and whether it is not -0, of what is so far above the least integer."""


class Way(Elaboratable):
    """Both directions, one behind the other."""

    def __init__(self) -> None:
        self.taken, self.given = FromPartial(FIXED), ToPartial(FIXED)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.taken, m.submodules.given = self.taken, self.given
        slot, o = self.given.slot, self.taken.o
        m.d.comb += [
            slot.value.eq(o.value),
            slot.special.eq(o.special),
            slot.not_minus_zero.eq(o.not_minus_zero),
            slot.residue.eq(o.residue),
            self.given.halves.eq(self.taken.halves),
        ]
        return m


def drawn(choose: random.Random, width: int) -> int:
    """Return a partial sum; some are near the ends, or mean something else."""
    least = -(2 ** (width - 1))
    near = least + choose.randrange(1, 9)
    return choose.choice([near, -least - 1, 0, -1, choose.randrange(least + 1, -least)])


@pytest.mark.parametrize("dtype", NAMES)
def test_words_of_both_planes(dtype: Dtype) -> None:
    choose = random.Random(dtype)
    width, of = (64, 13) if dtype == Dtype.FLOAT32 else (32, partial_dtype(NAMES[dtype], 64))
    elements = [drawn(choose, width) for _ in range(4096 // width)]
    words = [int(word) % 2**32 for word in block_of_elements(elements, of)]
    way = Way()

    async def testbench(ctx: Any) -> None:
        ctx.set(way.taken.halves, dtype != Dtype.FLOAT32)
        ctx.set(way.given.all_present, 1)
        for n in range(64):
            lower, upper = words[n], words[64 + n]
            ctx.set(way.taken.lower, lower)
            ctx.set(way.taken.lower_residue, lower % 15)
            ctx.set(way.taken.upper, upper)
            ctx.set(way.taken.upper_residue, upper % 15)
            await ctx.tick().repeat(3)
            held = ctx.get(way.taken.o)
            own = elements[n : n + 1] if width == 64 else elements[2 * n : 2 * n + 2]
            check_addend(held, own, width)
            for plane, word in enumerate((lower, upper)):
                ctx.set(way.given.upper, plane)
                await ctx.tick().repeat(2)
                assert ctx.get(way.given.word) == word
                assert ctx.get(way.given.check) % 15 == word % 15

    simulate(way, testbench)


def check_addend(held: Any, elements: list[int], width: int) -> None:
    """Compare what is added with the elements that it stands for."""
    total = 0
    for e, element in enumerate(elements):
        special, not_minus_zero = FLAGS.get(element + 2 ** (width - 1), (0, 1))
        code = element + 2 ** (width - 1)
        value = 0 if code in FLAGS else element
        total += value
        assert (held.value >> width * e) % 2**width == value % 2**width
        assert (held.special[e], held.not_minus_zero >> e & 1) == (special, not_minus_zero)
    flags = sum(held.special) + held.not_minus_zero
    assert held.residue % 3 == (total + flags) % 3


@pytest.mark.parametrize("halves", [0, 1])
def test_a_block_that_is_not_summed(halves: int) -> None:
    way = Way()

    async def testbench(ctx: Any) -> None:
        ctx.set(way.taken.halves, halves)
        ctx.set(way.taken.upper, 0x80000000)
        ctx.set(way.taken.upper_residue, 0x80000000 % 15)
        await ctx.tick().repeat(3)
        assert ctx.get(way.taken.lost)
        ctx.set(way.given.lost, 1)
        for plane, word in enumerate((0, 0x80008000 if halves else 0x80000000)):
            ctx.set(way.given.upper, plane)
            await ctx.tick().repeat(2)
            assert (ctx.get(way.given.word), ctx.get(way.given.check) % 15) == (word, word % 15)

    simulate(way, testbench)


@pytest.mark.parametrize("halves", [0, 1])
def test_a_flipped_bit_spoils_what_is_sent(halves: int) -> None:
    """A bit of a word that arrives, behind its residue."""
    choose = random.Random(halves)
    way = Way()

    async def testbench(ctx: Any) -> None:
        ctx.set(way.taken.halves, halves)
        for n in range(64):
            lower, upper = choose.getrandbits(32), choose.getrandbits(32)
            ctx.set(way.taken.lower, lower ^ (1 << n if n < 32 else 0))
            ctx.set(way.taken.lower_residue, lower % 15)
            ctx.set(way.taken.upper, upper ^ (1 << n - 32 if n >= 32 else 0))
            ctx.set(way.taken.upper_residue, upper % 15)
            await ctx.tick().repeat(5)
            assert ctx.get(way.given.check) % 15 != ctx.get(way.given.word) % 15

    simulate(way, testbench)
