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
        "shared/group.cpp", "if (description(r).agrees(own)) continue;", "continue;"
    ),
    # Which blocks are present is taken from another batch.
    "stale presence": Bug(
        "shared/staged.cpp",
        "for_runs(result.present + share.first,",
        "for_runs(ring(r, batch + kRingBatches - 1).present + share.first,",
    ),
}


def test_without_a_bug_it_passes() -> None:
    assert passes("none", None)


@pytest.mark.parametrize("name", BUGS)
def test_bug_is_caught(name: str) -> None:
    assert not passes(name, BUGS[name])
