"""Residues modulo 15 against plain Python."""

import random
from pathlib import Path

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator

from afflux_hdl.lib.residue import add, checked_bits, fits, less_one, residue, residues_of
from tests.support.yosys import YosysError, run_script


def test_digits_are_added_with_end_around_carry() -> None:
    m = Module()
    a, b, one = Signal(4), Signal(4), Signal()
    total, less = Signal(4), Signal(4)
    m.d.comb += [total.eq(add(m, a, b)), less.eq(less_one(m, a, one))]

    async def testbench(ctx) -> None:
        for n in range(512):
            ctx.set(a, n & 15)
            ctx.set(b, n >> 4)
            ctx.set(one, n >> 8)
            await ctx.delay(1e-9)
            assert ctx.get(total) % 15 == ((n & 15) + (n >> 4 & 15)) % 15
            assert ctx.get(less) % 15 == ((n & 15) - (n >> 8)) % 15

    simulate(m, testbench)


@pytest.mark.parametrize("bits", [32, 64])
def test_a_flipped_bit_of_a_word_or_of_its_residue_does_not_fit(bits: int) -> None:
    m = Module()
    data, check = Signal(bits), Signal(4)
    made, right = Signal(checked_bits(bits) - bits), Signal()
    m.d.comb += [made.eq(residues_of(m, data)), right.eq(fits(m, data[:32], check))]
    assert len(residue(m, data[:32])) == 4
    choose = random.Random(1)
    words = [0, 1, 15, 2**32 - 1, 2**31, *(choose.getrandbits(32) for _ in range(20))]

    async def testbench(ctx) -> None:
        async def judged(word: int, residue: int) -> bool:
            ctx.set(data, word | (choose.getrandbits(bits) >> 32 << 32))
            ctx.set(check, residue)
            await ctx.delay(1e-9)
            return bool(ctx.get(right))

        for word in words:
            await judged(word, 0)
            for n in range(bits // 32):
                assert ctx.get(made) >> 4 * n & 15 in range(16)
            own = ctx.get(made) & 15
            assert own % 15 == word % 15
            assert await judged(word, own)
            for bit in range(32):
                assert not await judged(word ^ 1 << bit, own)
            for other in range(16):
                assert await judged(word, other) == (other % 15 == word % 15)

    simulate(m, testbench)


@pytest.mark.parametrize("both_forms", [True, False])
def test_fits_is_what_residue_and_add_say(
    both_forms: bool, compiled_yosys: None, tmp_path: Path
) -> None:
    """Proved for every word and residue; and not so, if one of 15 were not as good as one of 0."""
    m = Module()
    word, check = Signal(32), Signal(4)
    differs = Signal(name="differs")
    left = add(m, residue(m, word), ~check)
    right = (left == 15) | (left == 0) if both_forms else left == 15
    m.d.comb += differs.eq(fits(m, word, check) ^ right)
    text = rtlil.convert(m, name="top", ports=[word, check, differs])
    (tmp_path / "top.il").write_text(text, encoding="utf-8")
    script = ("read_rtlil top.il", "proc", "opt", "sat -verify -prove differs 0")
    if both_forms:
        run_script(tmp_path, "proof", *script)
    else:
        with pytest.raises(YosysError, match="proof did fail"):
            run_script(tmp_path, "proof", *script)


def simulate(m: Module, testbench) -> None:
    simulator = Simulator(m)
    simulator.add_testbench(testbench)
    simulator.run()
