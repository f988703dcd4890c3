"""Maxima and minima of numbers against those of rational numbers."""

import random

import pytest
from amaranth.sim import Simulator

from afflux_hdl.contract.wire import Dtype
from afflux_hdl.numbers.formats import Fixed, Format
from afflux_hdl.numbers.max_min import MaxMin
from tests.support.number_lane import value_of

FIXED = Fixed()
FORMATS = (FIXED.wide, FIXED.wide, *FIXED.halves)


def order(element: int, form: Format) -> tuple[float, bool]:
    """Return a key by which elements other than NaN are ordered: -0 is before +0."""
    value = value_of(element, form)
    return float(value), not element >> form.bits - 1


def expected(elements: list[int], form: Format, minimum: bool) -> int:
    if any(value_of(element, form) == "nan" for element in elements):
        return form.nan
    choose = min if minimum else max
    return choose(elements, key=lambda element: order(element, form))


@pytest.mark.parametrize("minimum", [False, True])
@pytest.mark.parametrize("dtype", [Dtype.FLOAT32, Dtype.FLOAT16, Dtype.BFLOAT16])
def test_the_greater_or_lesser_comes_a_cycle_later(dtype: Dtype, minimum: bool) -> None:
    form, choose = FORMATS[dtype], random.Random(dtype)
    sign, top = 1 << form.bits - 1, form.infinity
    corners = [0, 1, top - 1, top, top + 1, form.nan, *(choose.getrandbits(form.bits - 1),) * 2]
    corners = [corner | negative for corner in corners for negative in (0, sign)]
    pairs = [(a, b) for a in corners for b in corners]
    pairs += [(choose.getrandbits(form.bits), choose.getrandbits(form.bits)) for _ in range(100)]
    elements = FIXED.wide.bits // form.bits
    part = MaxMin(FIXED)

    async def testbench(ctx) -> None:
        ctx.set(part.dtype, dtype)
        ctx.set(part.minimum, minimum)
        for n in range(2 * len(pairs)):
            first, lot = n % 7 == 0, [pairs[(n + k) % len(pairs)] for k in range(elements)]
            for port, values in zip(
                (part.held, part.arriving), zip(*lot, strict=True), strict=True
            ):
                ctx.set(port, sum(x << k * form.bits for k, x in enumerate(values)))
            ctx.set(part.first, first)
            if elements == 1:
                assert ctx.get(part.less) == (ctx.get(part.held) < ctx.get(part.arriving))
            await ctx.tick()
            assert (sum(ctx.get(part.checks)) - ctx.get(part.merged)) % 15 == 0
            for k, (held, arriving) in enumerate(lot):
                among = [arriving] if first else [held, arriving]
                found = ctx.get(part.merged) >> k * form.bits & ((1 << form.bits) - 1)
                assert found == expected(among, form, minimum), (held, arriving, first)

    simulator = Simulator(part)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()
