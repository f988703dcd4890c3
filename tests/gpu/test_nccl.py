"""NCCL's plugin under NCCL itself, where there is a GPU."""

import pytest

from tests.gpu import nccl_on_one_gpu


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.timeout(600)
def test_ranks_of_one_gpu_sum_through_an_aggregator(ranks):
    if reason := nccl_on_one_gpu.missing():
        pytest.skip(reason)
    assert nccl_on_one_gpu.main(ranks) == 0
