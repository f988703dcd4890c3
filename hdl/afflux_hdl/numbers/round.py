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

A number's residue follows it: it becomes its negative with each place by which the number moves. So
the slot's residue is compared behind the last move, and a bit that flips on the way is seen as one
that flips in the slot is. All that goes beside a number has a parity, to which each step adds what
it has found. The parts of a word that are still to be rounded have a parity of their own, made
before they are stored.

Proved: `tests/formal/round.py`. Tested: `tests/hdl/test_numbers.py`.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.lib import residue as of_words
from afflux_hdl.numbers.formats import GUARD_BITS, Fixed, Format, Special
from afflux_hdl.numbers.residue import RESIDUE_BITS, fits, minus, pairs, total
from afflux_hdl.numbers.shifts import moved_up

__all__ = ["Round"]

OF_SLOT = ("negative", "special", "not_minus_zero", "residue")
"""Members beside a number that its residue watches over."""


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
        unfit: There is no sum to be rounded, or these are not known.
        word: An element of float32, or two of float16 or bfloat16, five cycles later.
        check: With it: its residue, modulo 15 (`afflux_hdl.lib.residue`), made of its parts.
        wrong: It was `unfit`, or a bit has flipped, in the slot or here, five cycles later. Of a
            lost one that is not said of the slot.
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
                "unfit": In(1),
                "word": Out(fixed.wide.bits),
                "check": Out(of_words.RESIDUE_BITS),
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
        both say the same. `top` is the exponent field of a number whose leading bit is at the top,
        and `room` one less: the number may move up so far. `free` says that the steps that are left
        cannot reach that. `residue` is the slot's, and watches over `OF_SLOT`; `parity` is that of
        `_beside`.
        """
        f = self._fixed
        return data.StructLayout(
            {
                "wrong": 1,
                "negative": 2,
                "special": data.ArrayLayout(2, 2),
                "not_minus_zero": 2,
                "residue": RESIDUE_BITS,
                "parity": 1,
                "dtype": 2,
                "room": f.exponent_bits + 1,
                "top": f.exponent_bits + 1,
                "all_present": 1,
                "lost": 1,
                "free": 2,
                "distance": data.ArrayLayout(2 * steps, 2),
            }
        )

    def _take(self, m: Module) -> data.View:
        """Look at the slot's word and at what comes with it."""
        f = self._fixed
        side = Signal(self._side(0))
        halves, value = self.dtype[1], self.slot.value
        m.d.comb += [
            side.dtype.eq(self.dtype),
            side.room.eq(self.exponent + (GUARD_BITS - 1) - self.scale),
            side.top.eq(self.exponent + GUARD_BITS - self.scale),
            side.free.eq(side.room[2 * len(f.strides) :].any().replicate(2)),
            side.negative.eq(Cat(Mux(halves, value[f.half - 1], value[-1]), value[-1])),
            side.special.eq(self.slot.special),
            side.not_minus_zero.eq(self.slot.not_minus_zero),
            side.residue.eq(self.slot.residue),
            side.all_present.eq(self.all_present),
            side.lost.eq(self.lost),
            side.wrong.eq(self.unfit),
            side.parity.eq(self._beside(side).xor()),
        ]
        return side

    @staticmethod
    def _beside(side: data.View) -> Value:
        """Return what the parity is of."""
        steps = Cat(side.free, side.distance)
        given = Cat(side.dtype, side.room, side.top, side.all_present, side.lost)
        return Cat(given, side.negative, steps)

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
        for name in (*OF_SLOT, "dtype", "room", "top", "all_present", "lost", "wrong"):
            m.d.sync += known[name].eq(side[name])

        digits, free = [], []
        step = side.room[2 * (len(f.strides) - n - 1) :][:2]
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
            limit = step | side.free[e].replicate(2)
            digit = Signal(2, name=f"digit_{n}_{e}")
            stops = [found[k] | (limit == k) for k in range(3)]
            m.d.comb += digit.eq(Mux(stops[0], 0, Mux(stops[1], 1, Mux(stops[2], 2, 3))))
            free.append(side.free[e] | (digit != step))
            digits.append(digit)
        digits[0] = Mux(halves, digits[0], digits[1])
        for e in range(2):
            m.d.sync += [
                known.free[e].eq(free[e]),
                known.distance[e].eq(Cat(digits[e], side.distance[e])),
            ]
        changed = Cat(side.free, *free, *digits)
        m.d.sync += known.parity.eq(side.parity ^ changed.xor())

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
        size = f.wide.bits // 2
        found = Signal(
            data.StructLayout(
                {
                    "body": f.wide.bits,
                    "next": 2,
                    "rest": 2,
                    "inverted": 2,
                    "sign": 2,
                    "halves": 1,
                    "lost": 1,
                }
            )
        )
        m.d.comb += [found.halves.eq(side.dtype[1]), found.lost.eq(side.lost)]
        fields, too_large = [], []
        limit = f.by_format(side.dtype, lambda form: form.exponent_max)
        wide = self._behind(number, f.wide, f.slot_bits - 2, 0)
        for e, (top, end) in enumerate(self._ranges):
            halves = [self._behind(number, form, top, end) for form in f.halves]
            choices = zip(wide, *halves, strict=True)
            following, rest = (f.chosen(side.dtype, w, (a, b)) for w, a, b in choices)
            exponent = Signal(f.exponent_bits + 1, name=f"exponent_{e}")
            negative = side.negative[e]
            # Without a leading bit it is subnormal, or zero.
            normal = number[top] != negative
            fields.append(exponent & normal.replicate(len(exponent)))
            too_large.append(exponent >= limit)
            m.d.comb += [
                exponent.eq(side.top - side.distance[e]),
                found.next[e].eq(following),
                found.rest[e].eq(rest),
                found.inverted[e].eq(negative),
                found.sign[e].eq(negative | (~side.not_minus_zero[e] & side.all_present)),
            ]
            with m.If(side.special[e].any()):
                m.d.comb += found.sign[e].eq(side.special[e] == Special.MINUS_INFINITY)
        exact = Signal(
            data.StructLayout({"found": found.shape(), "parity": 1, "wrong": 1}), reset_less=True
        )
        m.d.comb += found.body.eq(f.chosen(side.dtype, *self._packed(number, side, fields)))
        exact = Signal(
            data.StructLayout({"found": found.shape(), "parity": 1, "wrong": 1}), reset_less=True
        )
        m.d.sync += [exact.found.eq(found), exact.wrong.eq(self._is_wrong(m, number, side))]
        parity = Cat(found.rest, found.sign, found.halves, found.lost).xor()
        for e, special in enumerate(side.special):
            place = slice(e * size, (e + 1) * size)
            named = self._named(side.dtype, e, special == Special.NAN)
            own = Signal(name=f"parity_{e}")
            m.d.comb += own.eq(Cat(found.body[place], found.next[e], found.inverted[e]).xor())
            with m.If(special.any() | too_large[e]):
                m.d.comb += own.eq(named.xor())
                m.d.sync += [
                    exact.found.body[place].eq(named),
                    exact.found.next[e].eq(0),
                    exact.found.inverted[e].eq(0),
                ]
            parity = parity ^ own
        m.d.sync += exact.parity.eq(parity)
        return exact

    def _named(self, dtype: Value, e: int, is_nan: Value) -> Value:
        """Return the part of a word for an element that is infinite or NaN, with a sign of 0.

        A bit that is the same for all dtypes is a constant, for which a register can be cleared.
        """
        f = self._fixed
        size = f.wide.bits // 2
        bits = []
        for n in range(size):
            forms = ((f.wide, e * size + n), *((form, n) for form in f.halves))
            of = [(form.infinity >> at & 1, form.nan >> at & 1) for form, at in forms]
            bit = [Const(1) if infinity else is_nan if nan else Const(0) for infinity, nan in of]
            bits.append(f.chosen(dtype, bit[0], (bit[1], bit[2])) if len(set(of)) > 1 else bit[0])
        return Cat(bits)

    def _is_wrong(self, m: Module, number: Value, side: data.View) -> Value:
        """Return whether what has moved does not fit the residue of the slot, or its parity."""
        f = self._fixed
        cut, halves = f.half, side.dtype[1]
        # The pair above the lower half's number is its sign, or a bit of a wide one. For the values
        # of signs see `Fixed.digits`.
        middle = number[cut - 1]
        parts = (
            [*pairs(number[: cut - 1]), Cat(side.negative[0] & halves, middle & ~halves)],
            [*pairs(number[cut:]), side.negative[1]],
        )
        moved = [minus(total(m, part), side.distance[e][0]) for e, part in enumerate(parts)]
        flags = [side.special[0], side.special[1], side.not_minus_zero]
        fitting = fits(m, [*moved, *flags], side.residue)
        return side.wrong | (~fitting & ~side.lost) | (self._beside(side).xor() != side.parity)

    @staticmethod
    def _behind(number: Value, form: Format, top: int, end: int) -> tuple[Value, Value]:
        """Return the bit behind the last that a format keeps, and whether that or any follows."""
        last = top - form.fraction_bits
        following = number[last - 1] if last > end else Const(0, 1)
        return following, number[last] | number[end : max(end, last - 1)].any()

    def _packed(
        self, number: Value, side: data.View, exponents: list[Value]
    ) -> tuple[Value, tuple[Value, Value]]:
        """Return the fields of each format before rounding, with signs of 0."""
        f = self._fixed

        def fields(form: Format, e: int) -> Value:
            top = self._ranges[e][0]
            fraction = number[top - form.fraction_bits : top]
            inverted = fraction ^ side.negative[e].replicate(form.fraction_bits)
            return Cat(inverted, exponents[e][: form.exponent_bits], Const(0, 1))

        half_0, half_1 = (Cat(fields(form, 0), fields(form, 1)) for form in f.halves)
        return fields(f.wide, 1), (half_0, half_1)

    def _finish(self, m: Module, exact: data.View) -> None:
        """Round, in the places that the fields have in the word."""
        size, found = self._fixed.wide.bits // 2, exact.found
        body, halves = found.body, found.halves
        # Ties to even of the magnitude, of which ones follow the bits of a negative number.
        ups = Signal(2)
        for e, inverted in enumerate(found.inverted):
            rest, following = found.rest[e], found.next[e]
            m.d.comb += ups[e].eq(Mux(inverted, ~following | ~rest, following & rest))
        # A carry goes on into the exponent field, and from the greatest one makes infinity. For the
        # places before the halves see `Accumulate`.
        left = Cat(ups[0], body[:size], halves & ups[1], body[size:])
        right = Cat(Const(1, 1), Const(0, size), ~halves | ups[1], Const(0, size))
        rounded = Signal(len(left))
        m.d.comb += rounded.eq(left + right)
        # Beside the sum its residue is made: each carry counts 1, modulo 15, and each sign 8.
        carries = Cat(ups[0], Const(0, 2), found.sign[1], halves & ups[1], Const(0, 2))
        parts = Cat(body, carries, halves & found.sign[0])
        m.d.sync += [
            self.wrong.eq(exact.wrong | (found.as_value().xor() != exact.parity)),
            self.check.eq(of_words.residue(m, parts)),
        ]
        word = Signal(self._fixed.wide.bits, reset_less=True)
        m.d.comb += self.word.eq(word)
        m.d.sync += word.eq(Cat(rounded[1 : size + 1], rounded[size + 2 : -1], found.sign[1]))
        with m.If(halves):
            m.d.sync += word[size - 1].eq(found.sign[0])
        with m.If(found.lost):
            m.d.sync += [word.eq(-1), self.check.eq(0)]
