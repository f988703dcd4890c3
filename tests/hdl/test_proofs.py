"""The quick proofs, each with its first planted bug. `python -m tests.formal` runs them all."""

from itertools import groupby

import pytest
from amaranth.hdl import Fragment

from afflux_hdl.engine.parameters import Parameters
from tests.formal.catalogue import PROOFS
from tests.formal.convert import bug_of
from tests.formal.sby import Proof, check
from tests.support.overriding import overriding
from tests.support.planting import first_now

pytestmark = pytest.mark.usefixtures("compiled_yosys")

QUICK = [proof for proof in PROOFS if proof.quick]
SLOW = {"merge, 512 bits, narrow", "ports of frames that leave", "rounds, 2 workers"}
"""Proofs that take longest."""

LONG = [
    pytest.param(p, marks=pytest.mark.long) if p.bounded or p.name in SLOW else p for p in QUICK
]
"""Of a bounded proof, every run finds the bug; that it finds nothing else is for the long tests."""

SLOW_BUGS = {
    "end to end, quick",
    "merge, 512 bits, narrow",
    "ports of frames that are admitted",
    "ports of frames that leave",
    "round, tiny halves",
    "stream of receive",
}
"""Proofs that take longest to find their bug; others show that a proof can fail."""

PLANTED = sorted({bug.by for proof in PROOFS for bug in proof.bugs} - {""})
"""Bugs by the part that they are in, and their names."""


def named(proof: Proof) -> str:
    return proof.name


@pytest.mark.parametrize("proof", LONG, ids=named)
def test_it_is_proved(proof: Proof) -> None:
    outcome = check(proof)
    assert outcome.status == "PASS", outcome


@pytest.mark.parametrize(
    "proof",
    [pytest.param(p, marks=pytest.mark.long) if p.name in SLOW_BUGS else p for p in QUICK],
    ids=named,
)
def test_a_planted_bug_is_found(proof: Proof) -> None:
    outcome = check(proof, proof.bugs[0])
    assert outcome.status == "FAIL", outcome
    assert outcome.step is not None
    if not proof.bounded:
        assert outcome.trace is not None and outcome.trace.is_file()


@pytest.mark.parametrize(
    "by",
    [
        name
        for _, of_part in groupby(PLANTED, key=lambda by: by.partition(":")[0])
        for name in first_now(of_part)
    ],
)
def test_each_bug_can_be_planted(by: str) -> None:
    """What it names is there, in an engine with all options."""
    part, bug = bug_of(by)
    parameters = Parameters(bus_bits=512, ports=2, ram_output_register=1)
    with overriding(part, bug):
        Fragment.get(part(parameters), None)


def test_every_proof_can_fail_and_is_not_vacuous() -> None:
    """Of each harness, one configuration has planted bugs and one has cover statements."""
    harnesses = {proof.harness for proof in PROOFS}
    assert harnesses == {proof.harness for proof in PROOFS if proof.cover}
    models = {"memory_model:MemoryModelHarness"}
    assert harnesses - models == {proof.harness for proof in PROOFS if proof.bugs}
    assert len({proof.name for proof in PROOFS}) == len(PROOFS)
