"""SipHash-2-4, half a round in each cycle.

Both halves of a round are the same step once v0 and v2 have changed places behind the first:

    a, b = x + v1, y + v3
    v1, v3 = rotl(v1, 13 or 17) ^ a, rotl(v3, 16 or 21) ^ b
    x, y = b, rotl(a, 32)

So there are two adders of 64 bits, and each bit of v1, x and y is one table of four inputs.

Tested: `tests/hdl/test_management_parts.py`, beside the golden model's.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["SipHash", "SipHashStep"]

_C0, _C1, _C2, _C3 = (
    int.from_bytes(b"somepseudorandomlygeneratedbytes"[8 * n : 8 * n + 8], "big") for n in range(4)
)
_HALF_ROUNDS = 12
"""Of the last block, with the four rounds behind it."""


class SipHashStep(enum.Enum, shape=2):  # type: ignore[call-arg]
    """The operation on the word that was pushed."""

    KEY_HIGH = 0
    """It is the upper half of the key; the lower half comes next."""
    KEY_LOW = 1
    """It is the lower half of the key: the state is new."""
    BLOCK = 2
    """It is a block of the message, and not the last."""
    LAST = 3
    """It is the last block, with the length: the code comes."""


class SipHash(wiring.Component):
    """Makes codes of messages, 64 bits at a time.

    A word is pushed in four parts of 16 bits, the lowest first, and then used by a step. Neither
    may be asked for while `busy`. KEY_HIGH and KEY_LOW take a cycle, BLOCK 4, LAST 12.

    Members:
        push, part: The word moves down by 16 bits, and this is its upper part now.
        start, step: Use the word.
        busy: A step is not over.
        code: The code, behind LAST.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "push": In(1),
                "part": In(16),
                "start": In(1),
                "step": In(SipHashStep),
                "busy": Out(1),
                "code": Out(64),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        word, x, y, v1, v3 = (Signal(64, name=name) for name in ("word", "x", "y", "v1", "v3"))
        with m.If(self.push):
            m.d.sync += word.eq(Cat(word[16:], self.part))

        # The operations of the next cycle, each in a register of its own: every bit of the state is
        # then one table of four inputs behind an adder.
        acts, keyed, clear, low, inject, invert = (
            Signal(name=name) for name in ("acts", "keyed", "clear", "low", "inject", "invert")
        )
        left, last, first, second = Signal(range(_HALF_ROUNDS)), Signal(), Signal(), Signal()
        m.d.comb += [self.busy.eq(acts), self.code.eq(x ^ y ^ v1 ^ v3)]
        injects = left == _HALF_ROUNDS - 3
        m.d.sync += [
            first.eq(0),
            second.eq(~second),
            low.eq(injects),
            inject.eq(injects),
            invert.eq(injects & last),
            left.eq(left - 1),
            acts.eq(acts & (left != 0) & ~keyed & ~(inject & ~last)),
            keyed.eq(0),
            clear.eq(self.start & (self.step == SipHashStep.KEY_HIGH)),
        ]
        with m.If(self.start):
            m.d.sync += [
                acts.eq(1),
                keyed.eq(~self.step.as_value()[1]),
                low.eq(self.step == SipHashStep.KEY_LOW),
                first.eq(self.step.as_value()[1]),
                last.eq(self.step == SipHashStep.LAST),
                second.eq(0),
                left.eq(_HALF_ROUNDS - 1),
            ]

        a, b, v3_in = Signal(64), Signal(64), Signal(64)
        m.d.comb += [
            v3_in.eq(v3 ^ Mux(first, word, 0)),
            a.eq(x + v1),
            b.eq(y + v3_in),
        ]
        with m.If(acts):
            m.d.sync += [
                # With the lower half of the key comes a half round, in which v1 and v3, still
                # zero, become what the upper half has left in x and y.
                v1.eq(Mux(second, _rotated(v1, 17), _rotated(v1, 13)) ^ a),
                v3.eq(Mux(second, _rotated(v3_in, 21), _rotated(v3_in, 16)) ^ b),
                # `low` is both the lower half of the key, and the end of a block.
                x.eq(
                    Mux(
                        keyed,
                        word ^ Mux(low, Const(_C0, 64), Const(_C1, 64)),
                        b ^ Mux(low, word, 0),
                    )
                ),
                y.eq(
                    Mux(
                        keyed,
                        word ^ Mux(low, Const(_C2, 64), Const(_C3, 64)),
                        _rotated(a, 32) ^ Mux(invert, Const(0xFF, 64), 0),
                    )
                ),
            ]
        # As a register's own reset, which is stronger than its enable and costs no table.
        with m.If(clear):
            m.d.sync += [v1.eq(0), v3.eq(0)]
        return m


def _rotated(value: Value, by: int) -> Value:
    return Cat(value[64 - by :], value[: 64 - by])
