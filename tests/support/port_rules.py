"""Which frames leave by which network ports: `docs/node.md`, "Several network ports", in Python.

In tests each end sits behind the port that follows from its addresses, so a frame says where it has
to go. Its unstated part is known of its job.
"""

from dataclasses import dataclass, field

from afflux_hdl.contract.registers import Command, address_of
from afflux_sim.golden.engine import GoldenEngine

__all__ = ["JobPorts", "PortRules", "port_of", "ports_for", "source_port"]

JOIN, JOINED = 2, 11


def port_of(mac: bytes, udp_port: int) -> int:
    """Return which of two ports an end is behind."""
    return (mac[5] ^ udp_port) & 1


def source_port(frame: bytes) -> int:
    """Return the port by which a frame comes, be it one at all or not."""
    return port_of(frame[6:12].ljust(6, b"\0"), int.from_bytes(frame[34:36], "big"))


def target_port(frame: bytes) -> int:
    """Return the port behind which the end is that a frame goes to, unless that is a group."""
    return port_of(frame[:6], int.from_bytes(frame[36:38], "big"))


def ports_for(golden: GoldenEngine, frame: bytes) -> set[int]:
    """Return the ports by which a frame has to leave that the golden engine sends now."""
    jobs = [job for job in golden.jobs if job is not None]
    if frame[0] & 1:
        (job,) = (
            job
            for job in jobs
            if job.group and job.group.endpoint.packed_address == frame[30:34] and job.joined
        )
        return {port_of(end.mac, end.port) for end in job.joined.values()}
    number = int.from_bytes(frame[34:36], "big") - golden.endpoint.port - 1
    if number >= 0:
        (job,) = (job for job in jobs if job.number == number)
        if not job.parent_joined:
            return {0, 1}
    return {target_port(frame)}


@dataclass
class JobPorts:
    """The facts about a job's ports that hold without knowing which frames have been accepted.

    Attributes:
        asked: Ports by which a JOIN has come: its group is behind no others.
        granted: Ports by which a JOINED has left: its group is behind all of them.
        earlier: Ports of the job that had this number before, results of which may still leave.
    """

    asked: set[int] = field(default_factory=set)
    granted: set[int] = field(default_factory=set)
    earlier: set[int] = field(default_factory=set)


class PortRules:
    """Judges the ports of an engine's frames, at any pace, by what goes in and out alone.

    Frames to one end are judged exactly. A result for a group leaves by all ports that have been
    granted to its job, and by none that nobody has asked for. A frame to a parent leaves by the
    parent's port, or by all: whether the parent's JOINED was accepted is not known here.
    """

    def __init__(self) -> None:
        self._jobs: dict[int, JobPorts] = {}
        self._local_port = 0
        self._index = 0

    def written(self, address: int, value: int) -> None:
        """Note a write to a register that the engine has carried out."""
        if address == address_of("local_port"):
            self._local_port = value & 0xFFFF
        elif address == address_of("job_index"):
            self._index = value & 0xFF
        elif address == address_of("job_command") and value in (Command.CREATE, Command.DESTROY):
            before = self._jobs.get(self._index, JobPorts())
            self._jobs[self._index] = JobPorts(earlier=before.asked | before.earlier)

    def commands_come(self) -> None:
        """Note that commands are written amid frames: of no job it is known which one it is."""
        for job in self._jobs.values():
            job.granted.clear()

    def comes(self, frame: bytes, port: int) -> None:
        """Note a frame that goes in."""
        if len(frame) > 44 and frame[42] & 0xF == JOIN:
            self._job(frame[44]).asked.add(port)

    def is_right(self, frame: bytes, ports: frozenset[int], every: frozenset[int]) -> bool:
        """Return whether a frame may leave by these ports, of `every` port that there is."""
        if len(frame) <= 44:
            return False
        kind, number = frame[42] & 0xF, frame[44]
        own_port = int.from_bytes(frame[34:36], "big")
        if frame[0] & 1:
            job = self._job(number)
            return job.granted <= ports <= job.asked | job.earlier
        if kind == JOINED:
            self._job(number).granted |= ports
        return ports == {target_port(frame)} or (own_port != self._local_port and ports == every)

    def rests(self) -> None:
        """Note that the engine is idle: of jobs that have gone nothing leaves any more."""
        for job in self._jobs.values():
            job.earlier.clear()

    def reset(self) -> None:
        """Forget all jobs."""
        self._jobs.clear()

    def _job(self, number: int) -> JobPorts:
        return self._jobs.setdefault(number, JobPorts())
