"""Checks of the network ports by which an engine's frames leave: `docs/node.md`, "Several ports".

Of an engine with two; each frame that leaves says by which. Ports that change within a frame, the
seal included, are noticed at any time (`tests/support/ported/ported_shim.cpp`).
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product

from afflux_sim.golden.engine import GoldenEngine
from afflux_sim.rtl.stimulus import BACK_TO_BACK, Stimulus
from tests.scenarios.afflux_layer import Afflux, block_bytes
from tests.scenarios.cases import CASES
from tests.scenarios.director import Actions, Build, Director
from tests.scenarios.job_frames import Job, ParentJob, ResultGroup
from tests.scenarios.performer import perform
from tests.scenarios.tree_cases import TREE_CASES
from tests.support.port_rules import ports_for
from tests.support.ported.ported_engine import EVERY, ComingFrame, PortedEngine, SentFrame

__all__ = [
    "check_answers_by_port",
    "check_moved_workers",
    "check_ports_are_forgotten",
    "check_ports_of_bursts",
    "check_refusals_by_port",
]

OPERATION_AT = 42 + 2 + 2 + 2 + 2 + 4 + 8
"""Where a frame has its operation number, which a short answer repeats."""


class JudgedByGolden:
    """An engine whose frames must leave as the golden engine knows its workers to be."""

    def __init__(self, engine: PortedEngine, golden: GoldenEngine) -> None:
        self._engine, self._golden = engine, golden
        self.read, self.write = engine.read, engine.write

    def play(
        self,
        frames: Sequence[bytes],
        stimulus: Stimulus = BACK_TO_BACK,
        mac_errors: Sequence[bool] | None = None,
    ) -> list[bytes]:
        sent = self._engine.play(frames, stimulus, mac_errors)
        for frame in sent:
            expected = ports_for(self._golden, frame)
            assert ports_of([frame]) == [expected], f"{expected}: {frame[:64].hex(' ', 4)}"
        return sent


def ports_of(frames: Iterable[bytes]) -> list[frozenset[int]]:
    """Return by which ports each frame has left."""
    found = []
    for frame in frames:
        assert isinstance(frame, SentFrame)
        found.append(frame.ports)
    return found


def by_port(director: Director, *frames: tuple[bytes, int]) -> Actions[list[frozenset[int]]]:
    """Let each frame come by its port, one after the other; return the ports of the answers."""
    sent = yield from director.each_frame(ComingFrame.by(frame, port) for frame, port in frames)
    return ports_of(sent)


def check_answers_by_port(engine: PortedEngine, build: Build) -> None:
    """All cases, of groups and parents too: each frame by its ports, to which the golden one is."""
    director = Director(**build)
    job = Job(number=1, workers=3, lanes=2, slots=2, slot_base=3)

    def scenario() -> Actions[None]:
        yield from director.configure()
        for case in (*CASES.values(), *TREE_CASES.values()):
            yield from director.create(job)
            yield from case(director, job, random.Random(1))
        yield from director.check_counters()

    perform(JudgedByGolden(engine, director.golden), scenario())


def check_ports_are_forgotten(engine: PortedEngine, build: Build) -> None:
    """See that a job has its own workers' and parent's ports, whoever had its number before."""
    director = Director(**build)
    parent = ParentJob()
    group = ResultGroup("239.129.2.3", 4701)
    numbers = range(build["jobs"])
    jobs = [
        Job(number=n, workers=2, slot_base=n, group=ResultGroup(f"239.129.3.{n}", 4701))
        for n in numbers
    ]
    steps = dict.fromkeys(numbers, 0)

    def result(job: Job) -> Actions[frozenset[int]]:
        """Complete a round; its result leaves once."""
        frames = [job.data(worker, 0, steps[job.number]) for worker in range(job.workers)]
        steps[job.number] += 1
        (ports,) = yield from by_port(director, (frames[0], 1), (frames[1], 0))
        return ports

    def joins(job: Job, ports: Sequence[int]) -> Actions[None]:
        yield from director.create(job, join=False)
        steps[job.number] = 0
        answers = yield from by_port(director, *zip(job.joins(), ports, strict=True))
        assert answers == [{port} for port in ports]

    def scenario() -> Actions[None]:
        yield from director.configure()
        for job in jobs:
            yield from joins(job, [0, 1])
        for n, job in enumerate(jobs):
            # An earlier job there is created over, or destroyed before.
            for closed, ports in ((False, (0, 0)), (True, (1, 1)), (False, (0, 1)), (True, (0, 0))):
                for each in jobs:
                    left_by = {0, 1} if each.number > n else {0}
                    if each.number != n:
                        assert (yield from result(each)) == left_by, each.number
                if closed:
                    yield from director.destroy(job)
                yield from joins(job, ports)
                assert (yield from result(job)) == set(ports), (n, ports)
        # Behind which port a parent is, likewise.
        leaf = Job(number=0, workers=1, parent=parent, group=group)
        for closed, port, side in product((False, True), (0, 1), (0, 1)):
            if closed:
                yield from director.destroy(leaf)
            yield from director.create(leaf, join=False)
            assert (yield from by_port(director, (leaf.join(0), side))) == [{side}]
            for _ in range(2):
                assert ports_of([(yield from director.join_parent_frame(leaf))]) == [EVERY]
            assert (yield from by_port(director, (leaf.joined_above(), port))) == []
            up = yield from by_port(director, (leaf.data(0, 0, 0), 1 - port))
            assert up == [{port}], port
            down = yield from by_port(director, (leaf.down(0, 0), 1 - port))
            assert down == [{side}]
            # Its latest answer counts.
            assert ports_of([(yield from director.join_parent_frame(leaf))]) == [{port}]
            assert (yield from by_port(director, (leaf.joined_above(), 1 - port))) == []
            up = yield from by_port(director, (leaf.data(0, 0, 1), port))
            assert up == [{1 - port}], port

    perform(engine, scenario())


def check_moved_workers(engine: PortedEngine, build: Build) -> None:
    """Only a JOIN that is accepted says where a worker is; whatever else comes is answered there.

    Where it came from, that is, if the answer is about the frame itself.
    """
    director = Director(**build)
    job = Job(number=build["jobs"] - 1, workers=2, slots=2, may_move=True)
    results = [(1, 0), (0, 0), (0, 1), (1, 1)]

    def scenario() -> Actions[None]:
        yield from director.configure()
        yield from director.create(job, join=False)
        for step, (first, second) in enumerate(results):
            joins = ((job.join(0), first), (job.join(1), second))
            assert (yield from by_port(director, *joins)) == [{first}, {second}]
            for worker in range(2):
                # A contribution, a question and a refusal move nobody.
                asked = ((job.probe(worker, 1, 0), 1 - first), (job.join(0, key=5), 1 - first))
                assert (yield from by_port(director, *asked)) == [{1 - first}] * 2
                sent = yield from by_port(director, (job.data(worker, 0, step), 1 - second))
            assert sent == [{first}, {second}]
            for worker, port in ((0, first), (1, second)):
                # A replay goes to its worker.
                again = yield from by_port(director, (job.data(worker, 0, step), 1 - port))
                assert again == [{port}]
        # Where nobody may move once it has contributed, a worker follows its cable all the same.
        settled = replace(job, may_move=False)
        elsewhere = replace(settled, first_port=settled.first_port + 1)
        yield from director.create(settled, join=False)
        yield from by_port(director, (settled.join(0), 0), (settled.join(1), 0))
        assert (yield from by_port(director, (settled.data(0, 0, 0), 0))) == []
        assert (yield from by_port(director, (elsewhere.join(0), 1))) == [{1}]
        sent = yield from by_port(director, (settled.data(1, 0, 0), 0))
        assert sent == [{0}, {0}]
        assert (yield from by_port(director, (settled.join(0), 1))) == [{1}]
        assert (yield from by_port(director, (settled.data(0, 0, 0), 0))) == [{1}]

    perform(engine, scenario())


def check_ports_of_bursts(engine: PortedEngine, build: Build) -> None:
    """Frames without a pause between them, by ports in any order: each answer by its frame's."""
    choose = random.Random(4)
    director = Director(**build)
    job = Job(workers=min(4, build["workers"]), slots=1, may_move=True)
    perform(engine, director.configure())
    perform(engine, director.create(job, join=False))

    def joining(number: int) -> ComingFrame:
        frame = job.join(choose.randrange(job.workers), operation=number)
        return ComingFrame.by(frame, choose.randrange(2))

    for step in range(12):
        frames = [ComingFrame.by(frame, choose.randrange(2)) for frame in job.joins()]
        frames += map(joining, range(1, 20))
        sent = engine.play(frames, Stimulus(ready_share=choose.choice((1.0, 0.4)), seed=step))
        came = {_operation(frame): frame.port for frame in frames if _operation(frame)}
        left = {_operation(frame): ports for frame, ports in zip(sent, ports_of(sent), strict=True)}
        del left[0]
        assert left == {number: {port} for number, port in came.items()}
        # All of them sit somewhere now: their results leave one behind the other.
        places = [choose.randrange(2) for _ in range(job.workers)]
        frames = [ComingFrame.by(job.join(n), port) for n, port in enumerate(places)]
        frames += [
            ComingFrame.by(job.data(n, 0, step), choose.randrange(2)) for n in range(job.workers)
        ]
        sent = engine.play(frames, Stimulus(ready_share=choose.choice((1.0, 0.4)), seed=step))
        assert ports_of(sent) == [{port} for port in places + places]


def check_refusals_by_port(engine: PortedEngine, build: Build) -> None:
    """Whatever stands in a JOIN of another version, it is refused where it has come from."""
    choose = random.Random(9)
    director = Director(**build)
    job = Job(workers=2)

    def asking(lane: int) -> bytes:
        fields = {
            name: choose.getrandbits(bits)
            for name, bits in (("slot", 16), ("round", 32), ("key", 64), ("operation", 16))
        }
        words = [choose.getrandbits(32) for _ in range(16)]
        header = Afflux(type="JOIN", version=2, present=1 << lane, words=words, **fields)
        return job.wrap(lane % 2, header, block_bytes({lane: choose.choices(range(99), k=64)}))

    def scenario() -> Actions[None]:
        yield from director.configure()
        yield from director.create(job)
        for lane in range(16):
            for port in range(2):
                assert (yield from by_port(director, (asking(lane), port))) == [{port}], lane

    perform(engine, scenario())


def _operation(frame: bytes) -> int:
    return int.from_bytes(frame[OPERATION_AT : OPERATION_AT + 2], "little")
