"""The checks can fail: six bugs, each planted in a copy of the engine's sources, each caught.

Every bug is one that the literature, the model checker or common sense says is easy to make. The
same check passes on the engine as it is.
"""

import random

import pytest

from afflux_sim.rtl.verilated import VerilatedEngine
from tests.checks.control_checks import check_behind_a_join
from tests.checks.engine_checks import open_engine
from tests.scenarios.cases import CASES
from tests.scenarios.director import SMALL, Actions, Build, Director
from tests.scenarios.job_frames import Job
from tests.scenarios.performer import perform
from tests.scenarios.stream_worker import StreamWorker
from tests.scenarios.streams import draw_tensor, reduce_in_order
from tests.support.planted_engine import bug_is_found
from tests.support.planting import Bug

pytestmark = pytest.mark.slow

BUGS = {
    # The second lane's blocks never reach the slot's memory.
    "lost lane": Bug(
        "engine/merge.py",
        "self.write_block.enable.eq(blocks3)",
        "self.write_block.enable.eq(blocks3 & (block_address3[p.beat_bits :][: p.lane_bits] != 1))",
    ),
    # A contribution that comes again while the round is open is added again.
    "double count": Bug(
        "engine/verdict.py",
        "m.Elif(current & ~position.own_seen)",
        "m.Elif(current & ~position.full)",
    ),
    # The version is that of the latest round, not of the frame's: wrong if the frame opens one.
    "wrong version": Bug(
        "engine/admit.py",
        "operation4.version.eq(version)",
        "operation4.version.eq(state3.round[0])",
    ),
    # Where the slot's own look-ahead word is the least, the next one comes out.
    "off by one in look-ahead": Bug(
        "engine/merge.py",
        "Mux(opening1 | (arriving < held), arriving, held)",
        "Mux(opening1 | (arriving < held), arriving, (held + 1)[:32])",
    ),
    # Blocks are merged although the frame's end is bad; the worker is not marked as seen.
    "merge before the last beat is checked": Bug(
        "engine/admit.py",
        "with m.If(changes):\n            m.d.sync += operation4.kind.eq(OperationKind.MERGE)",
        "with m.If(changes | (~frame3.good & checks3.slot & position3.same & position3.held)):\n"
        "            m.d.sync += operation4.kind.eq(OperationKind.MERGE)",
    ),
    # A queued result takes the round that its slot has reached by the time it is sent.
    "header read at transmit time": Bug(
        "engine/replicate.py",
        "header1.worker.eq(Mux(frame1.group, wire.EVERYONE, frame1.worker)),",
        "header1.worker.eq(Mux(frame1.group, wire.EVERYONE, frame1.worker)),\n"
        "                header1.round.eq(self.read_round.data),",
    ),
}


def check(engine: VerilatedEngine) -> None:
    """Play the ten cases and some tensors; raise if anything differs from the golden model."""
    director = Director(**SMALL)
    job = Job(workers=3, lanes=2, slots=2)
    choose = random.Random(1)

    def scenario() -> Actions[None]:
        yield from director.configure()
        for case in CASES.values():
            yield from director.create(job)
            yield from case(director, job, choose)
        yield from director.create(job)
        workers = [StreamWorker(job, number) for number in range(job.workers)]
        for size in (1, 63, 257, 1000):
            tensors = [draw_tensor(size, choose) for _ in workers]
            yield from reduce_in_order(director, workers, tensors)
        yield from director.check_counters()

    perform(engine, scenario())


def test_the_engine_as_it_is_passes() -> None:
    with open_engine(32) as engine:
        check(engine)


# One shows in `make test` that the check can fail.
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name == "lost lane" else pytest.mark.long) for name in BUGS],
)
def test_bug_is_caught(name: str) -> None:
    with bug_is_found(name, BUGS[name], 32, SMALL) as engine:
        check(engine)


@pytest.mark.long
def test_a_late_join_is_caught() -> None:
    """The worker table, without passing on what is written while it is read.

    At 512 bits, where two frames can be two cycles apart.
    """
    right = "check = entries.read_port(transparent_for=(write,))"
    bug = Bug("engine/tables.py", right, "check = entries.read_port()")
    build: Build = {"workers": 3, "lanes": 2, "jobs": 1, "slots": 2}
    with bug_is_found("late join", bug, 512, build) as engine:
        check_behind_a_join(engine, build)
