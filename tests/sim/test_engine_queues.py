"""What waits in the delivery queue, and which ports are a parent's: gaps that mutants showed."""

import pytest
from tests.cocotb.afflux_layer import ENGINE_PORT
from tests.cocotb.director import Actions, Director
from tests.cocotb.job_frames import Job, ParentJob
from tests.cocotb.performer import perform
from tests.sim.engine_checks import BUILDS, open_engine

from afflux_sim.stimulus import Stimulus

WIDTHS = pytest.mark.parametrize("bus_bits", list(BUILDS))
STUCK = Stimulus(ready_share=0.0, drain=False)


@WIDTHS
def test_a_result_that_is_queued_for_all_is_not_queued_again_for_one(bus_bits: int) -> None:
    """The last of many results cannot have left: a network that takes nothing holds the others."""
    job = Job(workers=5, lanes=2, slots=8)
    director = Director(**BUILDS[bus_bits])
    contributions = [
        job.data(worker, slot, 0, {0: [1] * 64, 1: [2] * 64})
        for slot in range(job.slots)
        for worker in range(job.workers)
    ]
    again = [contributions[-1]] * 5
    with open_engine(bus_bits) as engine:
        perform(engine, director.configure())
        perform(engine, director.create(job))
        sent = engine.play(contributions + again, STUCK)
        sent += engine.play([])
        counters = perform(engine, director.read_counters())
        assert counters["rounds"] == job.slots
        assert counters["replays"] == 0
        assert counters["replays_dropped"] == counters["duplicates"] == len(again)
        assert len(sent) == job.slots * job.workers
        # Now that it has left, it is.
        assert len(engine.play(again[:1])) == 1
        counters = perform(engine, director.read_counters())
    assert counters["replays"] == 1


def with_port(frame: bytes, port: int) -> bytes:
    """The frame to another UDP port, without checksum."""
    return frame[:36] + port.to_bytes(2, "big") + frame[38:40] + b"\0\0" + frame[42:]


@WIDTHS
def test_every_bit_of_a_port_counts(bus_bits: int) -> None:
    job = Job(workers=1, lanes=1, slots=2, parent=ParentJob())
    director = Director(**BUILDS[bus_bits])
    near = range(ENGINE_PORT - 3, ENGINE_PORT + 12)
    far = [port ^ 1 << bit for port in (ENGINE_PORT, job.parent_port) for bit in range(16)]
    ports = sorted({*near, *far} - {ENGINE_PORT, job.parent_port})

    def scenario() -> Actions[dict[str, int]]:
        yield from director.configure()
        yield from director.create(job)
        yield from director.each([job.data(0, 0, 0, {0: [3] * 64})])
        result = job.down(0, 0, {0: [9] * 64})
        for port in ports:
            yield from director.each([with_port(job.data(0, 1, 0), port), with_port(result, port)])
        yield from director.each([with_port(result, job.parent_port)])
        return (yield from director.check_counters())

    with open_engine(bus_bits) as engine:
        counters = perform(engine, scenario())
    assert counters["parent_results"] == 1
    assert counters["accepted"] == 1
