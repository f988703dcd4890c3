"""Each assumption of a proof is asserted by another; an assertion that is taken away is missed."""

import ast
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.formal import matching, seams
from tests.formal.catalogue import PROOFS
from tests.formal.contracts import Contract, uses_in

FORMAL = Path(matching.__file__).parent


LARGEST = ("distance, 512 bits", "end to end, ")
"""Proofs of whole engines, by how their names begin: each takes seconds to elaborate, guarantees
nothing, and has a smaller sibling."""
SMALLER = [proof for proof in PROOFS if not proof.name.startswith(LARGEST)]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(PROOFS, marks=pytest.mark.long, id="all"),
        pytest.param(SMALLER, id="some"),
    ],
)
def stated(request: pytest.FixtureRequest) -> matching.Uses:
    return matching.stated_by(request.param)


def test_all_that_is_assumed_is_asserted(stated: matching.Uses) -> None:
    assert matching.unmatched(stated) == []


def test_an_assertion_that_is_taken_away_is_missed(stated: matching.Uses) -> None:
    required = {use.contract for _, uses in stated for use in uses if use.kind == "requires"}
    assert len(required) > 8
    for name in required:
        without = [
            (proof, {u for u in uses if (u.kind, u.contract) != ("guarantees", name)})
            for proof, uses in stated
        ]
        assert any(f"requires {name}" in problem for problem in matching.unmatched(without))


def test_a_harness_without_its_assertion_is_missed() -> None:
    """The same with the statement itself taken out of the harnesses."""
    order = seams.ORDER

    def silent(self: Contract, *arguments: object, **parameters: object) -> None:
        if self is not order:
            guarantee(self, *arguments, **parameters)

    guarantee = Contract.guarantee
    some = [p for p in PROOFS if p.name in ("dispatch, narrow", "sending, 512 bits, narrow")]
    with patch.object(Contract, "guarantee", silent):
        problems = matching.unmatched(matching.stated_by(some))
    assert (
        "sending, 512 bits, narrow requires order (lanes=2), which no other proof guarantees"
        in (problems)
    )


def test_only_contracts_assume() -> None:
    for path in FORMAL.glob("*.py"):
        if path.name != "contracts.py":
            names = {
                node.id for node in ast.walk(ast.parse(path.read_text())) if hasattr(node, "id")
            }
            assert "Assume" not in names, path.name


def test_a_netlist_that_assumes_anything_else_is_refused() -> None:
    check = (
        'attribute \\src "harness.py:1"\n  cell $check $1\n    parameter \\FORMAT "{}"\n'
        '    parameter \\FLAVOR "assume"\n  end\n'
    )
    assert uses_in(check.format("axiom | jobs stay |  | stays, 0"))
    with pytest.raises(ValueError, match="not a contract"):
        uses_in(check.format("a frame of a type that is known"))
