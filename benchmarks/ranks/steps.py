"""Steps of training: the same small model on groups of both backends, in turn."""

from functools import partial

from afflux.commands.bench.registry import Row
from benchmarks.ranks.comparison import compare
from benchmarks.ranks.family import Family, FamilyCase
from benchmarks.ranks.session import BACKENDS, Session

__all__ = ["STEPS"]

_RUN_S = 0.25
_REPEATS = 7

_SAME = {2: 1.0, 4: 1.0}
_CASES = (
    ("fsdp2", "FSDP2 (fully_shard)", {2: 1.0, 4: 1.2}),
    ("hsdp", "HSDP, 2 × 2", {4: 1.0}),
    ("tensor_parallel", "tensor parallel", _SAME),
    ("pipeline", "pipelining, 1F1B", _SAME),
    ("checkpoint", "checkpoint (DCP save)", _SAME),
    ("objects", "object collectives", _SAME),
)


def _measure(name: str, session: Session) -> Row:
    # It loads much of torch that other families do without.
    from benchmarks.ranks.step_kinds import KINDS, width_of

    session.references.clear()
    # Gloo first: its parameters are what Afflux's are compared with.
    makes = {each: partial(KINDS[name], session, each) for each in reversed(BACKENDS)}
    row: Row = {"what": name, "width": width_of(session)}
    return row | compare(session, makes, {}, run_s=_RUN_S, repeats=_REPEATS)


STEPS = Family(
    "steps",
    tuple(
        FamilyCase(name, title, partial(_measure, name), wanted) for name, title, wanted in _CASES
    ),
)
