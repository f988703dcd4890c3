"""Tells an engine what to do and compares all that it does with the golden model.

A test scenario is a generator: it yields actions for the engine and is sent what came of them. So
one scenario runs on the engine's pins under cocotb and on the batched in-process simulation alike;
whoever performs the actions also chooses the pace.
"""

from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from scapy.layers.l2 import Ether
from tests.cocotb.afflux_layer import ENGINE_PORT, Afflux
from tests.cocotb.job_frames import ENGINE_ADDRESS, ENGINE_MAC, Job

from afflux_hdl.registers import COUNTERS, Command, address_of, counter_address
from afflux_sim.golden import GoldenEngine

__all__ = ["Action", "Actions", "Director", "Play", "ReadRegister", "WriteRegister"]


@dataclass(frozen=True)
class Play:
    """Drive the frames in, back to back or not; answer with the frames that came out."""

    frames: Sequence[bytes]
    mac_errors: Sequence[bool] | None = None


@dataclass(frozen=True)
class WriteRegister:
    """Write a register; answer with None."""

    address: int
    value: int


@dataclass(frozen=True)
class ReadRegister:
    """Answer with the register's value."""

    address: int


Action = Play | WriteRegister | ReadRegister
T = TypeVar("T")
Actions = Generator[Action, Any, T]

SHORT_ANSWERS = (10, 11, 12)
HEADERS_BYTES = 64


class Director:
    """Compares one engine with one golden model, action by action.

    Attributes:
        golden: The model.
        left_out: Number of frames that the engine did not send although the model did. They must
            be replays or short answers: an engine with queues may drop these, and discards a queued
            replay when its slot goes on.
    """

    def __init__(self, *, workers: int, lanes: int, jobs: int, slots: int) -> None:
        self.golden = GoldenEngine(
            workers=workers,
            lanes=lanes,
            jobs=jobs,
            slots=slots,
            mac=bytes.fromhex(ENGINE_MAC.replace(":", "")),
            address=ENGINE_ADDRESS,
            port=ENGINE_PORT,
        )
        self.left_out = 0

    def configure(self) -> Actions[None]:
        """Gives the engine its addresses."""
        mac = int.from_bytes(self.golden.endpoint.mac, "big")
        yield from self._write("local_mac_low", mac % 2**32)
        yield from self._write("local_mac_high", mac >> 32)
        address = int.from_bytes(self.golden.endpoint.packed_address, "big")
        yield from self._write("local_address", address)
        yield from self._write("local_port", ENGINE_PORT)

    def create(self, job: Job, join: bool = True) -> Actions[None]:
        """Creates a job; its workers join one after the other."""
        values = {
            "job_index": job.number,
            "job_key_low": job.key % 2**32,
            "job_key_high": job.key >> 32,
            "job_workers": job.workers,
            "job_lanes": job.lanes,
            "job_slot_base": job.slot_base,
            "job_slot_count": job.slots,
            "job_round": job.first_round,
            "job_credit": job.credit,
            "job_command": Command.CREATE,
        }
        for name, value in values.items():
            yield from self._write(name, value)
        yield from self._wait()
        self.golden.create_job(
            job.number,
            key=job.key,
            workers=job.workers,
            lanes=job.lanes,
            slot_base=job.slot_base,
            slot_count=job.slots,
            round=job.first_round,
            credit=job.credit,
        )
        if join:
            answers = yield from self.each(job.joins())
            assert [answer.type for answer in answers] == [11] * job.workers
            words = [[job.workers, job.lanes, job.slots, job.credit] + [0] * 12] * job.workers
            assert [answer.words for answer in answers] == words

    def destroy(self, job: Job) -> Actions[None]:
        """Destroys a job."""
        yield from self._write("job_index", job.number)
        yield from self._write("job_command", Command.DESTROY)
        yield from self._wait()
        self.golden.destroy_job(job.number)

    def each(self, frames: Iterable[bytes], mac_error: bool = False) -> Actions[list[Afflux]]:
        """Plays frames one at a time: byte-identical answers in the same order."""
        answers = []
        for frame in frames:
            got = yield Play([frame], [mac_error])
            expected = self.golden.receive(frame, mac_error)
            assert got == expected, _difference(frame, expected, got)
            answers += got
        return [_read(answer) for answer in answers]

    def flood(
        self, frames: Sequence[bytes], mac_errors: Sequence[bool] | None = None
    ) -> Actions[list[Afflux]]:
        """Plays all frames at once: to each destination the same frames, but for drops."""
        got = yield Play(frames, mac_errors)
        required: Counter[bytes] = Counter()
        droppable: Counter[bytes] = Counter()
        for number, frame in enumerate(frames):
            replays = self.golden.counters["replays"]
            caused = self.golden.receive(frame, bool(mac_errors and mac_errors[number]))
            replayed = self.golden.counters["replays"] > replays
            for answer in caused:
                may_drop = replayed or _read(answer).type in SHORT_ANSWERS
                (droppable if may_drop else required)[answer] += 1
        # A frame names its destination, so equal frames have equal destinations.
        sent, required, droppable = map(self._as_comparable, (Counter(got), required, droppable))
        extra = sent - required - droppable
        lacking = required - sent
        assert not extra, f"sent without cause: {[_describe(frame) for frame in extra]}"
        assert not lacking, f"never sent: {[_describe(frame) for frame in lacking]}"
        self.left_out += required.total() + droppable.total() - len(got)
        return [_read(frame) for frame in got]

    def _as_comparable(self, frames: Counter[bytes]) -> Counter[bytes]:
        """Results of rounds that their slot has left behind by two, as their headers alone.

        Only late duplicates ask for these, and nobody waits for them. Their version may be taken
        by the next round but one while they are being sent.
        """
        comparable: Counter[bytes] = Counter()
        for frame, count in frames.items():
            packet = _read(frame)
            overtaken = packet.type not in SHORT_ANSWERS and (
                self.golden.slot(packet.job, packet.slot).round - packet.round
            ) % 2**32 not in (0, 1)
            comparable[frame[:HEADERS_BYTES] if overtaken else frame] += count
        return comparable

    def check_counters(self) -> Actions[dict[str, int]]:
        """Compares all counters, allowing for the frames that were left out."""
        got = yield from self.read_counters()
        expected = dict(self.golden.counters)
        assert got["replays_dropped"] + got["replies_dropped"] <= self.left_out, got
        expected["replays"] -= got["replays_dropped"]
        expected["replays_dropped"] = got["replays_dropped"]
        expected["replies_dropped"] = got["replies_dropped"]
        expected["frames_out"] -= self.left_out
        different = {
            name: f"{got[name]}, not {expected[name]}"
            for name in expected
            if got[name] != expected[name]
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

    def _wait(self) -> Actions[None]:
        for _ in range(100_000):
            if not (yield ReadRegister(address_of("job_busy"))):
                return
        raise AssertionError("the engine stays busy with a job command")


def _read(frame: bytes) -> Afflux:
    return Ether(frame)[Afflux]


def _describe(frame: bytes) -> str:
    packet = Ether(frame)[Afflux]
    return (
        f"{packet.sprintf('%type%')} job {packet.job} worker {packet.worker} slot {packet.slot} "
        f"round {packet.round} present {packet.present:#x}"
    )


def _difference(cause: bytes, expected: Sequence[bytes], got: Sequence[bytes]) -> str:
    lines = [f"after {Ether(cause).summary()}: {cause[:128].hex(' ')}"]
    for title, frames in (("expected", expected), ("got", got)):
        lines += [f"{title} {_describe(frame)}: {frame[:128].hex(' ')}" for frame in frames]
    for number, (want, have) in enumerate(zip(expected, got, strict=False)):
        pairs = enumerate(zip(want, have, strict=False))
        places = [place for place, (one, other) in pairs if one != other]
        lines.append(f"frame {number}: {len(want)} and {len(have)} bytes, differ at {places[:20]}")
    return "\n".join(lines)
