"""The reducer of a group that has shards and Gloo, and sums each tensor by the faster of the two.

A call takes up to three steps:

    ask       the ranks tell each other their news, if the tensor's `PathHistory` wants it
    sum       by shards, or by Gloo
    end       the result's density is noted

The ranks tell each other their news in an all-reduce of a few integers, the greatest, through the
shards. A rank that sums by shards meanwhile, or that is about to do something else than the others,
has another fingerprint: an error names it at all ranks. Of a rank that is in Gloo meanwhile the
others learn by the store (`DeadlockDetector`).
"""

import logging
import time
import zlib
from typing import Any, NamedTuple

import numpy as np
import torch

from afflux.group.autotune.deadlock import DeadlockDetector
from afflux.group.autotune.path_history import DENSE, PathHistory, Way
from afflux.group.autotune.rates import Rates
from afflux.group.call.collectives import Asked
from afflux.group.call.tensors import dtype_name, elements_of, in_place, write_back
from afflux.group.reducers.fallback import GlooFallback
from afflux.group.reducers.reducer import Begun, Interruption, Reducer
from afflux.group.reducers.topology import Topology
from afflux.group.settings.aggregator_url import AggregatorUrl
from afflux_drivers._native import Turn
from afflux_drivers.control.tickets import JobTicket
from afflux_drivers.errors import Disagreement
from afflux_hdl.contract import wire

__all__ = ["EitherReducer"]

_log = logging.getLogger("afflux")

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_REDUCTIONS = ("sum", "avg")
"""Both ways give about the same for these; beyond an integer's range, and for NaN, they differ."""

_SMALL_BYTES = 32 << 10
"""Below, what ranks compare before a call goes to Gloo takes as long as the sum does by shards."""

_HISTORIES_MAX = 4096
"""Kinds of tensors that are remembered; a training loop has some hundreds."""

_SAMPLE = 512
"""Blocks of a result that are looked at."""

_NEWS = 3
"""Integers of a history's news; each rank's next call follows them."""

_SHARDS = "shards"

_NUMBER_MASK = (1 << 31) - 1


class _Plan(NamedTuple):
    asked: Asked
    of_shards: Any
    size: int
    chosen: bool
    text: str


class EitherReducer:
    """A `Reducer` over another one, of shards, and the group's Gloo.

    Args:
        shards: The other one.
        fallback: The group's Gloo.
        rates: The measurements of the calibration.
        waiting: Tells if ranks wait in different calls.
        rank: Own rank.
        ranks: How many there are.
    """

    timed = True

    def __init__(
        self,
        shards: Reducer[Any],
        fallback: GlooFallback,
        rates: Rates,
        waiting: DeadlockDetector,
        rank: int,
        ranks: int,
    ) -> None:
        self.url: AggregatorUrl = shards.url
        self.engine: str = shards.engine
        self.tickets: tuple[JobTicket, ...] = shards.tickets
        self.topology: Topology = shards.topology
        self.comparison = shards.comparison
        self.notices_ends = shards.notices_ends
        self._native = shards.native
        self.rank = rank
        self.ranks = ranks
        self.shards = shards
        self.fallback = fallback
        self.rates = rates
        self._waiting = waiting
        self._turn = Turn()
        self._news_plan = shards.plan(Asked("all_reduce", torch.int32, (_NEWS + ranks,), "max"))
        self._histories: dict[str, PathHistory] = {}
        self._places: dict[int, Any] = {}

    def follow(self, turn: Turn) -> None:
        """Have the numbers of the group's operations from its turn."""
        self._turn = turn

    def watching(self, engine: str, call: str, interrupted: Interruption) -> Interruption:
        """Return what also looks whether ranks wait in different calls."""
        return self._waiting.watching(self._turn.sequence, engine, call, interrupted)

    @property
    def holds(self) -> bool:
        """Whether the jobs, or aggregators of theirs, end with this rank."""
        return self.shards.holds

    def plan(self, asked: Asked) -> _Plan | None:
        """Return what both ways need; None if shards do not sum such tensors."""
        plan = self.shards.plan(asked)
        if plan is None:
            return None
        elements = int(np.prod(asked.shape, dtype=np.int64))
        size = elements * asked.dtype.itemsize
        alike = asked.dtype in _FLOATS and asked.reduction in _REDUCTIONS
        text = f"all_reduce {asked.reduction} {dtype_name(asked.dtype)} {elements}"
        return _Plan(asked, plan, size, alike and size >= _SMALL_BYTES, text)

    def run(
        self,
        plan: _Plan,
        inputs: list[torch.Tensor],
        outputs: list[torch.Tensor],
        timeout_s: float,
        interrupted: Interruption,
    ) -> bool:
        """Sum a tensor; return whether shards did."""
        history = self._history(plan) if plan.chosen else None
        if history is None or (not history.chosen and history.way is Way.SHARDS):
            interrupted = self.watching(_SHARDS, plan.text, interrupted)
            self.shards.run(plan.of_shards, inputs, outputs, timeout_s, interrupted)
            if history is not None:
                history.calls[Way.SHARDS] += 1
            return True
        call = _Call(self, plan, history, outputs[0], timeout_s, interrupted)
        try:
            call.carry_out()
        except Disagreement as error:
            more = f"; this rank sums by {call.way}, as {history.reason}"
            error.args = (f"{error.args[0]}{more}", *error.args[1:])
            raise
        return call.way is Way.SHARDS

    def agree(self, number: int, timeout_s: float, interrupted: Interruption) -> None:
        """Agree through the shards."""
        interrupted = self.watching(_SHARDS, f"what is compared as {number}", interrupted)
        self.shards.agree(number, timeout_s, interrupted)

    def empty(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """Return ordinary memory."""
        return self.shards.empty(elements, dtype)

    def give_up(self, reason: str) -> None:
        """Let the shards do it."""
        self.shards.give_up(reason)

    def statistics(self) -> dict[str, Any]:
        """Return the shards', and for each kind of tensor its calls by way and why."""
        choices = {
            kind: {
                "way": str(history.way).lower(),
                "reason": history.reason,
                "shards": history.calls[Way.SHARDS],
                "gloo": history.calls[Way.GLOO],
            }
            for kind, history in list(self._histories.items())
        }
        return {**self.shards.statistics(), "choices": choices}

    def leave(self) -> None:
        """Leave the shards."""
        self.shards.leave()

    def tell(self, told: np.ndarray, timeout_s: float, interrupted: Interruption) -> None:
        """Make these integers, in place, the greatest of all ranks'."""
        self.shards.run(self._news_plan, [], [torch.from_numpy(told)], timeout_s, interrupted)

    def density(self, elements: np.ndarray) -> int:
        """Return the density of a sample of blocks, the same at all ranks."""
        blocks = len(elements) // wire.BLOCK_ELEMENTS
        rows = elements[: blocks * wire.BLOCK_ELEMENTS].reshape(blocks, wire.BLOCK_ELEMENTS)
        if blocks > _SAMPLE:
            rows = rows[self._sample(blocks)]
        # NaN counts as not zero; of bfloat16 these are the bits.
        found = np.count_nonzero((rows != 0).any(axis=1))
        return -(-DENSE * int(found) // len(rows))

    def _sample(self, blocks: int) -> Any:
        places = self._places.get(blocks)
        if places is None:
            if len(self._places) >= _HISTORIES_MAX:
                self._places.clear()
            # One of each of equal stretches, by chance: rows of a table have a period.
            starts = np.arange(_SAMPLE + 1) * blocks // _SAMPLE
            chance = np.random.RandomState(blocks & 0xFFFFFFFF).random_sample(_SAMPLE)
            places = starts[:-1] + (chance * (starts[1:] - starts[:-1])).astype(np.int64)
            self._places[blocks] = places
        return places

    # Calls that C++ begins never go by Gloo.

    @property
    def native(self) -> "EitherReducer | None":
        """It is that itself, if C++ can begin the shards' operations."""
        return None if self._native is None else self

    def calls(self) -> Any:
        """Return the shards' capsule."""
        assert self._native is not None
        return self._native.calls()

    def agreement(self, number: int) -> Any:
        """Return the shards' call of `agree`, prepared."""
        assert self._native is not None
        return self._native.agreement(number)

    def prepared(self, plan: _Plan) -> Any:
        """Return the shards' call; None if Gloo may sum the tensor, too."""
        assert self._native is not None
        return None if plan.chosen else self._native.prepared(plan.of_shards)

    def finish(self, begun: Begun, timeout_s: float, interrupted: Interruption) -> None:
        """See `NativeCalls`."""
        assert self._native is not None
        text = f"all_reduce {begun.call.about.rest[1:]}"
        self._native.finish(begun, timeout_s, self.watching(_SHARDS, text, interrupted))

    def _history(self, plan: _Plan) -> PathHistory:
        history = self._histories.get(plan.text)
        if history is None:
            if len(self._histories) >= _HISTORIES_MAX:
                self._histories.clear()
            history = self._histories[plan.text] = PathHistory(self.rates, plan.size)
            _log.debug("rank %d: %s by %s: %s", self.rank, plan.text, history.way, history.reason)
        return history


class _Call:
    """One call that may go either way.

    Attributes:
        way: That it takes.
    """

    def __init__(
        self,
        reducer: EitherReducer,
        plan: _Plan,
        history: PathHistory,
        tensor: torch.Tensor,
        timeout_s: float,
        interrupted: Interruption,
    ) -> None:
        self.way = history.way
        self._reducer = reducer
        self._plan = plan
        self._history = history
        self._tensor = tensor
        self._deadline = time.monotonic() + timeout_s
        self._interrupted = interrupted
        data = tensor.data
        lies = data if in_place(data) else data.resolve_neg().contiguous()
        self._flat = lies.reshape(-1)
        self._elements = elements_of(self._flat)
        self._news = np.zeros(_NEWS + reducer.ranks, np.int32)
        self._number = 0

    def carry_out(self) -> None:
        """Take all steps."""
        history = self._history
        before = history.way, history.reason
        if history.ask:
            self._ask()
            history.told(self._heard())
            self.way = history.way
        began_s = time.monotonic()
        self._sum()
        took_us = min(_NUMBER_MASK, round(1e6 * (time.monotonic() - began_s)))
        density = self._reducer.density(self._elements) if history.chosen else 0
        history.done(self.way, took_us, density)
        write_back(self._tensor, self._elements)
        if (history.way, history.reason) != before:
            about = self._reducer.rank, self._plan.text, history.way, history.reason
            _log.debug("rank %d: %s by %s: %s", *about)

    def _left_s(self) -> float:
        return max(0.001, self._deadline - time.monotonic())

    def _heard(self) -> tuple[int, int, int]:
        """Return the greatest of all ranks' news.

        Raises:
            Disagreement: Another rank is about to do something else.
        """
        others = np.flatnonzero(self._news[_NEWS:] != self._number)
        if len(others):
            raise Disagreement(
                f"the ranks disagree: rank {self._reducer.rank} called {self._plan.text}, but "
                f"ranks {others.tolist()} called something else",
                number=sum(self._history.calls),
                description=self._plan.text,
                fingerprint=self._number,
                fingerprints=tuple(int(each) for each in self._news[_NEWS:]),
            )
        took_us, density, coming = self._news[:_NEWS].tolist()
        return took_us, density, coming

    def _ask(self) -> None:
        """Tell this rank's news, and its next call."""
        text = f"{self._plan.text} {self._history.state}"
        self._number = zlib.crc32(text.encode()) & _NUMBER_MASK
        coming = self._reducer.density(self._elements) if self._history.varies else 0
        self._news[:_NEWS] = *self._history.news, coming
        self._news[_NEWS + self._reducer.rank] = self._number
        interrupted = self._reducer.watching(_SHARDS, text, self._interrupted)
        self._reducer.tell(self._news, self._left_s(), interrupted)

    def _sum(self) -> None:
        reducer, plan, left_s = self._reducer, self._plan, self._left_s()
        by = _SHARDS if self.way is Way.SHARDS else f"Gloo's {plan.text}"
        interrupted = reducer.watching(by, plan.text, self._interrupted)
        if self.way is Way.SHARDS:
            reducer.shards.run(plan.of_shards, [], [self._flat], left_s, interrupted)
        else:
            reduction = plan.asked.reduction
            reducer.fallback.all_reduce(self._flat, reduction, left_s, interrupted)
