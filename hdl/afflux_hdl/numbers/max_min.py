"""MaxMin: the greater or the lesser of two numbers, without a slot's fixed point.

Numbers are ordered by their signs and magnitudes, and -0 is less than +0. NaN is the outcome if
either is NaN.

Tested: `tests/hdl/test_max_min.py`.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.numbers.formats import Fixed, Format

__all__ = ["MaxMin"]


class MaxMin(wiring.Component):
    """Merges two words of 32 bits.

    Latency: 1 cycle. Throughput: a word in each cycle. No back-pressure.

    Members:
        minimum: The lesser number, not the greater.
        first: The slot holds nothing yet.
        dtype: `wire.Dtype`: 2 and 3 are halves.
        held, arriving: An element of float32, or two of float16 or bfloat16.
        merged: The word to hold, one cycle later.
    """

    def __init__(self, fixed: Fixed) -> None:
        self._fixed = fixed
        bits = fixed.wide.bits
        super().__init__(
            {
                "minimum": In(1),
                "first": In(1),
                "dtype": In(2),
                "held": In(bits),
                "arriving": In(bits),
                "merged": Out(bits),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        f = self._fixed
        size = f.wide.bits // 2
        halves = self.dtype[1]
        keeps = self._keeps(m, halves, size)
        for n in range(2):
            place = slice(n * size, (n + 1) * size)
            is_nan = (~self.first & self._is_nan(self.held, n)) | self._is_nan(self.arriving, n)
            m.d.sync += self.merged[place].eq(Mux(keeps[n], self.held[place], self.arriving[place]))
            with m.If(is_nan):
                m.d.sync += self.merged[place].eq(
                    f.chosen(
                        self.dtype,
                        Const(f.wide.nan >> n * size, size),
                        (Const(f.halves[0].nan, size), Const(f.halves[1].nan, size)),
                    )
                )
        return m

    def _keeps(self, m: Module, halves: Value, size: int) -> list[Value]:
        """Return for each half of the word whether the held one stays."""
        # One chain of carries compares magnitudes. Between the halves a place hands a wide word's
        # carry on, and of two numbers shows that of the lower one.
        left = Cat(~self.held[:size], ~halves, ~self.held[size:])
        right = Cat(self.arriving[:size], Const(0, 1), self.arriving[size:])
        total = Signal(len(left) + 1)
        m.d.comb += total.eq(left + right)
        either = self.held | self.arriving
        # Bits compare like numbers if both are positive, and the other way round if not.
        upper, lower = total[-1] ^ either[-1], total[size] ^ either[size - 1]
        greater = (Mux(halves, lower, upper), upper)
        return [~self.first & (more == self.minimum) for more in greater]

    def _is_nan(self, word: Value, n: int) -> Value:
        """Return whether the number in half `n` of a word is NaN."""
        f = self._fixed

        def of(form: Format, element: Value) -> Value:
            fraction, exponent = element[: form.fraction_bits], element[form.fraction_bits : -1]
            return exponent.all() & fraction.any()

        wide = of(f.wide, word)
        first, second = (of(form, word[n * form.bits : (n + 1) * form.bits]) for form in f.halves)
        return f.chosen(self.dtype, wide, (first, second))
