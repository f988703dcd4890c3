"""The stress test of the shared-memory group sees bugs that are planted into it."""

import pytest

from tests.support.drivers.stress_program import passes
from tests.support.planting import Bug

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
    # What the ranks were called with is not compared.
    "no comparison": Bug(
        "shared/group.cpp", "if (signature(r).agrees(own)) continue;", "continue;"
    ),
    # Which blocks are present is taken from another batch.
    "stale presence": Bug(
        "shared/staged.cpp",
        "for_runs(result.present + share.first,",
        "for_runs(ring(r, batch + kRingBatches - 1).present + share.first,",
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


@pytest.mark.parametrize("name", BUGS)
def test_bug_is_caught(name: str) -> None:
    assert not passes(name, BUGS[name])


def test_relaxed_gate_is_caught_by_the_thread_sanitizer() -> None:
    """Without the bug, `make native-test` runs the same program under the sanitizer."""
    assert not passes("relaxed gate", RELAXED, sanitized=True)
