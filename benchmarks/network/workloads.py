"""The workloads of `make bench-sparse`, each in a file of its own."""

from collections.abc import Mapping

from benchmarks.network import coo, narrow, top_k
from benchmarks.network.cases import Plan
from benchmarks.network.workload import Workload

__all__ = ["SPARSE_PLANS", "WORKLOADS"]

WORKLOADS: Mapping[str, Workload] = {
    each.kind: each
    for each in (
        coo.WORKLOAD,
        top_k.WORKLOAD,
        narrow.WORKLOAD,
    )
}
"""By the kind of their cases."""

SPARSE_PLANS: tuple[Plan, ...] = tuple(
    plan for workload in WORKLOADS.values() for plan in workload.plans
)
