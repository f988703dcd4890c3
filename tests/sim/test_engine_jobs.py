"""Jobs that follow one another in the same slots: nothing of one is ever seen by the next."""

import random
from collections import Counter

import pytest
from tests.cocotb.director import Action, Actions, Director, Play, WriteRegister
from tests.cocotb.job_frames import Job
from tests.cocotb.performer import perform

from afflux_hdl.registers import address_of
from afflux_sim.stimulus import Stimulus
from afflux_sim.verilated import VerilatedEngine

BUILT = {"workers": 64, "lanes": 16, "jobs": 4, "slots": 16}
WIDTHS = pytest.mark.parametrize("bus_bits", [512, 32])

STUCK = Stimulus(ready_share=0.0, drain=False)
# Reads, of a cycle each, that find the engine busy with a command that waits for nothing.
LONGER_THAN_A_CREATE = 1000


def draw_blocks(job: Job, choose: random.Random) -> dict[int, list[int]]:
    return {lane: [choose.getrandbits(16) for _ in range(64)] for lane in range(job.lanes)}


@WIDTHS
@pytest.mark.parametrize("workers", [1, 3])
def test_rounds_before_the_first_are_not_answered(bus_bits: int, workers: int) -> None:
    """What a slot held for another job cannot be had by asking for rounds before r₀."""
    choose = random.Random(8)
    old = Job(number=0, workers=workers, lanes=2, slots=2, first_round=6)
    new = Job(number=1, workers=workers, lanes=2, slots=2, first_round=8)
    director = Director(**BUILT)

    def fill(job: Job) -> Actions[None]:
        for step in range(2):
            for worker in range(workers):
                blocks = draw_blocks(job, choose)
                yield from director.each([job.data(worker, 0, step, blocks, [step])])

    def ask(job: Job, steps: tuple[int, ...]) -> Actions[None]:
        for step in steps:
            for worker in range(workers):
                questions = [job.probe(worker, 0, step), job.data(worker, 0, step)]
                assert (yield from director.each(questions)) == []

    def scenario() -> Actions[dict[str, int]]:
        yield from director.configure()
        yield from director.create(old)
        yield from fill(old)
        yield from director.destroy(old)
        yield from director.create(new)
        yield from ask(new, (-1, -2, -3))
        yield from director.each([new.data(0, 0, 0)])
        yield from ask(new, (-1, -2))
        return (yield from director.check_counters())

    with VerilatedEngine(bus_bits=bus_bits, **BUILT) as engine:
        counters = perform(engine, scenario())
    assert counters["stale"] == 10 * workers


class SlowNetwork:
    """Performs actions on an engine that may not send, but when a job command waits for it.

    Attributes:
        sent: What the engine has sent.
    """

    def __init__(self, engine: VerilatedEngine) -> None:
        self._engine = engine
        self._busy_reads = 0
        self.sent: list[bytes] = []

    def perform(self, actions: Actions[None]) -> None:
        answer: object = None
        try:
            while True:
                answer = self._perform_one(actions.send(answer))
        except StopIteration:
            return

    def _perform_one(self, action: Action) -> object:
        engine = self._engine
        if isinstance(action, Play):
            self.sent += engine.play(action.frames, STUCK)
            return None
        if isinstance(action, WriteRegister):
            return engine.write(action.address, action.value)
        value = engine.read(action.address)
        if action.address == address_of("job_busy"):
            self._busy_reads += value
            if self._busy_reads > LONGER_THAN_A_CREATE:
                self.sent += engine.run(10)
        return value


@WIDTHS
def test_create_while_old_results_are_stuck(bus_bits: int) -> None:
    """Results of a job wait for the network while its slots are given to another job."""
    choose = random.Random(9)
    old = Job(number=0, workers=4, lanes=3, slots=4, first_round=0)
    new = Job(number=1, workers=2, lanes=3, slots=4, first_round=0, key=7)
    director = Director(**BUILT)
    golden = director.golden

    def rounds(job: Job) -> list[bytes]:
        return [
            job.data(worker, slot, 0, draw_blocks(job, choose), [worker + 1] * job.lanes)
            for slot in range(job.slots)
            for worker in range(job.workers)
        ]

    with VerilatedEngine(bus_bits=bus_bits, **BUILT) as engine:
        perform(engine, director.configure())
        perform(engine, director.create(old))
        frames = rounds(old)
        of_old = [answer for frame in frames for answer in golden.receive(frame)]
        network = SlowNetwork(engine)
        network.sent += engine.play(frames, STUCK)
        network.perform(director.destroy(old))
        network.perform(director.create(new, join=False))
        frames = new.joins() + rounds(new)
        of_new = [answer for frame in frames for answer in golden.receive(frame)]
        network.sent += engine.play(frames, STUCK)
        network.sent += engine.play([])
    sent = Counter(network.sent)
    # Results of the job that has gone may be sent or not, but nothing of the other job in them.
    strange = sent - Counter(of_old) - Counter(of_new)
    assert not strange, [frame[:64].hex(" ") for frame in strange]
    lost = Counter(of_new) - sent
    assert not lost, [frame[:64].hex(" ") for frame in lost]
