"""Checks of the UDP ports that an engine takes for its own and for its jobs' parents."""

from afflux_sim.rtl.verilated import VerilatedEngine
from tests.scenarios.director import Actions, Build, Director
from tests.scenarios.job_frames import Job, ParentJob
from tests.scenarios.performer import perform

__all__ = ["check_ports"]

OWN_PORTS = (4700, 0x00FF, 0x7FFE, 0xAAAA, 0x5555)


def check_ports(engine: VerilatedEngine, build: Build) -> None:
    """Every bit of a port counts, to the engine's own and to a parent port, of the last job too."""
    for own_port in OWN_PORTS:
        for number in (0, build["jobs"] - 1):
            director = Director(**build, port=own_port)
            engine.reset()
            counters = perform(engine, _frames_to_other_ports(director, number, own_port))
            assert counters["parent_results"] == 1
            assert counters["accepted"] == 1


def _frames_to_other_ports(
    director: Director, number: int, own_port: int
) -> Actions[dict[str, int]]:
    """Send contributions and parent's results to every port near the right ones, or a bit away."""
    job = Job(number=number, workers=1, lanes=1, slots=2, parent=ParentJob())
    parent_port = own_port + 1 + number
    near = range(own_port - 3, own_port + 12)
    far = [port ^ 1 << bit for port in (own_port, parent_port) for bit in range(16)]
    contribution, result = job.data(0, 1, 0), job.down(0, 0, {0: [9] * 64})
    yield from director.configure()
    yield from director.create(job, join=False)
    yield from director.each([with_port(frame, own_port) for frame in job.joins()])
    yield from director.each([with_port(job.data(0, 0, 0, {0: [3] * 64}), own_port)])
    for port in sorted({*near, *far} - {own_port, parent_port}):
        yield from director.each([with_port(contribution, port), with_port(result, port)])
    yield from director.each([with_port(result, parent_port)])
    return (yield from director.check_counters())


def with_port(frame: bytes, port: int) -> bytes:
    """Return the frame to another UDP port, without checksum."""
    return frame[:36] + port.to_bytes(2, "big") + frame[38:40] + b"\0\0" + frame[42:]
