"""The messages of ranks that wait for long."""

import pytest
import torch.distributed as dist

from afflux.group.autotune import deadlock
from afflux.group.autotune.deadlock import DeadlockDetector
from afflux_drivers.errors import Disagreement

SHARDS, GLOO = "shards", "Gloo's all_reduce"
CALL = "all_reduce sum float32 (9,)"


def nothing():
    return None


@pytest.fixture
def two(monkeypatch):
    monkeypatch.setattr(deadlock, "_PATIENCE_S", 0.0)
    store = dist.HashStore()
    return [DeadlockDetector(store, rank, 2) for rank in range(2)]


def test_different_calls_are_found(two):
    assert two[0].watching(7, SHARDS, CALL, nothing)() is None
    with pytest.raises(Disagreement, match=r"rank 1 waits for Gloo's all_reduce .* rank 0 for"):
        two[1].watching(7, GLOO, CALL, nothing)()


def test_the_same_and_other_operations_are_no_difference(two):
    assert two[0].watching(7, SHARDS, CALL, nothing)() is None
    assert two[1].watching(7, SHARDS, "barrier", nothing)() is None
    assert two[1].watching(8, GLOO, CALL, nothing)() is None


def test_what_a_rank_waited_for_before_is_no_difference(two):
    """A rank waits long until the others ask, too; then all of them wait for Gloo."""
    assert two[0].watching(7, SHARDS, CALL, nothing)() is None
    two[1].watching(7, SHARDS, CALL, nothing)
    late = two[0].watching(7, GLOO, CALL, nothing)
    early = two[1].watching(7, GLOO, CALL, nothing)
    assert early() is None
    assert late() is None
    # A signal handler's call takes the same wait up again.
    assert two[1].watching(7, GLOO, CALL, nothing)() is None
    assert two[0].watching(7, GLOO, CALL, nothing)() is None


def test_a_later_wait_of_an_operation_is_compared(two):
    for each in two:
        each.watching(7, SHARDS, CALL, nothing)
    assert two[0].watching(7, GLOO, CALL, nothing)() is None
    with pytest.raises(Disagreement):
        two[1].watching(7, SHARDS, "all_reduce sum int32 (9,)", nothing)()
