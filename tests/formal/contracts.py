"""Contracts: what one harness assumes of a part's neighbour, and another harness asserts.

A contract is a predicate over the signals of a seam between parts. The harness of the part that
consumes requires it (`Assume`), the harness of the part that produces guarantees it (`Assert`):
both state the same predicate, by the same code. Each clause carries the contract's name and
parameters into the netlist, as its message; the match is read from the netlists that are proved
(`matching.py`). A clause that no part can guarantee is an axiom, with its source.

Only this module assumes anything: a test sees to that.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Assert, Assume, Module, Value

__all__ = ["Axiom", "Contract", "Need", "Use", "choose", "noted", "uses_in"]

Predicate = Callable[..., Iterator[tuple[str, Value]]]
"""From a module for its registers, the signals, and the parameters: clauses with their names."""


@dataclass(frozen=True)
class Use:
    """Where a contract or an axiom occurs in a netlist.

    Attributes:
        kind: `guarantees`, `requires`, or `axiom`.
        contract: Its name.
        parameters: As text, `lanes=16 slots=512`.
    """

    kind: str
    contract: str
    parameters: str

    def __str__(self) -> str:
        return f"{self.contract} ({self.parameters})" if self.parameters else self.contract


_notes: list[set[Use]] = []


@contextmanager
def noted() -> Iterator[set[Use]]:
    """Yield a set to which everything is added that harnesses state while this is open."""
    uses: set[Use] = set()
    _notes.append(uses)
    try:
        yield uses
    finally:
        _notes.remove(uses)


@dataclass(frozen=True)
class Need:
    """Another contract that a contract rests on, such as that of the queue that carries it."""

    contract: "Contract"
    parameters: tuple[tuple[str, object], ...] = ()

    @property
    def use(self) -> Use:
        """Return it as if a harness had required it."""
        return Use("requires", self.contract.name, _text(dict(self.parameters)))


@dataclass(frozen=True)
class Contract:
    """A predicate over the signals of a seam.

    Attributes:
        name: One that no other contract has.
        seam: From which part to which.
        says: Its text, for the table.
        predicate: The clauses.
        of_the_past: It is required of what was guaranteed in an earlier cycle, so that a harness
            may use its own guarantee.
        carried_by: The part that carries it from where it is guaranteed to where it is required: a
            stream's payloads that keep it one by one also keep it after a queue that adds and
            changes none.
    """

    name: str
    seam: str
    says: str
    predicate: Predicate
    carried_by: tuple[Need, ...] = ()
    of_the_past: bool = False

    def guarantee(self, m: Module, *signals: Any, **parameters: object) -> None:
        """Assert it: its harness proves it."""
        self._state(m, "guarantees", Assert, signals, parameters)

    def require(self, m: Module, *signals: Any, **parameters: object) -> None:
        """Assume it: another harness must guarantee it with the same parameters."""
        self._state(m, "requires", Assume, signals, parameters)

    def _state(
        self,
        m: Module,
        kind: str,
        check: Callable[..., Any],
        signals: tuple[Any, ...],
        parameters: dict[str, object],
    ) -> None:
        for note in _notes:
            note.add(Use(kind, self.name, _text(parameters)))
        for clause, value in self.predicate(m, *signals, **parameters):
            text = f"{kind} | {self.name} | {_text(parameters)} | {clause}"
            # At the line of the harness.
            m.d.comb += check(value, text, src_loc_at=2)


@dataclass(frozen=True)
class Axiom:
    """A demand of the protocol or the surroundings, which no part of the engine can guarantee.

    Attributes:
        name: One that no contract has.
        source: Where it is demanded.
        says: Its text, for the table.
        predicate: The clauses.
    """

    name: str
    source: str
    says: str
    predicate: Predicate

    def assume(self, m: Module, *signals: Any, **parameters: object) -> None:
        """Assume it."""
        for note in _notes:
            note.add(Use("axiom", self.name, _text(parameters)))
        for clause, value in self.predicate(m, *signals, **parameters):
            m.d.comb += Assume(value, f"axiom | {self.name} | {_text(parameters)} | {clause}")


def choose(m: Module, value: Value, what: str) -> None:
    """Say what is watched: assume it of numbers that are chosen freely, once and for all."""
    m.d.comb += Assume(value, f"choice | {what}", src_loc_at=1)


def _text(parameters: dict[str, object]) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted(parameters.items()))


CHECK = re.compile(
    r'attribute \\src "(?P<source>[^"]*)"\n\s*cell \$check \S+\n(?P<body>(?:.*\n)*?)\s*end\n'
)
"""A check in RTLIL, as Amaranth writes it."""

OWN_OF_FIFO = "amaranth/lib/fifo.py"
"""Amaranth's queues assume of their registers' initial values what these are."""


def uses_in(netlist: str) -> set[Use]:
    """Return the contracts and axioms of a harness that was converted to RTLIL.

    Raises:
        ValueError: If it assumes anything else.
    """
    found = set()
    for check in CHECK.finditer(netlist):
        message = re.search(r'parameter \\FORMAT "([^"]*)"', check["body"])
        flavor = re.search(r'parameter \\FLAVOR "(\w+)"', check["body"])
        assert message and flavor
        kind, *rest = message[1].split(" | ")
        expected = {"guarantees": "assert", "requires": "assume", "axiom": "assume"}.get(kind)
        if expected == flavor[1] and len(rest) == 3:
            found.add(Use(kind, rest[0], rest[1]))
        elif flavor[1] == "assume" and kind != "choice" and OWN_OF_FIFO not in check["source"]:
            raise ValueError(f"{check['source']} assumes what is not a contract: {message[1]!r}")
    return found
