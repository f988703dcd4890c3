"""The golden model: correctly rounded sums, whatever the way."""

import itertools
import random
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from afflux_sim.golden.merge import (
    Contribution,
    block_of_elements,
    elements_of_block,
    reduce_lane,
)
from afflux_sim.golden.network import deliver, run_in_order, run_unkindly
from afflux_sim.golden.reductions import reduce_numbers
from afflux_sim.golden.rounding import FORMATS
from afflux_sim.golden.sums import (
    Special,
    add,
    bits_of_number,
    extreme,
    number_of_bits,
    number_of_partial,
    partial_of_number,
)
from tests.support.golden_job import new_job
from tests.support.golden_tensors import BITS, DTYPES, KINDS, bits_of, draw, reductions

FLOATS = ("float32", "float16", "bfloat16")
OPERATIONS = [(dtype, reduction) for dtype in DTYPES for reduction in reductions(dtype)]


def as_doubles(bits, dtype):
    if dtype == "bfloat16":
        return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return bits.view(dtype).astype(np.float64)


def rounded(doubles, dtype):
    """Return doubles rounded to the dtype, by numpy; bfloat16 from float32, which holds them."""
    with np.errstate(over="ignore"):
        if dtype != "bfloat16":
            return doubles.astype(dtype).view(BITS[dtype])
    bits = doubles.astype(np.float32).view(np.uint32).astype(np.int64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def expected(tensors, dtype, reduction):
    if dtype == "int32":
        stacked = np.stack(tensors).astype(np.int64)
        if reduction == "sum":
            return stacked.sum(axis=0).astype(np.int32).view(np.uint32)
        return getattr(stacked, reduction)(axis=0).astype(np.int32).view(np.uint32)
    columns = [bits_of(tensor, dtype).tolist() for tensor in tensors]
    return np.array(reduce_numbers(columns, dtype, reduction), dtype=BITS[dtype])


def exchange(engine, workers):
    """Deliver what the workers send now, and the answers."""
    for worker in workers:
        for frame in worker.frames_to_send():
            deliver(engine.receive(frame), workers)


def assert_all_equal(results, tensors, dtype, reduction):
    right = expected(tensors, dtype, reduction)
    for worker, result in enumerate(results):
        wrong = bits_of(result, dtype) != right
        assert not wrong.any(), f"worker {worker}: {np.flatnonzero(wrong)[:10]}"


@pytest.mark.parametrize("dtype", FLOATS)
def test_sums_that_a_double_holds_are_rounded_as_numpy_rounds(dtype):
    # Integers of few bits, at exponents near one another: numpy's doubles add them exactly.
    rng = np.random.default_rng(1)
    ranks = 5
    # bfloat16 goes through float32: sums of integers below 2**20 have no second rounding there.
    drawn = rng.integers(-(2**18), 2**18, (ranks, 4000)) * 2.0 ** rng.integers(-9, 9, 4000)
    if dtype == "float16":
        drawn = drawn / 2**14
    columns = [rounded(x.astype(np.float64), dtype) for x in drawn]
    right = rounded(sum(as_doubles(x, dtype) for x in columns) + 0.0, dtype)
    bits = reduce_numbers([x.tolist() for x in columns], dtype, "sum")
    # A zero sum is +0 here: no element is −0 at all ranks.
    assert np.array_equal(np.array(bits, dtype=BITS[dtype]), right)


@pytest.mark.parametrize(
    ("dtype", "all_of_16_bits"),
    [
        *((dtype, False) for dtype in FLOATS),
        *(pytest.param(dtype, True, marks=pytest.mark.long) for dtype in ("float16", "bfloat16")),
    ],
)
def test_every_number_is_its_own_sum(dtype, all_of_16_bits):
    of = FORMATS[dtype]
    size = of.exponent_bits + of.fraction_bits + 1
    if size == 16 and all_of_16_bits:
        every: Sequence[int] = range(1 << size)
    else:
        every = random.Random(2).sample(range(1 << size), 12_000)
    for bits in every:
        number = number_of_bits(bits, of)
        expected_bits = of.nan if number is Special.NAN else bits
        assert bits_of_number(add([number]), of) == expected_bits
        assert bits_of_number(add([number, Fraction(0)]), of) == (
            0 if number is Special.NEGATIVE_ZERO else expected_bits
        )


def test_the_examples_that_version_1_loses():
    for values, total in (
        ([1e10, 1e-3], [1e10]),
        ([1e9, 1.0, -1e9], [1.0]),
        ([1.0, 2.0**-24, 2.0**-60], [1.0 + 2.0**-23]),
        ([3e38, 3e38, -3e38], [3e38]),
    ):
        columns = [[int(np.float32(value).view(np.uint32))] for value in values]
        right = np.array(total, dtype=np.float32).view(np.uint32).tolist()
        for order in itertools.permutations(columns):
            assert reduce_numbers(order, "float32", "sum") == right


@pytest.mark.parametrize(
    ("numbers", "total"),
    [
        ([-0.0, -0.0], -0.0),
        ([-0.0, 0.0], 0.0),
        ([1.0, -1.0], 0.0),
        ([np.inf, 1.0], np.inf),
        ([-np.inf, 3e38], -np.inf),
        ([np.inf, -np.inf], np.nan),
        ([np.nan, -np.inf], np.nan),
        ([3e38, 3e38], np.inf),
        ([1e-45, 1e-45], 2.8e-45),
    ],
)
def test_special_numbers(numbers, total):
    columns = [[int(np.float32(x).view(np.uint32))] for x in numbers]
    right = 0x7FC00000 if np.isnan(total) else int(np.float32(total).view(np.uint32))
    assert reduce_numbers(columns, "float32", "sum") == [right]
    assert reduce_numbers(columns[::-1], "float32", "sum") == [right]


@pytest.mark.parametrize("dtype", FLOATS)
def test_an_average_is_in_range_wherever_its_dtype_holds_it(dtype):
    of = FORMATS[dtype]
    largest = of.infinity - 1
    for ranks in range(1, 65):
        # One rounding where N is a power of two, else two.
        (average,) = reduce_numbers([[largest]] * ranks, dtype, "avg")
        assert largest - (ranks & (ranks - 1) != 0) <= average <= largest
        (average,) = reduce_numbers([[1]] * ranks, dtype, "avg")
        assert 1 <= average <= 1 + (ranks & (ranks - 1) != 0)


def test_extremes():
    of = FORMATS["float32"]
    one, minus, nan = (int(np.float32(x).view(np.uint32)) for x in (1.0, -1.0, np.nan))
    assert extreme([one, minus], of, greatest=True) == one
    assert extreme([one, minus], of, greatest=False) == minus
    assert extreme([of.sign, 0], of, greatest=True) == 0
    assert extreme([of.sign, 0], of, greatest=False) == of.sign
    assert extreme([one, nan | of.sign, minus], of, greatest=True) == of.nan


@pytest.mark.parametrize(
    ("name", "width"),
    [("float32", 40), ("float32", 48), ("float32", 64), ("float16", 32), ("bfloat16", 32)],
)
def test_partial_sums_stand_for_their_numbers_or_are_not_summed(name, width):
    of = FORMATS[name]
    rng = random.Random(width)
    kept = 0
    for _ in range(3000):
        exponent = rng.randrange(1, 2**of.exponent_bits - 1)
        spread = rng.randrange(0, 2 * width)
        fields = [max(0, exponent - rng.randrange(spread + 1)) for _ in range(rng.randrange(1, 9))]
        signs = [rng.getrandbits(1) * of.sign for _ in fields]
        fractions = [rng.getrandbits(of.fraction_bits) for _ in fields]
        bits = [
            sign + (field << of.fraction_bits) + fraction
            for sign, field, fraction in zip(signs, fields, fractions, strict=True)
        ]
        total = add([number_of_bits(x, of) for x in bits])
        integer = partial_of_number(total, exponent, of, width)
        back = number_of_partial(integer, exponent, of, width)
        assert -(2 ** (width - 1)) <= integer < 2 ** (width - 1)
        assert back in (total, Special.NOT_SUMMED)
        kept += back == total
    assert 500 < kept < 3000, kept
    for special in Special:
        integer = partial_of_number(special, 7, of, width)
        assert number_of_partial(integer, 7, of, width) is special


@pytest.mark.parametrize("dtype", [9, 12, 13, 10, 11])
def test_planes_of_partial_sums(dtype):
    width = {9: 40, 12: 48, 13: 64, 10: 32, 11: 32}[dtype]
    rng = random.Random(dtype)
    count = 64 if dtype in (9, 12, 13) else 128
    elements = [rng.randrange(-(2 ** (width - 1)), 2 ** (width - 1)) for _ in range(count)]
    block = block_of_elements(elements, dtype)
    assert block.size * 4 == count * width // 8
    assert elements_of_block(block, dtype) == elements
    # Lower bits of all elements come first, as many as the numbers themselves have.
    lower = block.view(np.uint32 if count == 64 else np.uint16)[:count]
    assert lower.tolist() == [x % 2 ** (2048 // count) for x in elements]


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_sum_of_partial_sums_is_that_of_their_numbers(dtype):
    number = {"float32": 1, "float16": 2, "bfloat16": 3}[dtype]
    up = {"float32": 13, "float16": 10, "bfloat16": 11}[dtype]
    rng = np.random.default_rng(number)
    count = 64 if dtype == "float32" else 128
    for kind in ("dense", "special", "zeros") if dtype == "float32" else ("tiny", "zeros"):
        tensors = [draw(rng, kind, dtype, count) for _ in range(5)]
        given = [
            Contribution(number, {0: block_of_elements(bits_of(x, dtype).tolist(), number)})
            for x in tensors
        ]
        exponent = 140 if dtype == "float32" else 4
        leaf = reduce_lane(8, given[:3], 0, workers=3, exponent=exponent, to=up, window=None)
        above = [Contribution(up, {0: leaf}), *given[3:]]
        total = reduce_lane(8, above, 0, workers=3, exponent=exponent, to=number, window=None)
        assert elements_of_block(total, number) == expected(tensors, dtype, "sum").tolist()


@pytest.mark.parametrize(
    ("kind", "dtype", "reduction", "window"),
    [
        # Each with one width of slots; with the other by `make test-long`.
        pytest.param(
            kind,
            dtype,
            reduction,
            window,
            marks=pytest.mark.long if (at + operation + narrow) % 2 else (),
        )
        for at, kind in enumerate(KINDS)
        for operation, (dtype, reduction) in enumerate(OPERATIONS)
        for narrow, window in enumerate((None, 25))
    ],
)
def test_operations_and_kinds_of_tensor(kind, dtype, reduction, window):
    rng = np.random.default_rng(7)
    engine, workers = new_job(workers=3, lanes=3, slots=2, window=window)
    for count in (0, 1, 9, 42, 43, 86, 128, 129, 1000):
        tensors = [draw(rng, kind, dtype, count) for _ in workers]
        results = run_in_order(engine.receive, workers, tensors, dtype, reduction)
        assert_all_equal(results, tensors, dtype, reduction)


def test_a_narrow_slot_has_blocks_brought_again():
    rng = np.random.default_rng(3)
    engine, workers = new_job(workers=2, lanes=2, window=25)
    tensors = [draw(rng, "mixed", "float32", 1000) for _ in workers]
    results = run_in_order(engine.receive, workers, tensors, "float32", "sum")
    assert_all_equal(results, tensors, "float32", "sum")
    assert workers[0].operation.number == 1
    # One that holds all needs no second operation.
    engine, workers = new_job(workers=2, lanes=2)
    run_in_order(engine.receive, workers, tensors, "float32", "sum")
    assert workers[0].operation.number == 0


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 3))]
)
def test_bad_networks(seed):
    rng = np.random.default_rng(seed)
    choose = random.Random(seed)
    window = (None, 25)[seed % 2]
    engine, workers = new_job(workers=3, lanes=2, slots=2, window=window)
    for dtype, reduction in (("float32", "sum"), ("bfloat16", "avg"), ("float16", "max")):
        tensors = [draw(rng, "mixed", dtype, 900) for _ in workers]
        results = run_unkindly(engine.receive, workers, tensors, dtype, reduction, choose=choose)
        assert_all_equal(results, tensors, dtype, reduction)


def test_a_worker_that_brings_other_blocks_again_is_noticed():
    engine, workers = new_job(workers=2, lanes=2, window=25)
    # Integers, which 25 bits hold, but for the last block.
    tensor = np.arange(1000, dtype=np.float32)
    tensor[999] = 2.0**-30
    for worker in workers:
        worker.start(tensor, "float32", "sum")
    while not all(worker.done for worker in workers):
        exchange(engine, workers)
    # This one believes that the first block, too, was not summed.
    workers[0].operation.encoding.store(0, 1, np.full(64, -1, dtype=np.int32))
    went_on = [worker.go_on() for worker in workers]
    assert went_on == [True, True]
    exchange(engine, workers)
    assert [worker.error for worker in workers] == ["the workers' fingerprints differ"] * 2
