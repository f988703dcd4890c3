"""A whole job between golden workers and a golden engine, with every frame that was on the wire."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from afflux_sim.golden.engine import GoldenEngine
from afflux_sim.golden.frames import DTYPES, Endpoint, GroupAddress
from afflux_sim.golden.network import deliver, make_workers
from afflux_sim.golden.reductions import Tensor
from afflux_sim.golden.state import Parent
from afflux_sim.golden.worker import GoldenWorker

__all__ = ["ENGINE", "Conversation", "Job", "golden_engine"]

ENGINE = Endpoint(bytes.fromhex("02affa000001"), "10.0.0.9", 4700)

# Bits that it keeps of a sum, by dtype, as an engine does whose slots have 64 for a word.
WINDOWS = {DTYPES["float32"]: 57, DTYPES["float16"]: 25, DTYPES["bfloat16"]: 25}


def golden_engine(at: Endpoint) -> GoldenEngine:
    """Return an aggregator of the vectors."""
    return GoldenEngine(windows=WINDOWS, mac=at.mac, address=at.address, port=at.port)


@dataclass(frozen=True)
class Job:
    """The parameters of a job's create; `round` is r0, near the wrap unless said otherwise.

    `ranks` is the number of workers of the whole tree, None if the job has them all.
    """

    workers: int
    lanes: int
    slots: int
    number: int = 2
    key: int = 0x00F1E2D3C4B5A697
    round: int = 0xFFFFFFFE
    group: GroupAddress | None = None
    group_key: int = 0x00C3D2E1F0A59687
    parent: Parent | None = None
    ranks: int | None = None

    @property
    def credit(self) -> int:
        """Return as many packets as there are slots."""
        return self.slots


@dataclass
class Conversation:
    """One job from its joins on.

    Attributes:
        name: Of the file.
        shows: The purpose of the conversation.
        job: The job.
        frames: All that were sent, in the order in which they pass the aggregator.
        lost: Numbers of those frames, from 1, that never arrived.
        foreign: Numbers of those that no worker of the job would send.
        commanded: Numbers of those that the aggregator sends on its operator's command.
        operations: The workers' calls, and their results.
    """

    name: str
    shows: str
    job: Job
    frames: list[bytes] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    foreign: list[int] = field(default_factory=list)
    commanded: list[int] = field(default_factory=list)
    operations: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        job = self.job
        # Of the operation that began last; those that bring blocks again follow it.
        self._number = 0
        self.engine = golden_engine(ENGINE)
        self.engine.create_job(
            job.number,
            key=job.key,
            workers=job.workers,
            lanes=job.lanes,
            slot_base=0,
            slot_count=job.slots,
            round=job.round,
            credit=job.credit,
            group=job.group,
            group_key=job.group_key,
            parent=job.parent,
        )
        self.workers: list[GoldenWorker] = make_workers(
            job.workers,
            engine=ENGINE,
            job=job.number,
            key=job.key,
            round=job.round,
            lanes=job.lanes,
            slots=job.slots,
            ranks=job.ranks,
            group=job.group,
        )

    def send(
        self, frame: bytes, *, lost: bool = False, lost_answers: Sequence[int] = ()
    ) -> list[bytes]:
        """Send a worker's frame, and deliver what the aggregator answers at once.

        Args:
            frame: To the aggregator.
            lost: Whether it never arrives there.
            lost_answers: Which of its answers, counted from 0, never arrive.

        Returns:
            The answers.
        """
        self.frames.append(frame)
        if lost:
            self.lost.append(len(self.frames))
            return []
        answers = self.engine.receive(frame)
        for number, answer in enumerate(answers):
            self.frames.append(answer)
            if number in lost_answers:
                self.lost.append(len(self.frames))
            else:
                self.deliver(answer)
        return answers

    def deliver(self, frame: bytes) -> None:
        """Hand a frame of the aggregator to those that it goes to."""
        deliver([frame], self.workers)

    def send_foreign(self, frame: bytes) -> list[bytes]:
        """Send a frame that no worker of the job would send; its answer is recorded only."""
        self.frames.append(frame)
        self.foreign.append(len(self.frames))
        answers = self.engine.receive(frame)
        self.frames += answers
        return answers

    def join(self) -> None:
        """Let all workers join."""
        for worker in self.workers:
            self.send(worker.join())

    def start(self, tensors: Sequence[Tensor], dtype: str, reduction: str) -> None:
        """Begin an operation at all workers."""
        for worker, tensor in zip(self.workers, tensors, strict=True):
            worker.start(tensor, dtype, reduction)
        self._began()

    def begin_calls(self, calls: Sequence[tuple[Tensor, str, str]]) -> None:
        """Begin what each worker calls."""
        for worker, call in zip(self.workers, calls, strict=True):
            worker.start(*call)
        self._began()

    def _began(self) -> None:
        operation = self.workers[0].operation
        assert operation is not None
        self._number = operation.number

    def play(self) -> None:
        """Play rounds over a network that loses nothing, until no worker sends any more."""
        while True:
            frames = [frame for worker in self.workers for frame in worker.frames_to_send()]
            if not frames:
                went_on = [worker.go_on() for worker in self.workers]
                if not any(went_on):
                    return
            for frame in frames:
                self.send(frame)

    def note(self, tensors: Sequence[Tensor], dtype: str, reduction: str) -> None:
        """Write down an operation that is over, and the result that all workers have."""
        results = [worker.result() for worker in self.workers]
        if len({result.tobytes() for result in results}) != 1:
            raise AssertionError(f"{self.name}: the workers' results differ")
        self.operations.append(
            {
                "number": self._number,
                "reduction": reduction,
                "dtype": dtype,
                "shape": list(tensors[0].shape),
                "inputs": [_hexadecimal(tensor) for tensor in tensors],
                "result": _hexadecimal(results[0]),
            }
        )

    def note_disagreement(self, calls: Sequence[tuple[Tensor, str, str]]) -> None:
        """Write down that the workers called different operations, and that all have failed."""
        if not all(worker.error for worker in self.workers):
            raise AssertionError(f"{self.name}: a worker has not noticed the disagreement")
        self.operations.append(
            {
                "number": self._number,
                "calls": [
                    {
                        "reduction": reduction,
                        "dtype": dtype,
                        "shape": list(tensor.shape),
                        "input": _hexadecimal(tensor),
                    }
                    for tensor, dtype, reduction in calls
                ],
                "result": None,
            }
        )

    def reduce(self, tensors: Sequence[Tensor], dtype: str, reduction: str) -> None:
        """Play one operation from its start to its end."""
        self.start(tensors, dtype, reduction)
        self.play()
        self.note(tensors, dtype, reduction)

    def description(self) -> dict[str, Any]:
        """Return all but the frames, as it stands in the index."""
        job = self.job
        return {
            "name": self.name,
            "file": f"{self.name}.pcap",
            "shows": self.shows,
            "frames": len(self.frames),
            "lost": self.lost,
            "foreign": self.foreign,
            "commanded": self.commanded,
            "job": job.number,
            "key": f"{job.key:016x}",
            "round": job.round,
            "workers": job.workers,
            "lanes": job.lanes,
            "slots": job.slots,
            "credit": job.credit,
            "group": job.group and _group(job.group, job.group_key),
            "ranks": job.ranks or job.workers,
            "parent": job.parent and _above(job.parent),
            "aggregator": _place(ENGINE),
            "members": [_place(worker.endpoint) for worker in self.workers],
            "operations": self.operations,
        }


def _hexadecimal(tensor: Tensor) -> str:
    """Return the elements' bits, little-endian and row-major, as hexadecimal digits."""
    return tensor.astype(tensor.dtype.newbyteorder("<")).tobytes().hex()


def _group(group: GroupAddress, key: int) -> dict[str, Any]:
    return {"address": group.address, "port": group.port, "key": f"{key:016x}"}


def _above(parent: Parent) -> dict[str, Any]:
    return {
        **_place(parent.endpoint),
        "job": parent.job,
        "worker": parent.worker,
        "key": f"{parent.key:016x}",
    }


def _place(endpoint: Endpoint) -> dict[str, Any]:
    return {
        "mac": endpoint.mac.hex(":"),
        "address": endpoint.address,
        "port": endpoint.port,
    }
