"""Round: a slot's word to floating-point numbers, rounded once to nearest, ties to even.

::

    cycle   t       t+1        t+2           t+3         t+4           t+5
            slot    16s to     moved by      by 0, 4,    by 0 to 3,    rounded
                    move by    16s           8, 12       its rest

A number moves up until its leading bit is at the top, or until the top is the place of the least
normal exponent: what is then smaller is subnormal.

None is negated. The inverted bits of a negative number, with ones without end behind them, are its
magnitude: so its leading bit is found, and it is rounded, with each bit inverted on the way. Of a
power of two the leading bit is one place lower there, and all that follow are ones; rounding brings
it back.

Proved: `tests/formal/round.py`. Tested: `tests/hdl/test_numbers.py`.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.numbers.formats import GUARD_BITS, Fixed, Format, Special
from afflux_hdl.numbers.residue import fits, pairs
from afflux_hdl.numbers.shifts import moved_up

__all__ = ["Round"]


class Round(wiring.Component):
    """Makes a slot's word a word of 32 bits.

    Latency: 5 cycles. Throughput: a word in each cycle. No back-pressure and no enable: the stage
    that takes the output knows when it is valid.

    Members:
        slot: The slot's word, with all contributions.
        dtype: `wire.Dtype`: 2 and 3 are halves.
        exponent: E, with which the contributions have been aligned.
        scale: k, 0 to 6: the sum is multiplied by 2**-k before it is rounded.
        all_present: All workers have contributed, so a sum may be -0.
        lost: A contribution to the block is not exact: the word becomes all ones.
        word: An element of float32, or two of float16 or bfloat16, five cycles later.
        wrong: The slot's word did not fit its residue, five cycles later. Of a lost one nothing is
            said.
    """

    def __init__(self, fixed: Fixed) -> None:
        self._fixed = fixed
        super().__init__(
            {
                "slot": In(fixed.slot()),
                "dtype": In(2),
                "exponent": In(fixed.exponent_bits),
                "scale": In(range(GUARD_BITS + 1)),
                "all_present": In(1),
                "lost": In(1),
                "word": Out(fixed.wide.bits),
                "wrong": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        f = self._fixed
        # The sign's place is not part of the number: the leading bit is below it.
        number, side = self.slot.value[:-1], self._take(m)
        for n in range(len(f.strides)):
            number, side = self._find(m, number, side, n)
        self.exact = self._measure(m, number, side)
        self._finish(m, self.exact)
        return m

    def _side(self, steps: int) -> data.StructLayout:
        """Return the layout of what goes beside a number that so many steps are known of.

        Of pairs the first belongs to the lower half, the second to the upper one; of a wide element
        both say the same. `room` is the exponent field, less one, of a number whose leading bit is
        at the top: the number may move up so far. `limit` is the digits of that for the steps that
        are left, all ones if they cannot reach it.
        """
        f = self._fixed
        return data.StructLayout(
            {
                "dtype": 2,
                "room": f.exponent_bits + 1,
                "limit": data.ArrayLayout(2 * (len(f.strides) - steps), 2),
                "distance": data.ArrayLayout(2 * steps, 2),
                "negative": 2,
                "minus_zero": 2,
                "special": data.ArrayLayout(2, 2),
                "lost": 1,
                "wrong": 1,
            }
        )

    def _take(self, m: Module) -> data.View:
        """Look at the slot's word and at what comes with it."""
        f = self._fixed
        side = Signal(self._side(0))
        halves, value = self.dtype[1], self.slot.value
        digits = len(side.limit[0])
        limit = Mux(side.room[digits:].any(), Const(-1, digits), side.room[:digits])
        m.d.comb += [
            side.dtype.eq(self.dtype),
            side.room.eq(self.exponent + (GUARD_BITS - 1) - self.scale),
            side.limit[0].eq(limit),
            side.limit[1].eq(limit),
            side.negative.eq(Cat(Mux(halves, value[f.half - 1], value[-1]), value[-1])),
            side.special.eq(self.slot.special),
            side.minus_zero.eq(~self.slot.not_minus_zero & self.all_present.replicate(2)),
            side.lost.eq(self.lost),
            side.wrong.eq(~fits(m, self._digits(halves), self.slot.residue) & ~self.lost),
        ]
        return side

    def _digits(self, halves: Value) -> list[Value]:
        """Return pairs of bits whose sum is the slot's value, modulo 3, with the elements' signs.

        A sign counts -2**n where a bit there would count 2**n: 1 instead of 2, as n is odd.
        """
        value, cut = self.slot.value, self._fixed.half
        middle = value[cut - 1]
        return [
            *pairs(value[: cut - 1]),
            Cat(middle & halves, middle & ~halves),
            *pairs(value[cut:-1]),
            Cat(value[-1], Const(0, 1)),
        ]

    def _find(self, m: Module, number: Value, side: data.View, n: int) -> tuple[Value, data.View]:
        """Find the digit of step `n`; return the number that has moved by it, a cycle later."""
        f = self._fixed
        stride, halves = f.strides[n], side.dtype[1]
        known = Signal(self._side(n + 1), name=f"known_{n}")
        held = Signal(len(number), name=f"held_{n}", reset_less=True)
        lower_if_wide = Signal(f.half, reset_less=True)
        m.d.sync += [held.eq(number), lower_if_wide.eq(number[: f.half])]
        with m.If(halves):
            m.d.sync += lower_if_wide.eq(0)
        for name in ("dtype", "room", "negative", "minus_zero", "special", "lost", "wrong"):
            m.d.sync += known[name].eq(side[name])

        digits = []
        signs = Cat(side.negative[0].replicate(f.half), side.negative[1].replicate(f.half - 1))
        magnitude = number ^ signs
        for e, (top, end) in enumerate(self._ranges):
            # Three groups of bits from the top, and whether each has a bit that is set. One that
            # goes beyond the end counts as if it had: none that is behind it will be looked for.
            found = []
            for k in range(3):
                start, stop = (top + 1 - j * stride for j in (k + 1, k))
                beyond = Const(1) if start < 0 else halves & (start < end)
                found.append(magnitude[max(0, start) : max(0, stop)].any() | beyond)
            limit = side.limit[e][-2:]
            digit = Signal(2, name=f"digit_{n}_{e}")
            stops = [found[k] | (limit == k) for k in range(3)]
            m.d.comb += digit.eq(Mux(stops[0], 0, Mux(stops[1], 1, Mux(stops[2], 2, 3))))
            m.d.sync += known.limit[e].eq(side.limit[e][:-2])
            with m.If(digit != limit):
                m.d.sync += known.limit[e].eq(-1)
            digits.append(digit)
        for e, digit in enumerate((Mux(halves, digits[0], digits[1]), digits[1])):
            m.d.sync += known.distance[e].eq(Cat(digit, side.distance[e]))

        moved = Signal(len(number), name=f"moved_{n}")
        upper = Cat(lower_if_wide, held[f.half :])
        m.d.comb += moved.eq(
            Cat(
                moved_up(held[: f.half], stride, known.distance[0][:2]),
                moved_up(upper, stride, known.distance[1][:2])[f.half :],
            )
        )
        return moved, known

    @property
    def _ranges(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The highest and the lowest place of each half's number; a wide one has the second top."""
        return (self._fixed.half - 2, 0), (self._fixed.slot_bits - 2, self._fixed.half)

    def _measure(self, m: Module, number: Value, side: data.View) -> data.View:
        """Look at what has moved: its exponent field, and what decides about rounding up.

        An infinity is a number without a fraction, with the greatest exponent field. NaN has the
        fraction's highest bit besides.
        """
        f = self._fixed
        exact = Signal(
            data.StructLayout(
                {
                    "number": len(number),
                    "dtype": 2,
                    "exponent": data.ArrayLayout(f.exponent_bits, 2),
                    "last": 2,
                    "next": 2,
                    "rest": 2,
                    "inverted": 2,
                    "sign": 2,
                    "lost": 1,
                    "wrong": 1,
                }
            ),
            reset_less=True,
        )
        for name in ("dtype", "lost", "wrong"):
            m.d.sync += exact[name].eq(side[name])
        limit = f.by_format(side.dtype, lambda form: form.exponent_max)
        wide = self._behind(number, f.wide, f.slot_bits - 2, 0)
        for e, (top, end) in enumerate(self._ranges):
            halves = [self._behind(number, form, top, end) for form in f.halves]
            choices = zip(wide, *halves, strict=True)
            last, following, rest = (f.chosen(side.dtype, w, (a, b)) for w, a, b in choices)
            negative, special = side.negative[e], side.special[e]
            exponent = Signal(f.exponent_bits + 1, name=f"exponent_{e}")
            m.d.comb += exponent.eq(side.room + 1 - side.distance[e])
            own, is_element = exact.number[end : top + 2], Const(1) if e else side.dtype[1]
            m.d.sync += [
                own.eq(number[end : top + 2]),
                exact.exponent[e].eq(exponent),
                exact.last[e].eq(last),
                exact.next[e].eq(following),
                exact.rest[e].eq(rest),
                exact.inverted[e].eq(negative),
                exact.sign[e].eq(negative | side.minus_zero[e]),
            ]
            # Without a leading bit it is subnormal, or zero.
            with m.If(number[top] == negative):
                m.d.sync += exact.exponent[e].eq(0)
            with m.If((exponent >= limit) | special.any()):
                m.d.sync += [
                    own.eq((is_element & (special == Special.NAN)) << (top - 1 - end)),
                    exact.exponent[e].eq(limit),
                    exact.next[e].eq(0),
                    exact.inverted[e].eq(0),
                ]
            with m.If(special.any()):
                m.d.sync += exact.sign[e].eq(special == Special.MINUS_INFINITY)
        return exact

    @staticmethod
    def _behind(number: Value, form: Format, top: int, end: int) -> tuple[Value, Value, Value]:
        """Return the last bit that a format keeps, the next one, and whether any follows."""
        last = top - form.fraction_bits
        following = number[last - 1] if last > end else Const(0, 1)
        return number[last], following, number[end : max(end, last - 1)].any()

    def _finish(self, m: Module, exact: data.View) -> None:
        """Round, in the places that the fields have in the word."""
        f = self._fixed
        halves, size = exact.dtype[1], f.wide.bits // 2
        body = Signal(f.wide.bits)
        m.d.comb += body.eq(f.chosen(exact.dtype, *self._packed(exact)))
        # Ties to even of the magnitude, of which ones follow the bits of a negative number.
        ups = Signal(2)
        for e, inverted in enumerate(exact.inverted):
            rest, last, following = exact.rest[e], exact.last[e], exact.next[e]
            m.d.comb += ups[e].eq(
                Mux(inverted, ~following | ~(rest | last), following & (rest | last))
            )
        # A carry goes on into the exponent field, and from the greatest one makes infinity. For the
        # places before the halves see `Accumulate`.
        left = Cat(ups[0], body[:size], halves & ups[1], body[size:])
        right = Cat(Const(1, 1), Const(0, size), ~halves | ups[1], Const(0, size))
        total = Signal(len(left))
        m.d.comb += total.eq(left + right)
        m.d.sync += self.wrong.eq(exact.wrong)
        word = Signal(f.wide.bits, reset_less=True)
        m.d.comb += self.word.eq(word)
        m.d.sync += word.eq(Cat(total[1 : size + 1], total[size + 2 : -1], exact.sign[1]))
        with m.If(halves):
            m.d.sync += word[size - 1].eq(exact.sign[0])
        with m.If(exact.lost):
            m.d.sync += word.eq(-1)

    def _packed(self, exact: data.View) -> tuple[Value, tuple[Value, Value]]:
        """Return the fields of each format before rounding, with signs of 0."""
        f = self._fixed

        def fields(form: Format, e: int) -> Value:
            top = self._ranges[e][0]
            fraction = exact.number[top - form.fraction_bits : top]
            inverted = fraction ^ exact.inverted[e].replicate(form.fraction_bits)
            return Cat(inverted, exact.exponent[e][: form.exponent_bits], Const(0, 1))

        half_0, half_1 = (Cat(fields(form, 0), fields(form, 1)) for form in f.halves)
        return fields(f.wide, 1), (half_0, half_1)
