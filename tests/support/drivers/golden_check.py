"""Operations of a virtual job, compared to the bit with the golden model."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from afflux_drivers.collective import Reduction
from afflux_hdl.contract import wire
from afflux_sim.golden.reductions import all_reduce
from tests.support.drivers.tensors import bits_of, name
from tests.support.drivers.virtual_job import Fate, VirtualJob, VirtualNetwork, counters_of


def expected(tensors: Sequence[np.ndarray], dtype: wire.Dtype, reduction: Reduction) -> np.ndarray:
    return all_reduce(tensors, name(dtype), reduction.value)


def assert_same_bits(results: Sequence[np.ndarray], want: np.ndarray) -> None:
    for rank, result in enumerate(results):
        assert result.dtype == want.dtype, rank
        np.testing.assert_array_equal(bits_of(result), bits_of(want), err_msg=f"rank {rank}")


def check_operation(
    network: VirtualNetwork,
    tensors: Sequence[np.ndarray],
    dtype: wire.Dtype,
    reduction: Reduction,
    fates: Iterable[Fate] = (),
    **options: Any,
) -> None:
    """One all-reduce: the golden bits at every rank."""
    results = network.all_reduce(tensors, dtype, reduction, fates, **options)
    assert_same_bits(results, expected(tensors, dtype, reduction))


def check_counters(job: VirtualJob) -> None:
    """Each contribution was counted once, and no sum left the range, whatever was lost."""
    counters = counters_of(job.engine)
    sent = sum(session.statistics.blocks_sent for session in job.sessions)
    assert counters["blocks_accepted"] == sent
    assert counters["conflicts"] == 0
    frame_causes = sum(
        counters[cause] for cause in ("accepted", "duplicates", "stale", "premature", "probes")
    )
    assert frame_causes + counters["joins"] == counters["frames_in"]
