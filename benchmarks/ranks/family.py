"""A family of cases: what torch.distributed is asked for, with Afflux and with Gloo in turn."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from afflux.commands.bench.registry import Row
from benchmarks.ranks.session import Session

__all__ = ["Family", "FamilyCase"]


@dataclass(frozen=True)
class FamilyCase:
    """One line of a family's table, for each number of ranks.

    Attributes:
        name: Value of "case" in its rows.
        title: Its name in tables.
        measure: Measures it; collective.
        wanted: Times as fast as Gloo, by number of ranks; it is measured with these only.
        wanted_of_mpi: Times as fast as MPI; None: any.
    """

    name: str
    title: str
    measure: Callable[[Session], Row]
    wanted: Mapping[int, float]
    wanted_of_mpi: float | None = None


@dataclass(frozen=True)
class Family:
    """Cases that run in one set of ranks.

    Attributes:
        name: On the command line; its rows' "bench" is "host_<name>".
        cases: In the order in which they run.
        with_mpi: Ranks are started by mpirun, if there is one.
    """

    name: str
    cases: tuple[FamilyCase, ...]
    with_mpi: bool = False

    @property
    def bench(self) -> str:
        """Value of its rows' "bench"."""
        return f"host_{self.name}"

    def cases_of(self, ranks: int, patterns: list[str]) -> list[FamilyCase]:
        """Return those for this number of ranks whose name begins with one of `patterns`."""
        chosen = [case for case in self.cases if case.name.startswith(tuple(patterns or [""]))]
        return [case for case in chosen if ranks in case.wanted]

    def begins(self, pattern: str) -> bool:
        """Return whether the name of any case begins with `pattern`."""
        return any(case.name.startswith(pattern) for case in self.cases)
