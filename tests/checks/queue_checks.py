"""Checks of the queue of results: what is queued twice, and what outlives its job."""

from collections import Counter

from afflux_hdl.contract.registers import Command, address_of, counter_address
from afflux_hdl.engine.delivery_queue import REPLAYS_PER_JOB
from afflux_sim.rtl.verilated import VerilatedEngine
from tests.checks.slow_network import STUCK, SlowNetwork
from tests.scenarios.director import Build, Director
from tests.scenarios.job_frames import Job, ParentJob
from tests.scenarios.performer import perform

__all__ = [
    "check_answers_behind_orders",
    "check_fences_by_job",
    "check_gone_on",
    "check_queued_once",
    "check_results_of_no_job",
    "check_shares",
]

BEYOND_THE_QUEUE = 15
"""Most results of a block that wait behind the queue: 8 frame orders, one order that is being sent,
and 6 frames of 6 beats each that are, in part, in the 32 beats before the network."""

GONE_ON = 4
"""Slots in which workers go on: a counter that starts late carries with the third event."""

ORDERED_CYCLES = 40
"""By when what a job's command sends through the queues is in the first of them."""


def check_queued_once(engine: VerilatedEngine, build: Build) -> None:
    """Check that a result queued for all workers is not queued for one until it has left.

    Of every slot and both versions. The network takes nothing, so that the results of the last
    slots cannot have left.
    """
    director = Director(**build)
    golden = director.golden
    slots = range(build["slots"])
    job = Job(workers=5, lanes=2, slots=len(slots), first_round=0)
    replayed = dropped = 0
    perform(engine, director.configure())
    perform(engine, director.create(job))
    for step in range(4):
        order = list(slots if step < 2 else reversed(slots))
        late = order[len(order) // 2 :]
        frames = {
            slot: [job.data(worker, slot, step, {0: [1] * 64}) for worker in range(job.workers)]
            for slot in order
        }
        results = Counter(
            result for slot in order for frame in frames[slot] for result in golden.receive(frame)
        )
        again = [frames[slot][slot % job.workers] for slot in late]
        # Twice, since the first must not make the engine forget that the result is queued.
        asked = [frame for slot in order for frame in frames[slot]] + again * 2
        sent = engine.play(asked, STUCK) + engine.play([])
        assert Counter(sent) == results
        dropped += 2 * len(late)
        # Now that they have left, they are sent again.
        for slot in order:
            frame = frames[slot][0]
            assert engine.play([frame]) == golden.receive(frame)
            replayed += 1
        counters = perform(engine, director.read_counters())
        assert (counters["replays"], counters["replays_dropped"]) == (replayed, dropped)


def check_results_of_no_job(engine: VerilatedEngine, build: Build) -> None:
    """Results whose job is destroyed while they are queued are not sent, and leave no trace.

    The job is created and destroyed again and again, under the same number and another. Each time
    every slot has both its versions queued, and each result of the next job comes.
    """
    director = Director(**build)
    golden = director.golden
    network = SlowNetwork(engine)
    network.perform(director.configure())
    discarded = 0
    # A result for one worker takes a cycle, for five it takes five.
    for key, (number, workers) in enumerate(((0, 5), (0, 1), (1, 1), (1, 5), (0, 1), (0, 5))):
        slots = build["slots"]
        job = Job(number=number, workers=workers, lanes=1, slots=slots, first_round=key, key=key)
        perform(engine, director.create(job))
        for last in (False, True):
            frames = [
                job.data(worker, slot, 2 * last + step, {0: [key] * 64})
                for step in range(2)
                for slot in range(slots)
                for worker in range(workers)
            ]
            results = Counter(result for frame in frames for result in golden.receive(frame))
            assert results.total() == 2 * slots * workers
            if not last:
                assert Counter(engine.play(frames)) == results
        network.sent.clear()
        network.sent += engine.play(frames, STUCK)
        network.perform(director.destroy(job))
        sent = Counter(network.sent + engine.play([]))
        assert sent <= results, "sent frames that are not results of this job"
        assert sent.total() <= BEYOND_THE_QUEUE, f"{sent.total()} results of a job that has gone"
        discarded += results.total() - sent.total()
    counters = perform(engine, director.read_counters())
    assert counters["frames_out"] == golden.counters["frames_out"] - discarded


def check_answers_behind_orders(engine: VerilatedEngine, build: Build) -> None:
    """Short answers that wait after a JOIN to the parent, or behind a fence, are all sent.

    They wait in a queue of their own, from which what control has ordered takes none.
    """
    director = Director(**build)
    golden = director.golden
    half = build["slots"] // 2
    other = Job(number=1, workers=1, lanes=1, slots=half, slot_base=half, parent=ParentJob())
    perform(engine, director.configure())
    for step, command in enumerate((Command.JOIN_PARENT, Command.DESTROY) * 2):
        # With a key of its own, so that no answer is like one before: a queue that is read
        # when it is empty shows what it held once.
        job = Job(number=0, workers=5, lanes=1, slots=half, key=step)
        perform(engine, director.create(job))
        perform(engine, director.create(other))
        # More results than there is room for behind their queue.
        frames = [
            job.data(worker, slot, 0, {0: [step] * 64})
            for slot in range(half)
            for worker in range(job.workers)
        ]
        questions = [job.probe(worker, slot, 1) for worker in range(job.workers) for slot in (0, 1)]
        expected = Counter(answer for frame in frames for answer in golden.receive(frame))
        sent = engine.play(frames, STUCK)
        engine.write(address_of("job_index"), other.number)
        engine.write(address_of("job_command"), command)
        if command is Command.JOIN_PARENT:
            expected[golden.join_parent(other.number)] += 1
        else:
            golden.destroy_job(other.number)
        # A read takes a cycle, in which the network is as it was.
        for _ in range(ORDERED_CYCLES):
            engine.read(address_of("identity"))
        expected += Counter(answer for frame in questions for answer in golden.receive(frame))
        sent += engine.play(questions, STUCK) + engine.play([])
        assert Counter(sent) == expected
        assert not engine.read(address_of("job_busy"))
    perform(engine, director.check_counters())


def check_fences_by_job(engine: VerilatedEngine, build: Build) -> None:
    """Commands for one job do not wait for others' frames, and empty its own queue at once.

    The network takes nothing, and the queues of one job are full.
    """
    director = Director(**build)
    half = build["slots"] // 2
    full = Job(number=0, workers=2, lanes=1, slots=half, first_round=0)
    other = Job(number=1, workers=2, lanes=1, slots=half, slot_base=half, first_round=0)
    few = 2 * (build["workers"] + other.slots) + 100
    perform(engine, director.configure())
    perform(engine, director.create(full))
    frames = [
        full.data(worker, slot, 0, {0: [slot] * 64})
        for slot in range(full.slots)
        for worker in range(full.workers)
    ]
    frames += [full.probe(worker, 0, 0) for worker in range(2)] * 5
    sent = engine.play(frames, STUCK)
    engine.write(address_of("job_index"), full.number)
    for number in range(4):
        begun = engine.cycles
        if number % 2:
            perform(engine, director.destroy(other))
        else:
            perform(engine, director.create(other, join=False))
        assert engine.cycles - begun < few
    queued = engine.read(address_of("delivery_level"))
    assert queued > 0
    engine.write(address_of("job_index"), full.number)
    engine.write(address_of("job_command"), Command.DESTROY)
    for _ in range(ORDERED_CYCLES):
        engine.read(address_of("identity"))
    assert engine.read(address_of("delivery_level")) == 0
    # Frames of its own are on their way: these it waits for.
    assert engine.read(address_of("job_busy"))
    counters = perform(engine, director.read_counters())
    assert counters["results_discarded"] == queued
    sent += engine.play([])
    assert not engine.read(address_of("job_busy"))
    assert 0 < len(sent) <= BEYOND_THE_QUEUE
    perform(engine, director.create(other))
    perform(engine, director.create(full))
    perform(engine, director.flood(frames[: 2 * full.slots]))


def check_gone_on(engine: VerilatedEngine, build: Build) -> None:
    """Workers that all go on without a result lose it, and the one that takes its place, counted.

    Each is lost for them alone: a probe brings what the slot still has. It happens in so many slots
    that the counters carry.
    """
    director = Director(**build)
    golden = director.golden
    job = Job(workers=5, lanes=1, slots=build["slots"], first_round=0)
    first = job.slots - GONE_ON
    perform(engine, director.configure())
    perform(engine, director.create(job))

    def rounds(slot: int, step: int) -> tuple[list[bytes], Counter[bytes]]:
        frames = [job.data(worker, slot, step, {0: [step] * 64}) for worker in range(job.workers)]
        return frames, Counter(result for frame in frames for result in golden.receive(frame))

    stuck, expected = [], Counter[bytes]()
    for slot in range(first):
        frames, results = rounds(slot, 0)
        stuck += frames
        expected += results
    for slot in range(first, job.slots):
        discarded, queued, dropped = (rounds(slot, step) for step in range(3))
        for frames, _ in (discarded, queued, dropped):
            stuck += frames
        expected += queued[1]
    sent = engine.play(stuck, STUCK) + engine.play([])
    assert Counter(sent) == expected
    counters = perform(engine, director.read_counters())
    assert (counters["results_dropped"], counters["results_discarded"]) == (GONE_ON, GONE_ON)
    # A counter rests while nothing happens: from cycle to cycle, too.
    for name in ("results_dropped", "results_discarded"):
        assert [engine.read(counter_address(name)) for _ in range(3)] == [GONE_ON] * 3
    for slot in range(first, job.slots):
        for worker in range(job.workers):
            question = job.probe(worker, slot, 2)
            assert engine.play([question]) == golden.receive(question)


def check_shares(engine: VerilatedEngine, build: Build) -> None:
    """Check that a job with as many queued replays as it may have leaves the others their share."""
    director = Director(**build)
    share = build["slots"] // build["jobs"]
    jobs = [
        Job(number=number, workers=2, lanes=1, slots=1, slot_base=share * number)
        for number in range(build["jobs"])
    ]
    perform(engine, director.configure())
    questions = []
    for job in jobs:
        perform(engine, director.create(job))
        perform(engine, director.each([job.data(worker, 0, 0) for worker in range(2)]))
        questions.append(job.probe(0, 0, 0))
    results = [director.golden.receive(question)[0] for question in questions]
    for first in range(len(jobs)):
        others = [*range(first + 1, len(jobs)), *range(first)]
        # The first job fills what is behind the queue, too.
        sent = engine.play([questions[first]] * 60, STUCK)
        for other in others:
            sent += engine.play([questions[other]] * 60, STUCK)
        sent += engine.play([])
        kept = Counter(results.index(frame) for frame in sent)
        assert [kept[other] for other in others] == [REPLAYS_PER_JOB] * len(others)
        assert kept[first] >= REPLAYS_PER_JOB
