"""The C++ codec against the golden model's numbers, at every instruction set of this machine."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from afflux_drivers import _native
from afflux_drivers.collective import Reduction
from afflux_hdl.contract import wire
from afflux_sim.golden import numbers
from tests.support.drivers import native_codec
from tests.support.drivers.tensors import (
    FLOATS,
    OPERATIONS,
    awkward,
    bits_of,
    from_bits,
    gaussian,
    name,
)

INSTRUCTION_SETS = _native.codec_instruction_sets()
SUMS = [each for each in OPERATIONS if each[1] in (Reduction.SUM, Reduction.AVG)]
# Exponents where the kernels change their arithmetic, and the ends.
EXPONENTS = [1, 2, 22, 23, 24, 37, 38, 39, 40, 41, 42, 102, 103, 104, 112, 113, 126, 127, 128]
EXPONENTS += [141, 142, 143, 144, 200, 238, 239, 240, 241, 242, 250, 251, 252, 253, 254]


@pytest.fixture(params=INSTRUCTION_SETS)
def instruction_set(request: pytest.FixtureRequest) -> Iterator[str]:
    best = _native.codec_instruction_set()
    _native.use_codec_instruction_set(request.param)
    try:
        yield request.param
    finally:
        _native.use_codec_instruction_set(best)


def assert_bits(found: np.ndarray, want: np.ndarray, what: object = "") -> None:
    np.testing.assert_array_equal(bits_of(found), bits_of(want), err_msg=str(what))


def golden(tensors: list[np.ndarray], dtype: wire.Dtype, reduction: Reduction) -> np.ndarray:
    """In blocks, however few the elements are."""
    return numbers.all_reduce(tensors, name(dtype), reduction.value, part=True)


def of_exponent(
    generator: np.random.Generator, exponent: int, dtype: wire.Dtype, count: int = 64
) -> np.ndarray:
    """Return a block whose greatest element is just below the next exponent, or at the exponent."""
    exponent = min(exponent, 142) if dtype is wire.Dtype.FLOAT16 else exponent
    bits = generator.integers(0, exponent << 23 | 0x7F_FFFF, count)
    # Half of them of the greatest exponents, where rounding matters.
    near = generator.integers(max(exponent - 30, 0) << 23, (exponent << 23) + 1, count)
    bits = np.where(generator.random(count) < 0.5, bits, near)
    bits[generator.integers(count)] = exponent << 23 | generator.choice([0, 1, 0x7F_FFFF])
    single = (bits | generator.integers(0, 2, count) << 31).astype(np.uint32).view(np.float32)
    if dtype is wire.Dtype.FLOAT16:
        # Towards zero: no element is above the exponent that was asked for.
        with np.errstate(over="ignore"):
            half = single.astype(np.float16)
        too_large = np.abs(half.astype(np.float32)) > np.abs(single)
        return np.where(too_large, np.nextafter(half, np.float16(0)), half)
    return (bits_of(single) >> 16).astype(np.uint16) if dtype is wire.Dtype.BFLOAT16 else single


def test_instruction_sets_are_named_and_the_best_is_in_use():
    assert INSTRUCTION_SETS[0] == "default"
    assert _native.codec_instruction_set() == INSTRUCTION_SETS[-1]
    with pytest.raises(ValueError, match="vax"):
        _native.use_codec_instruction_set("vax")


@pytest.mark.parametrize("dtype", FLOATS)
def test_scan_says_which_blocks_are_present_and_their_exponents(instruction_set, dtype):
    generator = np.random.default_rng(1)
    tensor = awkward(generator, 64 * 300 + 17, dtype, True)
    want = []
    for block in native_codec.padded(tensor).reshape(-1, 64):
        wide = numbers.widen(block, name(dtype))
        if not np.isfinite(wide).all():
            want.append(255)
        else:
            want.append(numbers.largest_exponent(wide) if wide.any() else 0)
    assert {0, 103 if dtype is wire.Dtype.FLOAT16 else 1, 255} <= set(want)
    np.testing.assert_array_equal(native_codec.scan(dtype, tensor), want)


def test_scan_of_every_float16_and_bfloat16(instruction_set):
    every = np.arange(1 << 16, dtype=np.uint16)
    for dtype in (wire.Dtype.FLOAT16, wire.Dtype.BFLOAT16):
        blocks = np.zeros((1 << 16, 64), np.uint16)
        blocks[every, every % 64] = every
        elements = blocks.reshape(-1)
        if dtype is wire.Dtype.FLOAT16:
            elements = elements.view(np.float16)
        wide = numbers.widen(every.view(elements.dtype), name(dtype))
        fields = (bits_of(wide) >> 23 & 255).astype(np.int64)
        want = np.where(bits_of(wide) << 1 == 0, 0, np.maximum(fields, 1))
        np.testing.assert_array_equal(native_codec.scan(dtype, elements), want)


def test_scan_of_int32(instruction_set):
    for place in range(64):
        for value in (1, -1, -(2**31), 2**31 - 1, 256):
            tensor = np.zeros(3 * 64, np.int32)
            tensor[64 + place] = value
            np.testing.assert_array_equal(native_codec.scan(wire.Dtype.INT32, tensor), [0, 1, 0])


@pytest.mark.parametrize("dtype", [wire.Dtype.INT32, *FLOATS])
def test_scan_copy_pads_the_last_block_and_leaves_absent_ones(instruction_set, dtype):
    generator = np.random.default_rng(2)
    for count in (0, 1, 63, 64, 65, 64 * 40 + 9):
        tensor = gaussian(generator, count, dtype, density=0.5)
        blocks = native_codec.blocks_of(count)
        out = np.full((blocks, 64), 0x55, tensor.dtype)
        exponents = np.empty(blocks, np.uint8)
        _native.scan_copy(int(dtype), tensor, out.reshape(-1), exponents)
        np.testing.assert_array_equal(exponents, native_codec.scan(dtype, tensor))
        want = native_codec.padded(tensor).reshape(-1, 64)
        present = exponents != 0
        assert_bits(out[present], want[present])
        assert (out[~present] == 0x55).all()


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("dtype", [wire.Dtype.INT32, *FLOATS])
def test_scan_clear_leaves_no_sign_on_absent_blocks(instruction_set, dtype, copied):
    generator = np.random.default_rng(3)
    for count in (0, 1, 63, 64, 65, 64 * 40 + 9):
        tensor = gaussian(generator, count, dtype, density=0.5)
        if dtype != wire.Dtype.INT32:
            bits = tensor.view(np.uint8).reshape(-1, tensor.itemsize)
            # Every third zero is -0.
            bits[::3, -1] |= np.where(bits[::3].any(axis=1), 0, 0x80).astype(np.uint8)
        blocks = native_codec.blocks_of(count)
        found, out = np.empty((2, blocks), np.uint8), np.full(blocks * 64, 0x55, tensor.dtype)
        want = np.full(blocks * 64, 0x55, tensor.dtype)
        _native.scan_copy(int(dtype), tensor, want, found[0])
        before = native_codec.padded(tensor).reshape(-1, 64)
        _native.scan_clear(int(dtype), tensor, out if copied else None, found[1])
        np.testing.assert_array_equal(found[0], found[1])
        if copied:
            assert_bits(out, want)
        before[found[0] == 0] = 0
        assert_bits(tensor, before.reshape(-1)[:count])


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 7, 8, 64])
@pytest.mark.parametrize(("dtype", "reduction"), OPERATIONS)
def test_reductions_are_the_golden_models(instruction_set, dtype, reduction, ranks):
    generator = np.random.default_rng(ranks)
    count = 64 * 12 + 5 if ranks < 64 else 64 * 4
    for non_finite in (False, True):
        tensors = [awkward(generator, count, dtype, non_finite) for _ in range(ranks)]
        # A block that is absent everywhere, one that is absent but for signs, and one of one rank.
        for tensor in tensors:
            tensor[64:256] = 0
        if dtype is not wire.Dtype.INT32:
            tensors[-1][130] = from_bits([0x8000_0000 if dtype == 1 else 0x8000], dtype)[0]
        tensors[0][200] = 1
        want = golden(tensors, dtype, reduction)
        assert_bits(native_codec.reduce(tensors, dtype, reduction), want)
        for found in native_codec.reduce_in_place(tensors, dtype, reduction):
            assert_bits(found, want, "in place")


@pytest.mark.parametrize(("dtype", "reduction"), SUMS)
def test_sums_of_every_number_of_ranks(instruction_set, dtype, reduction):
    generator = np.random.default_rng(5)
    for ranks in range(1, 65):
        tensors = [gaussian(generator, 70, dtype) for _ in range(ranks)]
        want = golden(tensors, dtype, reduction)
        assert_bits(native_codec.reduce(tensors, dtype, reduction), want, ranks)


@pytest.mark.parametrize("ranks", [2, 3, 64])
@pytest.mark.parametrize("dtype", FLOATS)
def test_sums_at_every_exponent(instruction_set, dtype, ranks):
    generator = np.random.default_rng(6)
    tensors = [
        np.concatenate([of_exponent(generator, exponent, dtype) for exponent in EXPONENTS])
        for _ in range(ranks)
    ]
    for tensor in tensors[1:-1]:
        # Ranks whose blocks are much smaller or absent.
        tensor[: len(tensor) // 2] = 0
    for reduction in (Reduction.SUM, Reduction.AVG):
        want = golden(tensors, dtype, reduction)
        assert_bits(native_codec.reduce(tensors, dtype, reduction), want)


@pytest.mark.parametrize("ranks", [1, 2, 3, 7, 32, 64])
@pytest.mark.parametrize("dtype", FLOATS)
def test_integers_and_values_at_every_exponent(instruction_set, dtype, ranks):
    generator = np.random.default_rng(ranks)
    exponents = np.array(range(1, 255) if ranks == 3 else EXPONENTS, np.uint8)
    blocks = np.stack([of_exponent(generator, int(e), dtype) for e in exponents])
    out = np.empty(blocks.shape, np.int32)
    native_codec.numbers(ranks, dtype, Reduction.SUM).quantise(blocks, exponents, out)
    for row, exponent in enumerate(exponents.tolist()):
        wide = numbers.widen(blocks[row], name(dtype))
        np.testing.assert_array_equal(out[row], numbers.quantise(wide, exponent, ranks))

    sums = generator.integers(-(2**31), 2**31, blocks.shape)
    sums >>= generator.integers(0, 31, blocks.shape)
    sums[:, :8] = [0, 1, -1, 2**31 - 1, -(2**31), 2**24 + 1, -(2**25) - 3, 77]
    # Midpoints of the narrow types, and next to them.
    for at, bits in enumerate((8, 11, 24)):
        middle = (1 << 30) + (1 << (30 - bits))
        sums[:, 8 + 6 * at : 14 + 6 * at] = [
            sign * (middle + step) for sign in (1, -1) for step in (-1, 0, 1)
        ]
    guard = numbers.guard_bits(ranks)
    for reduction in (Reduction.SUM, Reduction.AVG):
        found = np.empty(blocks.shape, blocks.dtype)
        operation = native_codec.numbers(ranks, dtype, reduction)
        operation.dequantise(sums.astype(np.int32), exponents, found)
        for row, exponent in enumerate(exponents.tolist()):
            want = [
                numbers.result_bits(
                    total,
                    exponent - 127 - 30 + guard,
                    0,
                    dtype=name(dtype),
                    reduction=reduction.value,
                    workers=ranks,
                )
                for total in sums[row].tolist()
            ]
            assert bits_of(found[row]).tolist() == want, (reduction, exponent)


@pytest.mark.parametrize("slots", [1, 2, 64])
@pytest.mark.parametrize("dtype", [wire.Dtype.INT32, *FLOATS])
def test_walk_of_a_worker_gives_integers_there_and_back(instruction_set, dtype, slots):
    """The benchmark times the calls that workers make."""
    tensor = gaussian(np.random.default_rng(7), 64 * 50 + 9, dtype, density=0.4)
    if dtype is wire.Dtype.FLOAT32:
        tensor[:64] *= np.float32(1e-38)
    operation = native_codec.numbers(5, dtype, Reduction.SUM)
    whole, exponents = native_codec.padded(tensor), native_codec.scan(dtype, tensor)
    integers, want = np.empty(whole.shape, np.int32), np.empty_like(whole)
    operation.quantise(whole, exponents, integers)
    operation.dequantise(integers, exponents, want)
    found = np.zeros_like(tensor)
    _native.walk_columns(tensor, found, int(dtype), Reduction.SUM.number, 5, slots, False)
    assert not found.any()
    _native.walk_columns(tensor, found, int(dtype), Reduction.SUM.number, 5, slots, True)
    assert_bits(found, want[: len(tensor)])


@pytest.mark.parametrize("dtype", FLOATS)
def test_what_is_not_finite_quantises_to_zero(instruction_set, dtype):
    tensor = gaussian(np.random.default_rng(3), 64, dtype)
    bits = {1: [0x7F80_0000, 0xFF80_0000, 0x7F80_0001, 0xFFC0_0000], 2: [0x7C00, 0xFC00, 0x7C01]}
    odd = from_bits(bits.get(int(dtype), [0x7F80, 0xFF80, 0x7F81, 0xFFC0]), dtype)
    tensor[5 : 5 + len(odd)] = odd
    out = np.empty(64, np.int32)
    native_codec.numbers(2, dtype, Reduction.SUM).quantise(tensor, np.array([135], np.uint8), out)
    wide = numbers.widen(tensor, name(dtype))
    np.testing.assert_array_equal(out, numbers.quantise(wide, 135, 2))
    assert not out[5 : 5 + len(odd)].any()


@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 64])
@pytest.mark.parametrize(("dtype", "reduction"), SUMS)
def test_exact_mode(dtype, reduction, ranks):
    if dtype is wire.Dtype.INT32:
        return
    generator = np.random.default_rng(ranks)
    for count in (1, 2, 73):
        assert _native.is_exact(int(dtype), reduction.number, count)
        for non_finite in (False, True):
            tensors = [awkward(generator, count, dtype, non_finite) for _ in range(ranks)]
            want = numbers.all_reduce(tensors, name(dtype), reduction.value)
            assert_bits(native_codec.exact(tensors, dtype, reduction), want)


def test_exact_mode_ends_where_the_golden_models_does():
    for dtype, reduction in OPERATIONS:
        for count in (1, 72, 73, 74, 78):
            found = _native.is_exact(int(dtype), reduction.number, count)
            assert found == numbers.is_exact_mode(count, name(dtype), reduction.value)


@pytest.mark.parametrize("dtype", FLOATS)
def test_classes_sortable_integers_and_limbs_are_the_golden_models(dtype):
    generator = np.random.default_rng(9)
    tensor = awkward(generator, 2000, dtype, True)
    wide = numbers.widen(tensor, name(dtype))
    words = np.empty(2000, np.int32)
    _native.class_counts(int(dtype), tensor, words)
    np.testing.assert_array_equal(words, numbers.class_counts(wide))
    for reduction in (Reduction.MAX, Reduction.MIN):
        _native.to_sortable(int(dtype), reduction.number, tensor, words)
        np.testing.assert_array_equal(words, numbers.key_of_float(wide, reduction.value))
        back = np.empty_like(tensor)
        _native.from_sortable(int(dtype), words, back)
        assert_bits(back, numbers.float_from_key(words, name(dtype)))
    limbs = np.empty((2000, 13), np.int32)
    _native.exact_encode(int(dtype), tensor, limbs)
    for element, row in zip(wide, limbs, strict=True):
        np.testing.assert_array_equal(row, numbers.exact_limbs(element))


@pytest.mark.parametrize("dtype", FLOATS)
def test_flushed_denormals_change_nothing(instruction_set, dtype):
    generator = np.random.default_rng(4)
    tensors = [
        np.concatenate(
            [
                *(of_exponent(generator, exponent, dtype) for exponent in (1, 2, 20, 39, 40, 103)),
                awkward(generator, 640, dtype, True),
            ]
        )
        for _ in range(3)
    ]
    few = [tensor[:73] for tensor in tensors]
    reductions = list(Reduction)
    want = [golden(tensors, dtype, each) for each in reductions]
    want_few = [numbers.all_reduce(few, name(dtype), each.value) for each in reductions[:2]]
    scans = [native_codec.scan(dtype, tensor) for tensor in tensors]
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor does not flush denormals")
    try:
        found = [native_codec.reduce(tensors, dtype, each) for each in reductions]
        placed = [native_codec.reduce_in_place(tensors, dtype, each) for each in reductions]
        found_few = [native_codec.exact(few, dtype, each) for each in reductions[:2]]
        scans_flushed = [native_codec.scan(dtype, tensor) for tensor in tensors]
        still = float(torch.tensor(1e-40) + torch.tensor(1e-40))
    finally:
        torch.set_flush_denormal(False)
    assert still == 0, "the caller's own setting is lost"
    for one, many, right in zip(found, placed, want, strict=True):
        assert_bits(one, right)
        for each in many:
            assert_bits(each, right)
    for one, right in zip(found_few, want_few, strict=True):
        assert_bits(one, right)
    np.testing.assert_array_equal(scans, scans_flushed)


WORDS = st.one_of(
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**23).map(lambda fraction: 39 << 23 | fraction & 0x7F_FFFF),
    st.sampled_from([0, 0x8000_0000, 1, 0x007F_FFFF, 0x0080_0000, 0x7F7F_FFFF, 0x7F80_0000]),
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(OPERATIONS),
    st.lists(st.lists(WORDS, min_size=1, max_size=70), min_size=1, max_size=6),
)
def test_any_bits_reduce_as_the_golden_model_does(instruction_set, operation, words):
    dtype, reduction = operation
    count = min(map(len, words))
    tensors = []
    for each in words:
        bits = np.array(each[:count], np.uint32)
        if dtype in (wire.Dtype.FLOAT16, wire.Dtype.BFLOAT16):
            bits >>= 16
        tensors.append(from_bits(bits.tolist(), dtype))
    want = golden(tensors, dtype, reduction)
    assert_bits(native_codec.reduce(tensors, dtype, reduction), want)
    for found in native_codec.reduce_in_place(tensors, dtype, reduction):
        assert_bits(found, want)
    if dtype is not wire.Dtype.INT32 and reduction in (Reduction.SUM, Reduction.AVG):
        want = numbers.all_reduce(tensors, name(dtype), reduction.value)
        assert_bits(native_codec.exact(tensors, dtype, reduction), want)


@pytest.mark.parametrize("dtype", FLOATS)
def test_results_may_lie_in_a_source_and_anywhere_in_memory(instruction_set, dtype):
    generator = np.random.default_rng(8)
    tensors = [awkward(generator, 64 * 9, dtype, True) for _ in range(3)]
    want = golden(tensors, dtype, Reduction.SUM)
    for shift in (0, 1, 2, 3, 5):
        shifted = []
        for tensor in tensors:
            memory = np.zeros(len(tensor) + 8, tensor.dtype)
            memory[shift : shift + len(tensor)] = tensor
            shifted.append(memory[shift : shift + len(tensor)])
        exponents = [native_codec.scan(dtype, tensor) for tensor in shifted]
        present = np.empty(9, np.uint8)
        operation = native_codec.numbers(3, dtype, Reduction.SUM)
        operation.reduce(shifted, exponents, shifted[1], present)
        some = np.repeat(present, 64).astype(bool)
        assert_bits(shifted[1][some], want[some])


def test_scan_clear_makes_every_zero_positive_and_nothing_else():
    tensor = np.array([-0.0] * 100, np.float32)
    _native.scan_clear(int(wire.Dtype.FLOAT32), tensor[:97], None, np.empty(2, np.uint8))
    assert not np.signbit(tensor[:97]).any()
    assert np.signbit(tensor[97:]).all()


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="64 ranks"):
        _native.Numbers(65, 1, 0)
    with pytest.raises(ValueError, match="no such operation"):
        _native.Numbers(2, 0, 1)
    operation = _native.Numbers(2, 1, 0)
    one = np.array([127], np.uint8)
    with pytest.raises(ValueError, match="whole blocks"):
        operation.quantise(np.zeros(63, np.float32), one, np.zeros(63, np.int32))
    with pytest.raises(ValueError, match="out has"):
        operation.quantise(np.zeros(64, np.float32), one, np.zeros(63, np.int32))
    with pytest.raises(ValueError, match="exponents has"):
        operation.quantise(np.zeros(64, np.float32), one[:0], np.zeros(64, np.int32))
    with pytest.raises(ValueError, match="storage"):
        operation.quantise(np.zeros(64, np.float16), one, np.zeros(64, np.int32))
    with pytest.raises(ValueError, match="sources"):
        operation.reduce_in_place([np.zeros(64, np.float32)] * 3)
