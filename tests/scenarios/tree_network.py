"""A tree of engines, golden workers under it, and links that lose, duplicate and reorder.

The engines are anything with registers and whole frames, golden or Verilated. Every link between
two aggregators and between a worker and its aggregator is as unkind as every other.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Self

from afflux_hdl.contract.registers import address_of
from afflux_sim.golden.frames import Endpoint, GroupAddress, is_for
from afflux_sim.golden.reductions import Tensor
from afflux_sim.golden.worker import GoldenWorker
from tests.scenarios.director import Build, Director
from tests.scenarios.golden_device import Engine
from tests.scenarios.job_frames import Job, ParentJob, ResultGroup
from tests.scenarios.performer import perform

__all__ = ["Aggregator", "Links", "TreeNetwork"]

OpenEngine = Callable[[], AbstractContextManager[Engine]]


@dataclass(frozen=True)
class Aggregator:
    """A part of a tree: an aggregator, the workers directly under it, and its children.

    At the aggregator the workers come first, then the children. Each of the workers stands for
    `worker_ranks` ranks, which have adjacent numbers.
    """

    workers: int = 0
    children: tuple["Aggregator", ...] = ()
    worker_ranks: int = 1

    @property
    def ranks(self) -> int:
        """All ranks of this part of the tree."""
        return self.workers * self.worker_ranks + sum(child.ranks for child in self.children)


@dataclass(frozen=True, kw_only=True)
class Links:
    """The fate of a frame on any link, and how many frames move at once.

    Attributes:
        loss: Probability that a frame that moves is lost.
        duplication: Probability that a frame that moves also stays on the way, for later.
        burst: Most frames that move in one step; those to one engine go in back to back.
        retransmission: Probability of a timeout of some worker in each step.
    """

    loss: float = 0.0
    duplication: float = 0.0
    burst: int = 1
    retransmission: float = 0.05


class Node:
    """An aggregator of the tree: its engine, its job there, and what its director compares.

    Args:
        engine: Not configured yet.
        director: With the engine's addresses.
        job: The engine's only job.
        checked: Whether everything that the engine sends is compared with a golden twin.
    """

    def __init__(self, engine: Engine, director: Director, job: Job, checked: bool) -> None:
        self.engine = engine
        self.director = director
        self.job = job
        self.checked = checked
        self.endpoint = director.golden.endpoint
        perform(engine, director.configure())
        perform(engine, director.create(job, join=False))

    def join_parent(self) -> bytes:
        """Return the JOIN that goes up."""
        return perform(self.engine, self.director.join_parent_frame(self.job))

    def has_joined_parent(self) -> bool:
        self.engine.write(address_of("job_index"), self.job.number)
        return bool(self.engine.read(address_of("job_parent_joined")))

    def play(self, frames: Sequence[bytes]) -> list[bytes]:
        """Frames in, frames out."""
        if not self.checked:
            return self.engine.play(frames)
        if len(frames) == 1:
            return perform(self.engine, self.director.each_frame(frames))
        return perform(self.engine, self.director.flood_frames(frames))


class TreeNetwork:
    """Opens the engines of a tree, creates and joins its jobs, and moves frames.

    Args:
        tree: The root.
        open_engine: Called once for each aggregator.
        build: The engines' sizes: workers, lanes, jobs, slots.
        lanes: F, on all levels.
        slots: Slots of the leaves' jobs; jobs above have one more if the engine has it.
        choose: Draws everything.
        links: How unkind the network is; also to those that join.
        checked: Whether each engine is compared with a golden twin, frame by frame.
        multicast: Whether the workers of each aggregator share a group. Aggregators with children
            have none, since a child does not learn of it.
        partial_bits: w of the partial sums of float32 of workers that stand for several ranks.

    Attributes:
        workers: All workers, in the order of their ranks.
        nodes: All aggregators, the root first, each before its children.
    """

    def __init__(
        self,
        tree: Aggregator,
        open_engine: OpenEngine,
        *,
        build: Build,
        lanes: int,
        slots: int,
        choose: random.Random,
        links: Links,
        checked: bool = False,
        multicast: bool = False,
        partial_bits: int = 64,
    ) -> None:
        self._open_engine = open_engine
        self._build = build
        self._lanes, self._slots = lanes, slots
        self._choose = choose
        self._links = links
        self._checked = checked
        self._multicast = multicast
        self._partial_bits = partial_bits
        self._first_round = choose.choice([0, 2**31, 2**32 - 2, choose.getrandbits(32)])
        self._ranks = tree.ranks
        self._stack = ExitStack()
        # Frames with their receivers. Of a frame to a group each copy goes its own way.
        self._on_the_way: list[tuple[Node | GoldenWorker, bytes]] = []
        self.workers: list[GoldenWorker] = []
        self.nodes: list[Node] = []
        with ExitStack() as undo:
            undo.callback(self.close)
            self._add(tree, None)
            self._join()
            undo.pop_all()

    def run(
        self, tensors: Sequence[Tensor], dtype: str, reduction: str, max_steps: int = 1_000_000
    ) -> list[Tensor]:
        """One all-reduce; the result of each worker. Late frames stay on the way for the next.

        There is a tensor for each rank.

        Raises:
            AssertionError: If it is stuck.
        """
        assert len(tensors) == self._ranks
        for worker in self.workers:
            own, *beside = (tensors[rank] for rank in worker.own_ranks)
            worker.start(own, dtype, reduction, beside)
        self.settle(max_steps)
        return [worker.result() for worker in self.workers]

    def settle(self, max_steps: int = 1_000_000) -> None:
        """Move frames until the operation of each worker is over, or has failed."""
        for _ in range(max_steps):
            for worker in self.workers:
                worker.go_on()
            self._send_of_workers()
            waiting = [worker for worker in self.workers if worker.outstanding]
            if not waiting:
                return
            if not self._on_the_way or self._choose.random() < self._links.retransmission:
                worker = self._choose.choice(waiting)
                slot = self._choose.choice(worker.outstanding)
                probe = self._choose.random() < 0.5
                self._send([worker.retransmit(slot, probe)])
            else:
                self._move()
        raise AssertionError(f"not over after {max_steps} steps")

    def deliver_late(self) -> None:
        """All that is still on the way arrives, when it must change nothing; no answer does."""
        late, self._on_the_way = self._on_the_way, []
        self._arrive(late)
        self._on_the_way = []
        self._send_of_workers()
        assert self._on_the_way == []

    def check(self) -> None:
        """Compare the counters of all engines with those of their golden twins."""
        assert self._checked
        for node in self.nodes:
            perform(node.engine, node.director.check_counters())

    def close(self) -> None:
        """Close all engines."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _add(self, part: Aggregator, parent: ParentJob | None) -> None:
        """Open the engine of an aggregator and, after it, all that is below."""
        choose = self._choose
        number = len(self.nodes)
        mac, address = f"02:af:fa:00:01:{number:02x}", f"10.0.1.{1 + number}"
        port = choose.randrange(1024, 60000)
        director = Director(**self._build, mac=mac, address=address, port=port)
        slots = self._slots
        if part.children:
            slots = min(slots + 1, self._build["slots"])
        group = None
        if self._multicast and not part.children:
            group = ResultGroup(f"239.1.0.{1 + number}", 4701)
        job = Job(
            number=choose.randrange(self._build["jobs"]),
            workers=part.workers + len(part.children),
            lanes=self._lanes,
            slots=slots,
            slot_base=choose.randint(0, self._build["slots"] - slots),
            first_round=self._first_round,
            key=choose.getrandbits(64),
            group=group,
            parent=parent,
        )
        engine = self._stack.enter_context(self._open_engine())
        node = Node(engine, director, job, self._checked)
        self.nodes.append(node)
        for worker in range(part.workers):
            self._add_worker(node, worker, part.worker_ranks)
        for place, child in enumerate(part.children, start=part.workers):
            here = ParentJob(
                mac=mac,
                address=address,
                port=port,
                number=job.number,
                worker=place,
                key=job.key,
            )
            self._add(child, here)

    def _add_worker(self, node: Node, worker: int, ranks: int) -> None:
        rank, job = sum(len(each.own_ranks) for each in self.workers), node.job
        self.workers.append(
            GoldenWorker(
                endpoint=Endpoint(bytes([2, 0, 0, 0, 1, rank]), f"10.2.0.{1 + rank}", 50000 + rank),
                engine=node.endpoint,
                job=job.number,
                key=job.key,
                round=job.first_round,
                worker=worker,
                workers=job.workers,
                lanes=job.lanes,
                # All must cut their tensors alike, also one under an aggregator with more slots.
                slots=self._slots,
                rank=rank,
                beside=range(rank + 1, rank + ranks),
                ranks=self._ranks,
                partial_bits=self._partial_bits,
                group=GroupAddress(job.group.address, job.group.port) if job.group else None,
            )
        )

    def _join(self) -> None:
        """Join everybody, again until all are; all before anybody sends DATA."""
        for _ in range(1000):
            self._send([worker.join() for worker in self.workers if worker.joined is None])
            for node in self.nodes:
                if node.job.parent and not node.has_joined_parent():
                    self._send([node.join_parent()])
            if not self._on_the_way:
                return
            while self._on_the_way:
                self._move()
        raise AssertionError("not all have joined")

    def _send_of_workers(self) -> None:
        for worker in self.workers:
            self._send(worker.frames_to_send())

    def _send(self, frames: Sequence[bytes]) -> None:
        for frame in frames:
            receivers = list(self._receivers(frame))
            assert receivers, f"frame for nobody: {frame[:64].hex(' ')}"
            self._on_the_way += [(receiver, frame) for receiver in receivers]

    def _receivers(self, frame: bytes) -> Iterator[Node | GoldenWorker]:
        for node in self.nodes:
            if (frame[0:6], frame[30:34]) == (node.endpoint.mac, node.endpoint.packed_address):
                yield node
        for worker in self.workers:
            if any(is_for(endpoint, frame) for endpoint in worker.endpoints):
                yield worker

    def _move(self) -> None:
        """Let a handful of the frames on the way arrive or be lost; some of it stays there too."""
        choose, on_the_way = self._choose, self._on_the_way
        moving = []
        for _ in range(choose.randint(1, min(self._links.burst, len(on_the_way)))):
            at = choose.randrange(len(on_the_way))
            on_the_way[at], on_the_way[-1] = on_the_way[-1], on_the_way[at]
            moving.append(on_the_way.pop())
        on_the_way += [entry for entry in moving if choose.random() < self._links.duplication]
        self._arrive([entry for entry in moving if choose.random() >= self._links.loss])

    def _arrive(self, moving: Sequence[tuple[Node | GoldenWorker, bytes]]) -> None:
        bursts: dict[Node, list[bytes]] = {}
        for receiver, frame in moving:
            if isinstance(receiver, Node):
                bursts.setdefault(receiver, []).append(frame)
            else:
                receiver.receive(frame)
        for node, frames in bursts.items():
            self._send(node.play(frames))
