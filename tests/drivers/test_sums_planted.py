"""The test programs of sums see bugs that are planted into them, however they are optimised."""

import pytest

from tests.support.drivers.native_program import passes
from tests.support.planting import Bug, first_now

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

FAMILIES, PAIRS = "sums_families_test", "sums_pairs_test"

BUGS = {
    "a digit without its carry": Bug("sums/exact_sum.cpp", "carry >>= kDigitBits;", "carry = 0;"),
    "bits below are forgotten": Bug(
        "sums/exact_sum.cpp", "sticky = sticky || digits[k] != 0;", ";"
    ),
    "both infinities": Bug(
        "sums/exact_sum.cpp", "nan_ || (infinite_ && negative_infinite_)", "nan_"
    ),
    "-0 without all": Bug(
        "sums/exact_sum.cpp", "negative_zeros_ && sum_.all_present", "negative_zeros_"
    ),
    "a last exact addition counts": Bug(
        "sums/sum_block.cpp", "exact_ = exact_ && kernels().add(", "exact_ = kernels().add("
    ),
    "no end of an array": Bug("sums/exact_sums.cpp", "if (!rest) return one_by_one;", "return 0;"),
}

# In headers of the loops, compiled with an optimisation of their own.
KERNEL_BUGS = {
    # As if the compiler had moved the additions behind the look at their flag.
    "a look too early": (
        Bug(
            "sums/kernels/array_kernel.hpp",
            "return !inexact(room);",
            "return clear_inexact(room), !inexact(room);",
        ),
        "-O2",
    ),
    "no flag": (
        Bug("sums/kernels/inexact.hpp", "return (flags & kFlags) != 0;", "return false;"),
        "-O1",
    ),
    # Slow, but right: only the count of elements that were summed one by one shows it.
    "the flag of a rounding": (
        Bug(
            "sums/kernels/array_kernel.hpp",
            "} clear_inexact(room); } std::byte* place",
            "} } std::byte* place",
        ),
        "-O1",
    ),
    "rounded twice": (
        Bug(
            "sums/kernels/doubles.hpp",
            "singles({to_odd(wide.low), to_odd(wide.high)})",
            "singles(wide)",
        ),
        "-O1",
    ),
    "halves that lost a bit": (
        Bug("sums/kernels/array_kernel.hpp", "if (!fine) return false;", ""),
        "-O1",
    ),
    "a missing contribution is -0": (
        Bug("sums/kernels/doubles.hpp", "sum.all_present ? -0.0 : 0.0", "-0.0"),
        "-O1",
    ),
    "NaN as they come": (
        Bug("sums/kernels/doubles.hpp", "> 0x7F800000;", "> 0x7FFFFFFF;"),
        "-O1",
    ),
    "float16's infinities are numbers": (
        Bug("sums/kernels/doubles.hpp", "(special & 0x7F800000)", "0"),
        "-O1",
    ),
}


def test_without_a_bug_it_passes() -> None:
    assert passes("no bug in sums", None, program=FAMILIES)


@pytest.mark.long
@pytest.mark.timeout(4000)
@pytest.mark.parametrize("program", [FAMILIES, PAIRS])
def test_without_a_bug_all_pass(program: str) -> None:
    """Some 10**8 elements, and all pairs of bfloat16: minutes each."""
    assert passes("none, long", None, program=program, arguments=["long"], limit_s=3600)


@pytest.mark.parametrize("name", first_now(BUGS))
def test_bug_is_caught(name: str) -> None:
    assert not passes(name, BUGS[name], program=FAMILIES)


@pytest.mark.long
@pytest.mark.parametrize("optimisation", ["-O0", "-O1", "-O2", "-O3"])
def test_additions_stay_before_the_look_at_their_flag(optimisation: str) -> None:
    assert passes(f"sums {optimisation}", None, program=FAMILIES, kernels=[optimisation])


@pytest.mark.long
@pytest.mark.parametrize("name", KERNEL_BUGS)
def test_bug_in_a_loop_is_caught(name: str) -> None:
    bug, optimisation = KERNEL_BUGS[name]
    assert not passes(name, bug, program=FAMILIES, kernels=[optimisation])


@pytest.mark.long
def test_a_quotient_that_is_too_large_is_caught() -> None:
    right, wrong = (
        "store(at, narrow<kType>(quotient));",
        "store(at, narrow<kType>(quotient * 1.001F));",
    )
    bug = Bug("sums/kernels/choose.hpp", right, wrong)
    assert passes("no bug in pairs", None, program=PAIRS)
    assert not passes("a quotient that is too large", bug, program=PAIRS, kernels=["-O1"])
