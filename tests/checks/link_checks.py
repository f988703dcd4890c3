"""Checks of an engine whose network takes nothing: the link is down, or the operator says so."""

import random
from collections import Counter
from dataclasses import replace

from afflux_hdl.contract.registers import Command, address_of
from afflux_hdl.engine.parameters import Parameters
from afflux_sim.rtl.stimulus import NOT_DRAINED, Stimulus
from afflux_sim.rtl.verilated import VerilatedEngine
from tests.checks.slow_network import STUCK
from tests.scenarios.director import Build, Director
from tests.scenarios.job_frames import Job
from tests.scenarios.performer import perform

__all__ = [
    "check_commands_while_the_link_is_down",
    "check_discards_for_a_moment",
    "check_operator_discards",
    "check_reset_amid_frames",
    "check_reset_ends_the_frame",
]

COMMAND_CYCLES = 20_000
"""More than a job command takes on the engines of the tests while output is discarded: 5 workers'
results of both versions of 16 slots, 66 beats each, and the initial state of as many slots."""


RESET_CYCLES = 5
"""The pin is held for four, and acts one cycle later."""


def check_operator_discards(engine: VerilatedEngine, build: Build) -> None:
    """Discard output on the operator's command: it is counted, and probes bring it back later.

    Jobs are created and destroyed meanwhile, with a network that takes nothing.
    """
    director, job = _configured(engine, build)
    golden = director.golden
    frames = job.full_rounds()
    results = [answer for frame in frames for answer in golden.receive(frame)]
    cut_before = engine.statistics().frames_cut
    engine.write(address_of("transmit_control"), 1)
    assert engine.read(address_of("transmit_state")) == 1
    before = perform(engine, director.read_counters())
    assert engine.play(frames, STUCK) == []
    other = Job(number=1, workers=1, lanes=1, slots=1, slot_base=job.slots)
    _command(engine, other, Command.DESTROY, COMMAND_CYCLES)
    # Only now is there nothing left to be sent.
    assert engine.play([]) == []
    after = perform(engine, director.read_counters())
    assert after["frames_discarded"] - before["frames_discarded"] == len(results)
    assert after["frames_out"] == before["frames_out"]
    assert after["bytes_out"] == before["bytes_out"]
    assert after["rounds"] - before["rounds"] == job.slots

    engine.write(address_of("transmit_control"), 0)
    assert engine.read(address_of("transmit_state")) == 0
    _recover(engine, director, job)
    assert engine.statistics().frames_cut == cut_before


def check_discards_for_a_moment(engine: VerilatedEngine, build: Build) -> None:
    """Discard output for a few cycles, at any beat of a frame: it is sent whole or not at all.

    Discarded frames are counted, and one that has left in part is ended with an error.
    """
    director, job = _configured(engine, build)
    blocks = {lane: [lane] * 64 for lane in range(job.lanes)}
    bus_bytes = engine.read(address_of("build_bus_bits")) // 8
    discarded = cuts = 0
    # Both phases, and every beat of one frame or another.
    step_cycles = 1 + 2 * max(1, 48 // bus_bytes)
    moments = range(20, 40 + 4 * 256 * job.lanes // bus_bytes, step_cycles)
    for step, moment in enumerate(moments):
        frames = [job.data(worker, 0, step, blocks) for worker in range(job.workers)]
        results = [answer for frame in frames for answer in director.golden.receive(frame)]
        before = perform(engine, director.read_counters())["frames_discarded"]
        cut_before = engine.statistics().frames_cut
        sent = engine.play(frames, NOT_DRAINED)
        sent += engine.run(moment)
        engine.write(address_of("transmit_control"), 1)
        sent += engine.run(step % 4)
        engine.write(address_of("transmit_control"), 0)
        sent += engine.play([])
        lost = perform(engine, director.read_counters())["frames_discarded"] - before
        cut = engine.statistics().frames_cut - cut_before
        assert not Counter(sent) - Counter(results), f"after {moment} cycles"
        assert len(sent) + lost == len(results), f"after {moment} cycles"
        assert cut <= lost, f"after {moment} cycles"
        discarded, cuts = discarded + lost, cuts + cut
    assert discarded >= cuts > 0


def check_commands_while_the_link_is_down(engine: VerilatedEngine, build: Build) -> None:
    """Create and destroy jobs while `tx` is stuck for ever.

    Beats before the network stay and come out unchanged when the link is up again; the frame that
    was cut is marked; everything else was discarded, and probes bring it back.
    """
    director, job = _configured(engine, build)
    golden = director.golden
    frames = job.full_rounds()
    results = [answer for frame in frames for answer in golden.receive(frame)]
    before = perform(engine, director.read_counters())
    cut_before = engine.statistics().frames_cut
    assert engine.play(frames, STUCK) == []
    other = Job(number=1, workers=1, lanes=1, slots=1, slot_base=job.slots, key=2)
    assert engine.read(address_of("transmit_state")) == 0
    for command in (Command.DESTROY, Command.CREATE, Command.DESTROY):
        _command(engine, other, command, COMMAND_CYCLES)
    _cycles_until_down(engine)
    for command in (Command.CREATE, Command.DESTROY):
        _command(engine, other, command, COMMAND_CYCLES)
    # Rounds that are completed meanwhile are lost as well.
    frames = job.full_rounds(1)
    results += [answer for frame in frames for answer in golden.receive(frame)]
    assert engine.play(frames, STUCK) == []
    _cycles(engine, COMMAND_CYCLES)

    sent = engine.play([])
    after = perform(engine, director.read_counters())
    statistics = engine.statistics()
    discarded = after["frames_discarded"] - before["frames_discarded"]
    assert engine.read(address_of("transmit_state")) == 0
    assert Counter(sent) <= Counter(results)
    assert len(sent) + discarded == len(results)
    assert after["frames_out"] - before["frames_out"] == len(sent)
    # Of the frame in which the output stopped, part was before the network, and part was not.
    assert statistics.frames_cut == cut_before + 1
    _recover(engine, director, job, 1)
    assert engine.statistics().frames_cut == cut_before + 1
    # The job whose own results are under way, before the link counts as down.
    engine.play(job.full_rounds(2), STUCK)
    _command(engine, job, Command.DESTROY, Parameters().link_timeout + COMMAND_CYCLES)
    assert engine.read(address_of("delivery_level")) == 0


def check_reset_ends_the_frame(engine: VerilatedEngine, build: Build) -> None:
    """Reset at any beat of a frame: what is cut off is ended with an error, and nothing else is."""
    inside = 0
    bus_bytes = engine.read(address_of("build_bus_bits")) // 8
    for cycles in range(24):
        director, job = _configured(engine, build)
        frames = [job.data(worker, 0, 0, {0: [1] * 64}) for worker in range(job.workers)]
        answers = [answer for frame in frames for answer in director.golden.receive(frame)]
        engine.play(frames, STUCK)
        _cycles(engine, 400)
        before = engine.statistics()
        sent = engine.run(cycles)
        # From here on the network takes nothing.
        engine.play([job.join(0)], STUCK)
        beats = engine.statistics().beats_out - before.beats_out
        cut = beats != sum(-(-len(frame) // bus_bytes) for frame in sent)
        assert sent == answers[: len(sent)]
        engine.reset()
        assert engine.run(300) == []
        assert engine.statistics().frames_cut - before.frames_cut == cut, cycles
        inside += cut
    assert 0 < inside < 24


def _configured(engine: VerilatedEngine, build: Build) -> tuple[Director, Job]:
    """Set the engine up with a job of five workers and all slots but the last one."""
    director = Director(**build)
    job = Job(workers=5, lanes=build["lanes"], slots=build["slots"] - 1, first_round=0)
    perform(engine, director.configure())
    perform(engine, director.create(job))
    return director, job


def _command(engine: VerilatedEngine, job: Job, command: Command, cycles: int) -> None:
    """Carry a command out while nothing can be sent, and find it done after so many cycles."""
    for name, value in (
        ("job_index", job.number),
        ("job_workers", job.workers),
        ("job_lanes", job.lanes),
        ("job_slot_base", job.slot_base),
        ("job_slot_count", job.slots),
        ("job_command", command),
    ):
        engine.write(address_of(name), value)
    for _ in range(cycles):
        # A read takes a cycle, in which the network is as it was.
        if not engine.read(address_of("job_busy")):
            break
    else:
        raise AssertionError(f"{command.name} hangs while tx is stuck")
    assert engine.read(address_of("job_enabled")) == (command is Command.CREATE)


def _cycles_until_down(engine: VerilatedEngine) -> None:
    for _ in range(Parameters().link_timeout):
        if engine.read(address_of("transmit_state")):
            return
    raise AssertionError("the link is not down yet")


def _cycles(engine: VerilatedEngine, cycles: int) -> None:
    for _ in range(cycles):
        engine.read(address_of("identity"))


def _recover(engine: VerilatedEngine, director: Director, job: Job, step: int = 0) -> None:
    """Ask for every result again, and get it."""
    for slot in range(job.slots):
        for worker in range(job.workers):
            probe = job.probe(worker, slot, step)
            assert engine.play([probe]) == director.golden.receive(probe), (slot, worker)


def check_reset_amid_frames(engine: VerilatedEngine, build: Build) -> None:
    """Reset in the middle of frames of both directions, while both other ends go on.

    The tail of the frame that is coming in counts as a frame that the MAC has marked, and nothing
    else of it does; each frame behind it is judged. A frame that leaves is whole, or ends with an
    error.
    """
    choose = random.Random(3)
    bus_bytes = engine.read(address_of("build_bus_bits")) // 8
    tails = cuts = 0
    for _ in range(24):
        director, job = _configured(engine, build)
        rounds = replace(job, slots=2).full_rounds()
        whole = [answer for frame in rounds for answer in director.golden.receive(frame)]
        # Frames of all numbers of beats, which are nobody's.
        frames = [*rounds, *(choose.randbytes(choose.randrange(1, 400)) for _ in range(30))]
        beats = [-(-len(frame) // bus_bytes) for frame in frames]
        begins = [sum(beats[:n]) for n in range(len(frames))]
        reset_at = choose.randrange(begins[len(rounds)], begins[-1])
        cut_before = engine.statistics().frames_cut
        sent = engine.play(frames, Stimulus(reset_at=reset_at, ready_share=0.5, seed=reset_at))
        assert sent == whole[: len(sent)]
        counters = perform(engine, director.read_counters())
        # A beat comes in every cycle: these frames are under way when the reset ends, or behind it.
        over = reset_at + RESET_CYCLES
        behind = sum(begin >= over for begin in begins)
        cut = sum(begin < over < begin + n for begin, n in zip(begins, beats, strict=True))
        assert counters["frames_in"] == behind + cut
        assert counters["mac_error"] == cut
        tails += cut
        cuts += engine.statistics().frames_cut - cut_before
    assert tails > 2 and cuts > 2, (tails, cuts)
