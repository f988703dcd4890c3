"""The test programs of the shared-memory group see bugs that are planted into it."""

import pytest

from tests.support.drivers.native_program import passes
from tests.support.planting import Bug, first_now

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

BUGS = {
    # A phase counts as over when one rank is still missing.
    "early gate": Bug(
        "shared/phases.cpp",
        "reached_.load(std::memory_order_relaxed) * static_cast<std::uint64_t>(segment_.ranks());"
        " const std::uint32_t arrived",
        "reached_.load(std::memory_order_relaxed) * static_cast<std::uint64_t>(segment_.ranks())"
        " - (segment_.ranks() > 1); const std::uint32_t arrived",
    ),
    # Small tensors of successive operations share a buffer.
    "one parity": Bug("shared/small_tensor.cpp", "parity_(parity)", "parity_(0 * parity)"),
    # A batch is overwritten while others still copy it out.
    "short ring": Bug(
        "shared/staged.cpp", "ring[(first_ + batch) % kRingBatches]", "ring[(first_ + batch) % 2]"
    ),
    # The ranks' arguments are not compared.
    "no comparison": Bug(
        "shared/group.cpp", "if (signature(r).agrees(own)) continue;", "continue;"
    ),
    # Which blocks are present is taken from another batch.
    "stale presence": Bug(
        "shared/staged.cpp",
        "for_runs(result.result_present + share.first,",
        "for_runs(ring(r, batch + kRingBatches - 1).result_present + share.first,",
    ),
    # Sums are rounded as the thread that asks for them rounds.
    "the caller's rounding": Bug("sums/environment.cpp", "_mm_setcsr(kDefault);", ""),
    # A block is zero if its first word is.
    "a first word": Bug(
        "collectives/presence.cpp", "first_word(block) || all_words(block)", "first_word(block)"
    ),
    # The own share of a batch is in the ring only.
    "no own share": Bug(
        "shared/staged.cpp", "whole.whole ? whole.data + begin : nullptr", "nullptr"
    ),
    "absent blocks are zeros of any sign": Bug(
        "collectives/reduction.cpp", "having == all, elements", "true, elements"
    ),
    "sums instead of averages": Bug(
        "collectives/reduction.cpp", "sums::divide(dtype, ranks_, count, out[0]);", ""
    ),
}

# Those of the other collectives, which a program with all of them sees.
COLLECTIVE_BUGS = {
    "a gather's parity": Bug("shared/gather.cpp", "parity_(parity)", "parity_(0 * parity)"),
    "a scatter's parity": Bug("shared/scatter.cpp", "parity_(parity)", "parity_(0 * parity)"),
    "a gather's short ring": Bug(
        "shared/gather.cpp", "ring[(first_ + batch) % kRingBatches]", "ring[(first_ + batch) % 2]"
    ),
    "a scatter's short ring": Bug(
        "shared/scatter.cpp", "ring[(first_ + batch) % kRingBatches]", "ring[(first_ + batch) % 2]"
    ),
    # The ring's next position is not where the last operation ended.
    "a gather's position": Bug("shared/gather.cpp", "position += batches_;", ""),
    # An input is overwritten by another rank's part before it is copied.
    "a lost input": Bug("shared/gather.cpp", "kept_.assign(own_, own_ + bytes);", ";"),
    "a lost shard": Bug("shared/scatter.cpp", "kept_.resize(bytes);", ";"),
    # Blocks that are zero at all ranks keep what the output was.
    "no zeros": Bug("collectives/reduction.cpp", "if (is_there) return;", "return;"),
    "averages that are not truncated": Bug(
        "arithmetic/elementwise.cpp",
        "(sum / sources)",
        "((sum < 0 ? sum - sources + 1 : sum) / sources)",
    ),
    "narrow sums of averages": Bug(
        "arithmetic/elementwise.cpp",
        "sizeof(T) == 8, Integer128, std::int64_t>;",
        "sizeof(T) == 8, T, T>;",
    ),
}

# Those of the calls from another library, and of what the ranks compare.
CALL_BUGS = {
    "no history": Bug(
        "shared/group.cpp", "request.fingerprint, request.history,", "request.fingerprint, 0,"
    ),
    "no root": Bug("shared/group.cpp", "static_cast<std::uint8_t>(request.root)", "0"),
    "no reduction": Bug("shared/group.cpp", "own.op = request.op;", ""),
    "null pointers": Bug(
        "collectives/call.cpp", "pointer == nullptr && request.count != 0", "false"
    ),
    "a closed group": Bug("collectives/c_api.cpp", "last.swap(group_);", ""),
    "numbers that are cut": Bug(
        "collectives/c_api.cpp", "number < 0 || number > 255 ? 255 : number", "number"
    ),
}

# On x86 every atomic increment orders what was written before it, so only the sanitizer sees this.
RELAXED = Bug(
    "shared/phases.cpp",
    "arrived.fetch_add(1, std::memory_order_seq_cst) + 1",
    "arrived.fetch_add(1, std::memory_order_relaxed) + 1",
)


def test_without_a_bug_it_passes() -> None:
    assert passes("none", None)


@pytest.mark.parametrize("name", first_now(BUGS))
def test_bug_is_caught(name: str) -> None:
    assert not passes(name, BUGS[name])


@pytest.mark.parametrize("program", ["shared_collectives_test", "shared_c_api_test"])
def test_without_a_bug_all_pass(program: str) -> None:
    assert passes("none", None, program=program)


@pytest.mark.parametrize("name", first_now(COLLECTIVE_BUGS))
def test_bug_of_a_collective_is_caught(name: str) -> None:
    assert not passes(name, COLLECTIVE_BUGS[name], program="shared_collectives_test")


@pytest.mark.parametrize("name", first_now(CALL_BUGS))
def test_bug_of_the_calls_is_caught(name: str) -> None:
    assert not passes(name, CALL_BUGS[name], program="shared_c_api_test")


@pytest.mark.long
def test_relaxed_gate_is_caught_by_the_thread_sanitizer() -> None:
    """Without the bug, `make native-test` runs the same program under the sanitizer."""
    assert not passes("relaxed gate", RELAXED, sanitized=True)
