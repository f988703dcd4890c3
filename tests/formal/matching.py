"""Each proof's assumptions, and the proof that asserts each: matched in the netlists.

Every contract that a harness requires must be guaranteed, with the same parameters, by a proof of
another harness; likewise every contract that it rests on, such as that of the queue behind a seam.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from amaranth.hdl import Fragment

from tests.formal import seams
from tests.formal.contracts import Axiom, Contract, Use, noted, uses_in
from tests.formal.convert import top_of
from tests.formal.sby import Proof, convert

__all__ = ["BEGIN", "END", "Uses", "stated_by", "unmatched", "uses_of", "write_table"]

BEGIN, END = "<!-- contracts -->\n", "<!-- end of contracts -->\n"

CONTRACTS = {each.name: each for each in vars(seams).values() if isinstance(each, Contract)}
AXIOMS = {each.name: each for each in vars(seams).values() if isinstance(each, Axiom)}


Uses = Sequence[tuple[Proof, set[Use]]]
"""Proofs, and what the netlist of each uses."""


def uses_of(proofs: Iterable[Proof], jobs: int = 2) -> Uses:
    """Convert each proof's harness, as it is proved, and return what its netlist uses."""

    def one(proof: Proof) -> tuple[Proof, set[Use]]:
        return proof, uses_in(convert(proof))

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(one, proofs))


def stated_by(proofs: Iterable[Proof]) -> Uses:
    """Return the same without netlists: what the harnesses say that they state. It is faster."""
    stated = []
    for proof in proofs:
        with noted() as uses:
            Fragment.get(top_of(proof.harness, proof.arguments)[0], "formal")
        stated.append((proof, uses))
    return stated


def _needs(use: Use) -> list[Use]:
    """Return a requirement and all that its contract rests on."""
    carriers = CONTRACTS[use.contract].carried_by
    return [use, *(inner for need in carriers for inner in _needs(need.use))]


def unmatched(uses: Uses) -> list[str]:
    """Return what is required and guaranteed by no other harness, in words."""
    problems = []
    for proof, own in uses:
        guaranteed = {
            (use.contract, use.parameters)
            for other, theirs in uses
            for use in theirs
            if use.kind == "guarantees"
            and (other.harness != proof.harness or CONTRACTS[use.contract].of_the_past)
        }
        for use in own:
            if use.kind != "requires":
                continue
            problems += [
                f"{proof.name} requires {need}, which no other proof guarantees"
                for need in _needs(use)
                if (need.contract, need.parameters) not in guaranteed
            ]
    return sorted(set(problems))


def write_table(path: Path, uses: Uses) -> None:
    """Write the tables of contracts and axioms between the marks of a document.

    Raises:
        ValueError: If something is required that nobody guarantees, or there are no marks.
    """
    if problems := unmatched(uses):
        raise ValueError("\n".join(problems))
    lines = [
        "| contract | seam | what it says | assumed by | asserted by |",
        "|---|---|---|---|---|",
    ]
    for name, contract in sorted(CONTRACTS.items()):
        required = {
            (need.parameters, proof.name)
            for proof, own in uses
            for use in own
            if use.kind == "requires"
            for need in _needs(use)
            if need.contract == name
        }
        guaranteed = {
            (use.parameters, proof.name)
            for proof, own in uses
            for use in own
            if use.kind == "guarantees" and use.contract == name
        }
        cells = [name, contract.seam, contract.says, _by(required), _by(guaranteed)]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "| axiom | what it says | demanded in | assumed by |", "|---|---|---|---|"]
    for name, axiom in sorted(AXIOMS.items()):
        users = {("", proof.name) for proof, own in uses for use in own if use.contract == name}
        lines.append(f"| {name} | {axiom.says} | {axiom.source} | {_by(users)} |")
    before, mark, rest = path.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise ValueError(f"{path} has no place for the table of contracts")
    path.write_text(before + BEGIN + "\n".join(lines) + "\n" + END + after)


def _by(uses: set[tuple[str, str]]) -> str:
    """Return the names of proofs, by the parameters that they have in common."""
    by_parameters: dict[str, list[str]] = {}
    for parameters, name in sorted(uses):
        by_parameters.setdefault(parameters, []).append(name)
    return "; ".join(
        (f"`{parameters}`: " if parameters else "") + " · ".join(names)
        for parameters, names in by_parameters.items()
    )
