"""gTop-k, beside Gloo's sum of everything, and beside top-k by all-gather over Gloo."""

import torch

from benchmarks.network.all_gather import SELECTIONS, all_gather_side
from benchmarks.network.cases import MIB, Case, Plan, Setup
from benchmarks.network.sparse import top_k_side
from benchmarks.network.tables import table_of
from benchmarks.network.topologies import NetworkSession
from benchmarks.network.workload import Workload
from benchmarks.report.sides import Side

__all__ = ["WORKLOAD"]

_CASES = (
    Case(
        "0.1%", "gTop-k, 0.1 % of 26,214,400 elements", 100 * MIB, 0.001, kind="top_k",
        wanted={"auto": 20.0, "udp": 20.0}, wanted_beside={"all_gather": 1.5},
    ),
)  # fmt: skip


def _side(session: NetworkSession, case: Case, name: str) -> Side:
    if name in SELECTIONS:
        elements = case.bytes // 4
        generator = torch.Generator()
        tensor = torch.empty(elements)

        def restore() -> None:
            torch.randn(elements, generator=generator.manual_seed(session.rank), out=tensor)

        restore()
        count = max(1, round(elements * case.density))
        group = session.group("gloo")
        return all_gather_side(group, SELECTIONS[name], tensor, count, restore)
    place = case.bytes, case.density, session.rank, session.ranks
    return top_k_side(session.group(name), name == "gloo", *place)


_PLANS = (
    Plan(Setup("top_k", "1 Gbit/s, gTop-k", beside=tuple(SELECTIONS)), _CASES),
    # Eight ranks share one machine here: on two processors what they compute counts fourfold.
    Plan(
        Setup("top_k_eight", "8 hosts, 1 Gbit/s, gTop-k", hosts=8, beside=("all_gather",)), _CASES
    ),
)

WORKLOAD = Workload(
    "top_k",
    _PLANS,
    _side,
    tables={"top_k": table_of(_PLANS, "host/afflux/sparse", "host/afflux/compressors")},
)
