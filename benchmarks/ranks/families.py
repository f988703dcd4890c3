"""All families, by their names on the command line."""

from benchmarks.ranks.collectives import BESIDE_MPI, NATIVE
from benchmarks.ranks.passed_on import PASSED_ON
from benchmarks.ranks.steps import STEPS
from benchmarks.ranks.subgroups import SUBGROUPS

__all__ = ["FAMILIES"]

FAMILIES = {family.name: family for family in (NATIVE, BESIDE_MPI, PASSED_ON, STEPS, SUBGROUPS)}
