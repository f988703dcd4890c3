"""Checks of whom an engine answers: nobody while it has no address, and no group at any time."""

from afflux_hdl.contract.registers import address_of
from afflux_sim.rtl.verilated import VerilatedEngine
from tests.scenarios.director import Actions, Build, Director
from tests.scenarios.job_frames import Job
from tests.scenarios.packing import repaired
from tests.scenarios.performer import perform

__all__ = ["check_no_address", "check_sources"]

GROUPS = ("ffffffffffff", "01005e000001", "333300000001", "030000000000")
NO_HOSTS = (
    (0, 0, 0, 0),
    (0, 9, 9, 9),
    (224, 0, 0, 1),
    (239, 255, 0, 1),
    (240, 0, 0, 1),
    (255,) * 4,
)
HOSTS = ((1, 0, 0, 0), (127, 0, 0, 1), (128, 0, 0, 1), (223, 255, 255, 255))


def with_source(frame: bytes, mac: bytes | None = None, address: bytes | None = None) -> bytes:
    """Return a frame from elsewhere, its checksums right."""
    changed = bytearray(frame)
    changed[6:12] = mac or frame[6:12]
    changed[26:30] = address or frame[26:30]
    return repaired(bytes(changed))


def check_sources(engine: VerilatedEngine, build: Build) -> None:
    """Send what is answered from each kind of address that no host has, and a JOIN from hosts.

    An answer to a group as source would go to all of it. It is dropped before anything answers.
    """
    director = Director(**build)
    job = Job(workers=2, lanes=1, slots=1)
    asked = [job.join(0), job.join(0, key=5), job.probe(0, 0, 1), job.join(9)]
    groups = [with_source(frame, mac=bytes.fromhex(mac)) for frame in asked for mac in GROUPS]
    nobody = [with_source(frame, address=bytes(a)) for frame in asked for a in NO_HOSTS]
    hosts = [with_source(asked[0], address=bytes(address)) for address in HOSTS]

    def scenario() -> Actions[dict[str, int]]:
        yield from director.configure()
        yield from director.create(job)
        answers = yield from director.each(groups + nobody)
        assert not answers
        answers = yield from director.each(hosts)
        assert len(answers) == len(HOSTS)
        return (yield from director.check_counters())

    counters = perform(engine, scenario())
    assert counters["bad_ip"] == len(groups) + len(nobody)


def check_no_address(engine: VerilatedEngine, build: Build) -> None:
    """After a reset, when the own address is 0.0.0.0, no frame is the engine's: not even one to it.

    Own MAC address and port are set already.
    """
    director = Director(**build)
    job = Job(workers=2, lanes=1, slots=1)
    perform(engine, director.configure())
    engine.write(address_of("local_address"), 0)
    frame = bytearray(job.join(0))
    frame[30:34] = bytes(4)
    assert engine.play([repaired(bytes(frame))]) == []
    counters = perform(engine, director.read_counters())
    assert (counters["frames_in"], counters["not_ours"]) == (1, 1)
