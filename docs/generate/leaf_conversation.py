"""A job below a parent, with all frames that pass the leaf; the parent has one more worker."""

from collections import deque
from collections.abc import Sequence

from afflux_sim.golden.frames import Endpoint, is_for
from afflux_sim.golden.reductions import Tensor
from afflux_sim.golden.state import Parent
from afflux_sim.golden.worker import GoldenWorker
from docs.generate.conversation import Conversation, Job, golden_engine

__all__ = ["PARENT", "LeafConversation"]

PARENT = Parent(
    Endpoint(bytes.fromhex("02affa000002"), "10.0.0.10", 4700), job=5, worker=0, key=0x0B0E0D0C
)


class LeafConversation(Conversation):
    """The conversation at a leaf, whose job is worker 0 of its parent's.

    The parent's other worker is a rank of its own, the last one. Packets between it and the parent
    are not recorded.
    """

    def __init__(self, name: str, shows: str, job: Job) -> None:
        super().__init__(name, shows, job)
        ranks = job.workers + 1
        self.above = golden_engine(PARENT.endpoint)
        self.above.create_job(
            PARENT.job,
            key=PARENT.key,
            workers=2,
            lanes=job.lanes,
            slot_base=0,
            slot_count=job.slots,
            round=job.round,
            credit=job.credit,
        )
        self.far = GoldenWorker(
            endpoint=Endpoint(bytes.fromhex("0200000005ff"), "10.1.5.1", 50000),
            engine=PARENT.endpoint,
            job=PARENT.job,
            key=PARENT.key,
            round=job.round,
            worker=1,
            workers=2,
            lanes=job.lanes,
            slots=job.slots,
            rank=ranks - 1,
            ranks=ranks,
        )
        self.far.receive(self.above.receive(self.far.join())[0])
        # Frames of the parent that have yet to reach the leaf; how many of the next are lost.
        self._coming: deque[bytes] = deque()
        self.results_lost = 0

    def join_parent(self) -> None:
        """Let the leaf join its parent, on its operator's command."""
        frame = self.engine.join_parent(self.job.number)
        self.frames.append(frame)
        self.commanded.append(len(self.frames))
        self.deliver(frame)
        self.settle()
        assert self.engine.has_joined_parent(self.job.number)

    def deliver(self, frame: bytes) -> None:
        """Hand a frame of the leaf to a worker, or to the parent."""
        if is_for(PARENT.endpoint, frame):
            self._pass_up(frame)
        else:
            super().deliver(frame)

    def settle(self) -> None:
        """Let the parent's frames reach the leaf, and all that they cause their ends."""
        while self._coming:
            frame = self._coming.popleft()
            lost = self.results_lost > 0
            self.results_lost -= lost
            self.send(frame, lost=lost)

    def begin(self, tensors: Sequence[Tensor], dtype: str, reduction: str) -> None:
        """Begin an operation at all ranks; the far one contributes at once."""
        self.start(tensors[:-1], dtype, reduction)
        self.far.start(tensors[-1], dtype, reduction)
        self._go_on()

    def play(self) -> None:
        """Play rounds until no rank sends any more."""
        while True:
            frames = [frame for worker in self.workers for frame in worker.frames_to_send()]
            if not frames:
                return
            for frame in frames:
                self.send(frame)
                self.settle()

    def _pass_up(self, frame: bytes) -> None:
        for answer in self.above.receive(frame):
            if is_for(self.far.endpoint, answer):
                self.far.receive(answer)
                self._go_on()
            else:
                self._coming.append(answer)

    def _go_on(self) -> None:
        for frame in self.far.frames_to_send():
            self._pass_up(frame)
