"""gTop-k, beside Gloo's sum of everything."""

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
        wanted={"auto": 20.0, "udp": 20.0},
    ),
)  # fmt: skip


def _side(session: NetworkSession, case: Case, name: str) -> Side:
    place = case.bytes, case.density, session.rank, session.ranks
    return top_k_side(session.group(name), name == "gloo", *place)


_PLANS = (Plan(Setup("top_k", "1 Gbit/s, gTop-k"), _CASES),)

WORKLOAD = Workload(
    "top_k",
    _PLANS,
    _side,
    tables={"top_k": table_of(_PLANS)},
)
