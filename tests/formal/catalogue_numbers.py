"""The proofs of the sums of numbers: of tiny formats, which are quick, and of the real ones.

In 40 bits a wide element's fraction goes over the cut between the halves, in 64 it does not.
"""

from tests.formal.sby import Proof, SoughtBug

__all__ = ["NUMBERS"]

DTYPES = {1: "float32", 2: "float16", 3: "bfloat16"}
LIKE = {1: "a tiny wide format", 2: "tiny halves", 3: "other tiny halves"}

ALIGN_BUGS = (
    SoughtBug(
        "a subnormal is moved as if its exponent were 0",
        6,
        "numbers/align.py",
        "Cat(normal, ~exponent)",
        "Cat(Const(1, 1), ~exponent)",
    ),
    SoughtBug(
        "the upper half comes into the lower one",
        6,
        "numbers/align.py",
        "with m.If(unpacked.halves):",
        "with m.If(0):",
    ),
    SoughtBug(
        "a carry goes from half to half",
        6,
        "numbers/accumulate.py",
        "~self.halves | carry[1], slot[cut:]",
        "~carry[1] | carry[1], slot[cut:]",
    ),
)

ROUND_BUGS = (
    SoughtBug(
        "negative numbers are rounded the other way",
        8,
        "numbers/round.py",
        "~following | ~rest",
        "~following | rest",
    ),
    SoughtBug(
        "a subnormal's leading bit goes to the top",
        8,
        "numbers/round.py",
        "stops = [found[k] | (limit == k) for k in range(3)]",
        "stops = [found[k] for k in range(3)]",
    ),
    SoughtBug(
        "a sum that is too large is no infinity",
        8,
        "numbers/round.py",
        "special.any() | too_large[e]",
        "special.any()",
    ),
)


def _of(
    harness: str, depth: int, dtype: int, limit_s: int, bugs: tuple[SoughtBug, ...]
) -> tuple[Proof, ...]:
    """Return a harness's proofs of tiny formats, and of the real ones in 64 bits and in 40."""
    name = harness.partition(":")[0]
    return (
        Proof(
            name=f"{name}, {LIKE[dtype]}",
            harness=harness,
            depth=depth,
            arguments={"dtype": dtype, "tiny": True},
            cover=12 if dtype == 2 else 0,
            quick=dtype == 2,
            bugs=bugs if dtype == 2 else (),
        ),
        Proof(
            name=f"{name}, {DTYPES[dtype]}",
            harness=harness,
            depth=depth,
            arguments={"dtype": dtype},
            limit_s=limit_s,
        ),
        Proof(
            name=f"{name}, {DTYPES[dtype]} in 40 bits",
            harness=harness,
            depth=depth,
            arguments={"dtype": dtype, "slot_bits": 40},
            limit_s=limit_s,
        ),
    )


NUMBERS = tuple(
    proof
    for dtype in DTYPES
    for proof in (
        *_of("align:AlignHarness", 5, dtype, 600, ALIGN_BUGS),
        *_of("round:RoundHarness", 6, dtype, 1800, ROUND_BUGS),
    )
)
