"""One group's life in virtual time: its own code, but for sockets, store, threads and clock.

The names that stand for these are patched. What is played is the code that ranks run: forming jobs,
workers, operations and journals in C++, the engine, the change to what goes on, its exchange over
the store, and the way back.
"""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import torch

from afflux.group.call.collectives import Asked
from afflux.group.forming import plans, replacement
from afflux.group.forming.job_lease import GroupLease
from afflux.group.forming.plans import Forming, JobPlan, StreamsPlan
from afflux.group.forming.replacement import Replacement
from afflux.group.reducers import (
    attending,
    continued_job_reducer,
    continued_reducer,
    fail_back,
    reducer,
)
from afflux.group.reducers.topology import Topology
from afflux.group.settings.aggregator_url import AggregatorUrl
from afflux.group.settings.variables import Settings
from afflux.group.store import declaration, epoch, exchange
from afflux.group.store.exchange import Exchange
from afflux.group.store.keys import GroupStore
from afflux_drivers import _native
from afflux_drivers.errors import AffluxError
from afflux_drivers.worker import joining, liveness, worker
from afflux_drivers.worker.session import Session
from tests.explorer.network import LANES, Aggregator, Line, Loop, Network
from tests.explorer.plan import Call, Trial, contribution, total
from tests.explorer.scheduler import Bell, Scheduler, Task
from tests.explorer.store import Keys, Shelf
from tests.explorer.streams import Mesh, VirtualStreams

__all__ = ["World", "Wrong"]

PORT = 4700
TIMEOUT_S = 120.0
_LIMIT_S = 900.0
_STEPS = 400_000
_NOTICED_S = 1.0


class Wrong(AssertionError):
    """A rank has a wrong result, an error that it should not have, or does not come to its end."""


class World:
    """One trial.

    Args:
        trial: What is played.
    """

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.choose = random.Random(f"world {trial.seed}")
        self.scheduler = Scheduler(self.choose)
        self.network = Network(self.scheduler, self._flight)
        for host in ("main", "spare"):
            self.network.aggregators[host] = Aggregator()
            self.network.aggregators[host].begin()
        self.shelf = Shelf()
        self.meshes: dict[str, Mesh] = {}
        self.killed: list[int] = []
        self.known: set[int] = set()
        self.ended: set[int] = set()
        self.failed: dict[int, str] = {}
        self._tasks: list[Task] = []
        self._formed = 0
        self.counts: dict[str, int] = dict.fromkeys(
            ("results", "fail_overs", "fail_backs", "kills"), 0
        )

    def play(self) -> None:
        """Play it.

        Raises:
            Wrong: It ended badly.
        """
        trial, scheduler = self.trial, self.scheduler
        with self._patched():
            ranks = [_Rank(self, rank) for rank in range(trial.size)]
            tasks = self._tasks = [scheduler.begin(each.live) for each in ranks]
            try:
                scheduler.run(tasks, _LIMIT_S, _STEPS)
            except Exception as error:
                raise Wrong(f"{type(error).__name__}: {error}") from error
            finally:
                scheduler.close()
        for each in ranks:
            if each.error and not self.killed:
                raise Wrong(f"rank {each.rank}: {each.error}")

    def formed(self) -> None:
        """Let the faults come when all ranks have formed their group, as before it is an error."""
        self._formed += 1
        if self._formed < self.trial.size:
            return
        trial, cut = self.trial, self.network.cut

        def later(seconds: float, action: Callable[[], None]) -> None:
            self.scheduler.at(self.scheduler.now + seconds, action)

        for when, host in trial.deaths:
            later(when, self.network.aggregators[host].end)
        for when, host in trial.births:
            later(when, self.network.aggregators[host].begin)
        for rank, host, begins, ends in trial.cuts:
            pair = rank, host
            later(begins, partial(cut.add, pair))
            later(ends, partial(cut.discard, pair))
        if trial.kill is not None:
            victim, when = trial.kill
            later(when, lambda: self._kill(victim, self._tasks[victim]))

    def _kill(self, rank: int, task: Task) -> None:
        if not task.over:
            task.killed = True
            self.killed.append(rank)
            self.counts["kills"] += 1
            noticed_s = self.choose.uniform(0.0, _NOTICED_S)
            self.scheduler.at(self.scheduler.now + noticed_s, lambda: self.known.add(rank))

    def delay(self) -> float:
        """Draw how long a request to the store travels, one way."""
        return self.trial.store_s * 10 ** self.choose.uniform(-2, 0)

    def _flight(self) -> Sequence[float]:
        trial, drawn = self.trial, self.choose.random()
        flight = self.choose.uniform(5e-5, 2e-4)
        if drawn < trial.lost:
            return ()
        if drawn < trial.lost + trial.doubled:
            return flight, self.choose.uniform(0, 0.5)
        if drawn < trial.lost + trial.doubled + trial.late:
            return (self.choose.uniform(0, 0.5),)
        return (flight,)

    @contextmanager
    def _patched(self) -> Iterator[None]:
        network, scheduler = self.network, self.scheduler
        native = SimpleNamespace(
            WorkerCalls=lambda *_: SimpleNamespace(
                over=0, close=lambda: None, describe=lambda _: 0
            ),
            sharing=_native.sharing,
            Misbehaved=_native.Misbehaved,
            Disagreed=_native.Disagreed,
        )
        clocked = (
            attending, continued_job_reducer, continued_reducer, declaration, epoch, exchange,
            fail_back, joining, reducer, replacement, worker,
        )  # fmt: skip

        def make_streams(plan: StreamsPlan, forming: Forming) -> VirtualStreams:
            return self._make_streams(plan, forming)

        def over_gloo(place: Replacement, reason: str, limit_s: float) -> VirtualStreams:
            return self._over_gloo(place, reason, limit_s)

        def line(host: str, _port: int, session: Session, *_: object) -> Line:
            return Line(network, host, session)

        with ExitStack() as patched:

            def patch(place: object, name: str, value: object) -> None:
                patched.enter_context(mock.patch.object(place, name, value))

            for module in clocked:
                patch(module, "time", scheduler.clock)
            patch(worker, "_native", native)
            patch(worker, "Line", line)
            patch(worker, "UdpLoop", partial(Loop, scheduler))
            patch(liveness, "_refuses_connections", network.refuses)
            patch(plans, "GroupLease", _Lease)
            patch(plans, "AggregatorLookout", partial(_Lookout, self))
            patch(plans, "lanes_to", lambda *_: LANES)
            patch(StreamsPlan, "make", make_streams)
            patch(Replacement, "_over_gloo", over_gloo)
            yield

    def _make_streams(self, plan: StreamsPlan, forming: Forming) -> VirtualStreams:
        world, rank = self, forming.rank

        def connect() -> None:
            world.scheduler.sleep(world.delay())
            if world.trial.without_streams and rank == world.trial.size - 1:
                raise OSError("no way")

        forming.exchange.share("streams", range(forming.size), connect, forming.exchange.timeout_s)
        return self._mesh(plan.key, rank, "streams")

    def _over_gloo(self, place: Replacement, _reason: str, limit_s: float) -> VirtualStreams:
        store_exchange = place._exchange("", limit_s)
        store_exchange.share("gloo", range(place._size), lambda: None, limit_s)
        return self._mesh(f"gloo of {place._prefix}", place._rank, "gloo")

    def _mesh(self, name: str, rank: int, topology: str) -> VirtualStreams:
        return VirtualStreams(
            self.meshes.setdefault(name, Mesh()), rank, self.trial.size, self.scheduler,
            self.delay, lambda: self.gone(rank), reduced, topology,
        )  # fmt: skip

    def gone(self, rank: int) -> tuple[int, ...]:
        """Return the ranks that this one knows to have ended."""
        return tuple(sorted((self.known | self.ended) - {rank}))


class _Rank:
    """A rank, with what its group's thread does."""

    def __init__(self, world: World, rank: int) -> None:
        self.world, self.rank = world, rank
        self.error = ""
        self._bell = Bell()
        self._news = False

    def live(self) -> None:
        try:
            self._live()
        except AffluxError as error:
            self.error = f"{type(error).__name__}: {error}"
        finally:
            if self.error:
                self.world.failed[self.rank] = self.error

    def _live(self) -> None:
        world, trial, scheduler = self.world, self.world.trial, self.world.scheduler
        scheduler.sleep(world.choose.uniform(0, trial.idle_s))
        reducer = self._form()
        world.formed()
        reducer.attended(
            lambda: self._interrupted(reducer), lambda: world.gone(self.rank), self._tell
        )
        for call in trial.calls:
            self._idle(reducer, world.choose.uniform(0, trial.idle_s))
            self._call(reducer, call)
        counts = reducer.statistics()
        world.counts["fail_overs"] += counts["fail_overs"]
        world.counts["fail_backs"] += counts["fail_backs"]
        reducer.bequeath()
        if self.rank == 0:
            # It holds the job.
            while len(world.ended | set(world.failed) | world.known) < trial.size - 1:
                self._idle(reducer, 0.1)
        world.ended.add(self.rank)
        reducer.leave()

    def _form(self) -> Any:
        world, trial = self.world, self.world.trial
        keys = Keys(world.shelf, world.scheduler, world.delay, self.rank, world)
        settings = Settings(
            aggregator=AggregatorUrl("udp", "main", PORT),
            spare=(AggregatorUrl("udp", "spare", PORT),) if trial.spare else None,
            fail_back_s=0.1,
            peer_timeout_s=1.0,
            connect_timeout_s=2.0,
        )
        store = keys.notices.under("form")
        store_exchange = Exchange(store, self.rank, trial.size, TIMEOUT_S)
        lease = _Lease(keys.store, settings)
        everyone: Any = [SimpleNamespace(lanes=LANES)]
        forming = Forming(
            self.rank, trial.size, settings, store_exchange, cast(GroupStore, keys),
            cast(GroupLease, lease), everyone,
        )  # fmt: skip
        hosts = [[rank] for rank in range(trial.size)]
        plan = JobPlan(Topology("aggregator", "virtual"), hosts, [], "")
        return plan.make(forming)

    def _interrupted(self, reducer: Any) -> str | None:
        reducer.attend()
        return self._reason()

    def _reason(self) -> str | None:
        world = self.world
        lost = sorted(world.known - {self.rank})
        if lost:
            return f"rank(s) {lost} ended"
        failed = {rank: why for rank, why in world.failed.items() if rank != self.rank}
        return str(failed) if failed else None

    def _tell(self) -> None:
        self._news = True
        self._bell.ring()

    def _idle(self, reducer: Any, seconds: float) -> None:
        scheduler = self.world.scheduler
        until = scheduler.now + seconds
        while True:
            if self._news:
                self._news = False
                reducer.attend(look=True)
            if scheduler.now >= until:
                return
            scheduler.wait(self._bell, until)

    def _call(self, reducer: Any, call: Call) -> None:
        interrupted = lambda: self._interrupted(reducer)  # noqa: E731
        if not call.reduction:
            reducer.agree(call.number, TIMEOUT_S, interrupted)
            return
        tensor = contribution(self.world.trial, call, self.rank)
        plan = reducer.plan(Asked("all_reduce", call.dtype, tuple(tensor.shape), call.reduction))
        reducer.run(plan, [], [tensor], TIMEOUT_S, interrupted)
        right = total(self.world.trial, call)
        if not torch.equal(tensor, right):
            at = int((tensor != right).nonzero()[0])
            raise Wrong(
                f"rank {self.rank}: call {call.number}: element {at} is {tensor[at]}, and not "
                f"{right[at]}"
            )
        self.world.counts["results"] += 1
        # What was a result may be given up to others only as it was.
        tensor.fill_(7)


class _Lease:
    """Rank 0's jobs, as `GroupLease`."""

    def __init__(self, store: Any, settings: Settings) -> None:
        self._world: World = store.world
        self._settings = settings
        self._jobs: list[tuple[Aggregator, int, Any]] = []

    def get(self, _lanes: int, units: Sequence[Sequence[int]], _everyone: object) -> str:
        world = self._world
        for host, _ in self._settings.aggregator.addresses:
            world.scheduler.sleep(world.delay())
            aggregator = world.network.aggregators[host]
            ticket = aggregator.new_job(host, len(units), world.choose.getrandbits(64))
            self._jobs.append((aggregator, aggregator.incarnation, ticket))
        return json.dumps([ticket.to_json() for *_, ticket in self._jobs])

    @property
    def holds(self) -> bool:
        return bool(self._jobs)

    def named(self, text: str) -> str:
        return text

    def trouble(self) -> str | None:
        for aggregator, incarnation, _ in self._jobs:
            if not aggregator.alive or aggregator.incarnation != incarnation:
                return "the job is over: the connection has ended"
        return None

    def give_back(self) -> None:
        for aggregator, incarnation, ticket in self._jobs:
            if aggregator.incarnation == incarnation:
                aggregator.end_job(ticket)
        self._jobs = []


class _Lookout:
    """As `AggregatorLookout`."""

    def __init__(
        self,
        world: World,
        aggregators: Sequence[AggregatorUrl],
        settings: Settings,
        offer: Callable[[AggregatorUrl], str],
    ) -> None:
        self._world, self._aggregators, self._offer = world, aggregators, offer
        self._every_s = settings.fail_back_s
        self._closed = False

    def look(self, attempt: int, came: Callable[[str], None]) -> None:
        def run() -> None:
            self._world.scheduler.sleep(self._every_s * attempt)
            while not self._closed:
                for each in self._aggregators:
                    if self._world.network.aggregators[each.host].alive:
                        came(self._offer(each))
                        return
                self._world.scheduler.sleep(self._every_s)

        self._world.scheduler.begin(run)

    def close(self) -> None:
        self._closed = True


def reduced(tensors: Sequence[torch.Tensor], reduction: str) -> torch.Tensor:
    """Reduce whole numbers exactly; round once."""
    stacked = torch.stack([each.to(torch.int64) for each in tensors])
    if reduction == "sum":
        return stacked.sum(0).to(tensors[0].dtype)
    return {"max": stacked.amax, "min": stacked.amin}[reduction](0).to(tensors[0].dtype)
