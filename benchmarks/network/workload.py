"""A kind of cases with what its ranks do, and its tables, all in one file.

`benchmarks.network.workloads` names these files; `make bench-sparse` runs their plans.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.network.cases import Case, Plan
from benchmarks.network.topologies import NetworkSession
from benchmarks.report.document import Tables
from benchmarks.report.sides import Side

__all__ = ["Workload"]


@dataclass(frozen=True)
class Workload:
    """A kind of cases.

    Attributes:
        kind: Of its cases.
        plans: Its networks, each with a name of its own, and their cases.
        side: Makes what a rank does in a case as a contender: "gloo", a topology, or one of those
            that the setup has beside them.
        tables: Its tables in documents, by names that no other workload has.
    """

    kind: str
    plans: tuple[Plan, ...]
    side: Callable[[NetworkSession, Case, str], Side]
    tables: Tables = field(default_factory=dict)
