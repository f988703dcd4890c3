"""Drives an engine and compares all that it does with the golden model.

A test scenario is a generator: it yields actions for the engine and is sent what came of them. So
one scenario runs on the engine's pins under cocotb and on the batched in-process simulation alike;
the performer of the actions also chooses the pace.
"""

from collections import Counter
from collections.abc import Collection, Generator, Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Any, TypedDict, TypeVar

from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from afflux_hdl.contract import wire
from afflux_hdl.contract.registers import COUNTERS, Command, address_of, counter_address
from afflux_hdl.engine.answers import REFUSALS_BURST
from afflux_sim.golden import state as golden_state
from afflux_sim.golden.engine import GoldenEngine
from afflux_sim.golden.frames import Endpoint, GroupAddress
from tests.scenarios.afflux_layer import ENGINE_PORT, Afflux
from tests.scenarios.job_frames import ENGINE_ADDRESS, ENGINE_MAC, Job

__all__ = [
    "LARGE",
    "SMALL",
    "Action",
    "Actions",
    "Build",
    "Director",
    "Play",
    "ReadRegister",
    "WriteRegister",
]


@dataclass(frozen=True)
class Play:
    """Drive the frames in, back to back or not; answer with the frames that came out."""

    frames: Sequence[bytes]
    mac_errors: Sequence[bool] | None = None


@dataclass(frozen=True)
class WriteRegister:
    """Write a register, or see that the engine refuses this; answer with None."""

    address: int
    value: int
    refused: bool = False


@dataclass(frozen=True)
class ReadRegister:
    """Answer with the register's value."""

    address: int


Action = Play | WriteRegister | ReadRegister
T = TypeVar("T")
Actions = Generator[Action, Any, T]

JOIN, REFUSED = 2, 12
# Of 64 bits and 32: the gateware takes no others (docs/protocol.md, section 8.6).
PARTIAL_DTYPES = (13, 10, 11)
# The bits that the gateware's slots keep of float32, float16 and bfloat16.
WINDOWS = {1: 57, 2: 25, 3: 25}
SHORT_ANSWERS = (10, 11, REFUSED)
HEADERS_BYTES = 64


class Build(TypedDict):
    """The sizes of an engine."""

    workers: int
    lanes: int
    jobs: int
    slots: int


LARGE: Build = {"workers": 64, "lanes": 16, "jobs": 4, "slots": 16}
"""The largest jobs and frames. Most tests take it, at both widths: the models are compiled once."""

SMALL: Build = {"workers": 5, "lanes": 3, "jobs": 3, "slots": 8}
"""Built for little, so that its maxima are met too."""


class Director:
    """Compares one engine with one golden model, action by action.

    Attributes:
        golden: The model.
        left_out: Number of frames that the engine did not send although the model did. They must
            be replays, partial sums sent up again, or short answers: an engine with queues may drop
            these, and discards a queued replay when its slot goes on.
        left_out_bytes: Their bytes.
        left_out_refusals: Those of them that are refusals, of which an engine sends no more than
            its rate allows.
    """

    def __init__(
        self,
        *,
        workers: int,
        lanes: int,
        jobs: int,
        slots: int,
        mac: str = ENGINE_MAC,
        address: str = ENGINE_ADDRESS,
        port: int = ENGINE_PORT,
        partials: Collection[int] = PARTIAL_DTYPES,
    ) -> None:
        self.golden = GoldenEngine(
            workers=workers,
            lanes=lanes,
            jobs=jobs,
            slots=slots,
            mac=bytes.fromhex(mac.replace(":", "")),
            address=address,
            port=port,
            partials=partials,
            windows=WINDOWS,
        )
        self.left_out = 0
        self.left_out_bytes = 0
        self.left_out_refusals = 0
        self._refusals = 0

    def configure(self) -> Actions[None]:
        """Give the engine its addresses."""
        mac = int.from_bytes(self.golden.endpoint.mac, "big")
        yield from self._write("local_mac_low", mac % 2**32)
        yield from self._write("local_mac_high", mac >> 32)
        address = int.from_bytes(self.golden.endpoint.packed_address, "big")
        yield from self._write("local_address", address)
        yield from self._write("local_port", self.golden.endpoint.port)

    def create(self, job: Job, join: bool = True) -> Actions[None]:
        """Create a job; its workers join one after the other."""
        values = job.registers() | _group_registers(job) | _parent_registers(job)
        for name, value in values.items():
            yield from self._write(name, value)
        yield from self._command(Command.CREATE)
        yield from self._check_register("job_enabled", 1)
        yield from self._check_register("job_parent_joined", 0)
        self.golden.create_job(
            job.number,
            key=job.key,
            workers=job.workers,
            lanes=job.lanes,
            slot_base=job.slot_base,
            slot_count=job.slots,
            round=job.first_round,
            credit=job.credit,
            group=_golden_group(job),
            group_key=job.group.key if job.group else 0,
            parent=_golden_parent(job),
            may_move=job.may_move,
        )
        if join:
            answers = yield from self.each(job.joins())
            assert [answer.type for answer in answers] == [11] * job.workers
            words = [job.workers, job.lanes, job.slots, job.credit, *_group_registers(job).values()]
            words += [0] * 8
            assert [answer.words for answer in answers] == [words] * job.workers

    def join_parent(self, job: Job) -> Actions[Afflux]:
        """Let a job join its parent; return the JOIN that went up, not answered yet."""
        return _read((yield from self.join_parent_frame(job)))

    def join_parent_frame(self, job: Job) -> Actions[bytes]:
        """Do the same, and return the frame as it went over the wire."""
        yield from self._write("job_index", job.number)
        yield from self._command(Command.JOIN_PARENT)
        got = yield Play([])
        expected = [self.golden.join_parent(job.number)]
        assert got == expected, "\n".join(_compared(expected, got))
        (frame,) = got
        return frame

    def check_parent_joined(self, job: Job) -> Actions[bool]:
        """Compare the register that says whether a job has joined its parent."""
        joined = self.golden.has_joined_parent(job.number)
        yield from self._write("job_index", job.number)
        yield from self._check_register("job_parent_joined", int(joined))
        return joined

    def destroy(self, job: Job) -> Actions[None]:
        """Destroy a job."""
        yield from self._write("job_index", job.number)
        yield from self._command(Command.DESTROY)
        yield from self._check_register("job_enabled", 0)
        self.golden.destroy_job(job.number)

    def each(self, frames: Iterable[bytes], mac_error: bool = False) -> Actions[list[Afflux]]:
        """Play frames one at a time: byte-identical answers in the same order.

        Only a refusal may fail to come, after as many as an engine sends at once.
        """
        answers = yield from self.each_frame(frames, mac_error)
        return [_read(answer) for answer in answers]

    def each_frame(self, frames: Iterable[bytes], mac_error: bool = False) -> Actions[list[bytes]]:
        """Do the same, with the answers as they went over the wire."""
        answers: list[bytes] = []
        for frame in frames:
            got = yield Play([frame], [mac_error])
            expected = self.golden.receive(frame, mac_error)
            if not got and self._refuses(expected) and self._refusals >= REFUSALS_BURST:
                self._leave_out(Counter(expected))
            else:
                assert got == expected, _difference(frame, expected, got)
            self._refusals += self._refuses(expected)
            answers += got
        return answers

    def flood(
        self, frames: Sequence[bytes], mac_errors: Sequence[bool] | None = None
    ) -> Actions[list[Afflux]]:
        """Play all frames at once: to each destination the same frames, but for drops."""
        got = yield from self.flood_frames(frames, mac_errors)
        return [_read(frame) for frame in got]

    def flood_frames(
        self, frames: Sequence[bytes], mac_errors: Sequence[bool] | None = None
    ) -> Actions[list[bytes]]:
        """Do the same, with the answers as they went over the wire."""
        got: list[bytes] = yield Play(frames, mac_errors)
        required: Counter[bytes] = Counter()
        droppable: Counter[bytes] = Counter()
        for number, frame in enumerate(frames):
            replays = self.golden.counters["replays"]
            caused = self.golden.receive(frame, bool(mac_errors and mac_errors[number]))
            replayed = self.golden.counters["replays"] > replays
            for answer in caused:
                may_drop = replayed or _read(answer).type in SHORT_ANSWERS
                (droppable if may_drop else required)[answer] += 1
        due = required + droppable
        # Nobody waits for a result that is overtaken before it leaves: it may be dropped.
        overtaken = Counter({f: count for f, count in required.items() if self._is_overtaken(f)})
        required, droppable = required - overtaken, droppable + overtaken
        self._refusals += sum(count for f, count in due.items() if self._refuses([f]))
        # A frame names its destination, so equal frames have equal destinations.
        sent, required, droppable = map(self._as_comparable, (Counter(got), required, droppable))
        extra = sent - required - droppable
        lacking = required - sent
        assert not extra, f"sent without cause: {[_describe(frame) for frame in extra]}"
        assert not lacking, f"never sent: {[_describe(frame) for frame in lacking]}"
        self._leave_out(due)
        self._leave_out(Counter(got), -1)
        return got

    @staticmethod
    def _refuses(frames: Sequence[bytes]) -> bool:
        """Return whether this is a refusal and nothing else."""
        return len(frames) == 1 and frames[0][42] & 15 == REFUSED

    def _leave_out(self, frames: Counter[bytes], times: int = 1) -> None:
        for frame, count in frames.items():
            self.left_out += times * count
            self.left_out_bytes += times * count * len(frame)
            self.left_out_refusals += times * count * self._refuses([frame])

    def _as_comparable(self, frames: Counter[bytes]) -> Counter[bytes]:
        """Frames that may be overtaken while they are being sent, as their headers alone.

        These are results of rounds that their slot has left behind by two: only late duplicates
        ask for them, and nobody waits for them, but their version may be taken by the next round
        but one. And partial sums of rounds whose result has come down: the parent has them.
        """
        comparable: Counter[bytes] = Counter()
        for frame, count in frames.items():
            comparable[frame[:HEADERS_BYTES] if self._is_overtaken(frame) else frame] += count
        return comparable

    def _is_overtaken(self, frame: bytes) -> bool:
        packet = _read(frame)
        if packet.type in SHORT_ANSWERS or packet.type == JOIN:
            return False
        number = Ether(frame)[UDP].sport - self.golden.endpoint.port - 1
        if number < 0:
            slot = self.golden.slot(packet.job, packet.slot)
            return (slot.round - packet.round) % 2**32 not in (0, 1)
        slot = self.golden.slot(number, packet.slot)
        return slot.round != packet.round or not slot.waiting

    def check_counters(self, uncounted: frozenset[str] = frozenset()) -> Actions[dict[str, int]]:
        """Compare all counters but the `uncounted`, allowing for the frames that were left out."""
        got = yield from self.read_counters()
        expected = dict(self.golden.counters)
        # One frame each; and one for each worker, at most.
        frames = got["replays_dropped"] + got["replies_dropped"] + self.left_out_refusals
        deliveries = got["results_dropped"] + got["results_discarded"]
        assert frames + deliveries <= self.left_out <= frames + deliveries * wire.WORKERS_MAX, got
        expected["replays"] -= got["replays_dropped"]
        for name in ("replays_dropped", "replies_dropped", "results_dropped", "results_discarded"):
            expected[name] = got[name]
        expected["refusals_dropped"] = self.left_out_refusals
        expected["frames_out"] -= self.left_out
        expected["bytes_out"] -= self.left_out_bytes
        different = {
            name: f"{got[name]}, not {expected[name]}"
            for name in expected
            if got[name] != expected[name] and name not in uncounted
        }
        assert not different, f"counters: {different}"
        return got

    def read_counters(self) -> Actions[dict[str, int]]:
        """All counters of the engine."""
        counters = {}
        for counter in COUNTERS:
            address = counter_address(counter.name)
            low = yield ReadRegister(address)
            high = yield ReadRegister(address + 4)
            counters[counter.name] = high << 32 | low
        return counters

    def _write(self, name: str, value: int) -> Actions[None]:
        yield WriteRegister(address_of(name), value)

    def _check_register(self, name: str, expected: int) -> Actions[None]:
        value = yield ReadRegister(address_of(name))
        assert value == expected, f"register {name} is {value}, not {expected}"

    def _command(self, command: Command) -> Actions[None]:
        yield from self._write("job_command", command)
        for _ in range(100_000):
            if not (yield ReadRegister(address_of("job_busy"))):
                return
        raise AssertionError("the engine stays busy with a job command")


def _group_registers(job: Job) -> dict[str, int]:
    if job.group is None:
        names = "address", "port", "key_low", "key_high"
        return {f"job_group_{name}": 0 for name in names}
    return {
        "job_group_address": _number(job.group.address),
        "job_group_port": job.group.port,
        "job_group_key_low": job.group.key % 2**32,
        "job_group_key_high": job.group.key >> 32,
    }


def _parent_registers(job: Job) -> dict[str, int]:
    """Return the values of the parent's registers; zero where there is none."""
    parent = job.parent
    mac = int(parent.mac.replace(":", ""), 16) if parent else 0
    return {
        "job_parent_mac_low": mac % 2**32,
        "job_parent_mac_high": mac >> 32,
        "job_parent_address": _number(parent.address) if parent else 0,
        "job_parent_port": parent.port if parent else 0,
        "job_parent_job": parent.number if parent else 0,
        "job_parent_worker": parent.worker if parent else 0,
        "job_parent_key_low": parent.key % 2**32 if parent else 0,
        "job_parent_key_high": parent.key >> 32 if parent else 0,
    }


def _golden_group(job: Job) -> GroupAddress | None:
    return GroupAddress(job.group.address, job.group.port) if job.group else None


def _golden_parent(job: Job) -> golden_state.Parent | None:
    if job.parent is None:
        return None
    parent = job.parent
    mac = bytes.fromhex(parent.mac.replace(":", ""))
    there = Endpoint(mac, parent.address, parent.port)
    return golden_state.Parent(there, parent.number, parent.worker, parent.key)


def _number(address: str) -> int:
    return int(IPv4Address(address))


def _read(frame: bytes) -> Afflux:
    """Return the packet of a frame, also of one to a parent, whose port scapy does not know."""
    udp = Ether(frame)[UDP]
    udp.decode_payload_as(Afflux)
    return udp[Afflux]


def _describe(frame: bytes) -> str:
    packet = _read(frame)
    return (
        f"to {Ether(frame)[IP].dst}: {packet.sprintf('%type%')} job {packet.job} "
        f"worker {packet.worker} slot {packet.slot} round {packet.round} "
        f"present {packet.present:#x}"
    )


def _difference(cause: bytes, expected: Sequence[bytes], got: Sequence[bytes]) -> str:
    return "\n".join(
        [f"after {Ether(cause).summary()}: {cause[:128].hex(' ')}", *_compared(expected, got)]
    )


def _compared(expected: Sequence[bytes], got: Sequence[bytes]) -> list[str]:
    lines = []
    for title, frames in (("expected", expected), ("got", got)):
        lines += [f"{title} {_describe(frame)}: {frame[:128].hex(' ')}" for frame in frames]
    for number, (want, have) in enumerate(zip(expected, got, strict=False)):
        pairs = enumerate(zip(want, have, strict=False))
        places = [place for place, (one, other) in pairs if one != other]
        lines.append(f"frame {number}: {len(want)} and {len(have)} bytes, differ at {places[:20]}")
    return lines
