"""Registers that hold something else in a mutant, but always the same function of the engine's.

A counter whose bit is inverted behind the register while another bit is 0 may still reach its end
in the same cycle: the mutant counts in another code. So a pair of bits that is not alike may be
alike up to a bit of the same register, or two of them:

    mutant's bit = engine's bit xor L,    L: a literal of that register, or the AND of two

A relation is taken if it holds after power-up and, by SAT, in the next state whenever it holds in
this one and all other pairs are alike. With it the comparison begins anew
(`tests.mutation.correspondence`), which keeps checking it.
"""

from collections.abc import Iterator, Mapping
from itertools import combinations

from tests.mutation.aig import TRUE
from tests.mutation.correspondence import Outcome, Relation, Search

__all__ = ["compare_recoded"]

_WIDEST = 24
_Bit = tuple[str, int]


def compare_recoded(
    search: Search, number: int, key: _Bit, initial: Mapping[_Bit, bool]
) -> Outcome:
    """Compare a mutant with the engine, up to the code of one bit.

    Args:
        search: Knows both.
        number: The mutant's.
        key: The bit that is wrong behind its register.
        initial: Value of each bit after power-up, if it has one.
    """
    outcome = search.compare(number)
    registers = search.machine.registers
    width = sum(cell == key[0] for cell, _ in registers)
    if outcome.same or key not in registers or width > _WIDEST:
        return outcome
    for relation in _relations(search, key, initial):
        if search.holds_on(number, key, relation):
            recoded = search.compare(number, {key: relation})
            if recoded.same:
                return recoded
    return outcome


def _relations(search: Search, key: _Bit, initial: Mapping[_Bit, bool]) -> Iterator[Relation]:
    """Yield the relations that hold after power-up, those of one literal first."""
    graph, registers = search.graph, search.machine.registers
    literals = []
    for other, (held, following) in registers.items():
        if other[0] != key[0] or other not in initial:
            continue
        now, then = search.engine(held), search.engine(following)
        if now > TRUE:
            for inverted in (0, 1):
                at_start = initial[other] ^ bool(inverted)
                literals.append((other, at_start, now ^ inverted, then ^ inverted))
    for _, at_start, now, then in literals:
        if not at_start:
            yield Relation(now, then)
    for one, two in combinations(literals, 2):
        if one[0] != two[0] and not (one[1] and two[1]):
            yield Relation(graph.land(one[2], two[2]), graph.land(one[3], two[3]))
