"""All-reduces of sparse COO tensors, beside Gloo's of the same tensors."""

from benchmarks.network.cases import MIB, Case, Plan, Setup
from benchmarks.network.sparse import coo_side, zipf_side
from benchmarks.network.tables import table_of
from benchmarks.network.topologies import NetworkSession
from benchmarks.network.workload import Workload
from benchmarks.report.sides import Side

__all__ = ["WORKLOAD"]

_DENSITIES = (1.13, 2.47, 2.8)
"""Per cent, of embeddings: those of Zen's models (OSDI 2025)."""

_WIDTHS = {"zipf": 1, "zipf_rows": 64}
"""Elements of a row, by the first part of a case's name."""


def _cases() -> tuple[Case, ...]:
    size, elements = 100 * MIB, "26,214,400 elements"
    return (
        Case("1%", f"sparse, 1 % of {elements}", size, 0.01, kind="coo",
             wanted={"auto": 3.0, "udp": 3.0}),
        Case("10%", f"sparse, 10 % of {elements}", size, 0.1, kind="coo",
             wanted={"auto": 7.0, "udp": 7.0}),
        *(
            Case(f"{name}_{density}%", f"sparse, {density} % of {what}, Zipf", size,
                 density / 100, kind="coo", wanted={"auto": 3.0, "udp": 3.0})
            for name, what in (("zipf", elements), ("zipf_rows", "409,600 rows of 64"))
            for density in _DENSITIES
        ),
    )  # fmt: skip


def _side(session: NetworkSession, case: Case, name: str) -> Side:
    place = case.bytes, case.density, session.rank, session.ranks
    width = _WIDTHS.get(case.name.rpartition("_")[0])
    if width is not None:
        return zipf_side(session.group(name), *place, width)
    return coo_side(session.group(name), *place)


_PLANS = (Plan(Setup("coo", "1 Gbit/s, COO tensors"), _cases()),)

WORKLOAD = Workload(
    "coo",
    _PLANS,
    _side,
    tables={"coo": table_of(_PLANS, "host/afflux/sparse")},
)
