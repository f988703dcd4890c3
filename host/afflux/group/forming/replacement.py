"""What takes the place of aggregators that end: a spare one, streams between ranks, or Gloo.

Every rank makes its part, and says whether it could. Nobody uses a way that not all have.

    rank 0   names the spare aggregators, says if only they will do, and
             draws the secrets of streams; all before it writes its state   ways/0
    all      find their way to the first spare one                          way/<r>
    rank 0   gets a job there                                               job/0
    all      join it, and say whether they could                            joined/<r>
             or, if that is one of streams: as below, and then
    all      connect with it, and say whether they could                    aggregator/<r>
    …        the same with the others
    all      say where they listen for streams                              port/<r>
    all      connect, and say whether they could                            streams/<r>
    all      connect over Gloo, and say likewise                            gloo/<r>

The last step of a way is the agreement upon it: who has heard from all that they could uses it. So
ranks wait for one another as long as the call may take, and nobody takes the next way because it
has waited for another in vain. After the states, streams cost two rounds over the store, and a
spare aggregator three.

Tested: `tests/host/test_fail_over.py`, `tests/host/test_fail_over_streams.py`,
`tests/host/test_fail_over_rounds.py`.
"""

import logging
import secrets
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

from torch._C._distributed_c10d import PrefixStore, Store

from afflux.group.call.errors import GroupFailed
from afflux.group.reducers.fallback import GlooFallback
from afflux.group.reducers.gloo import make_gloo
from afflux.group.reducers.gloo_sums import GlooSums
from afflux.group.reducers.reducer import Reducer
from afflux.group.reducers.topology import Topology
from afflux.group.settings.aggregator_url import AggregatorUrl
from afflux.group.settings.membership import Membership
from afflux.group.settings.variables import Settings, SettingsError
from afflux.group.store.bounded import innermost
from afflux.group.store.exchange import Exchange, StepFailed
from afflux.group.store.keys import GroupStore
from afflux_drivers.errors import AffluxError, AggregatorUnreachable
from afflux_drivers.streams.handshake import aggregator_key

__all__ = ["Keys", "Replacement", "key_of"]

_log = logging.getLogger("afflux")

_GIVE_UP_S = 1.0


class Keys(NamedTuple):
    """Secrets of those that connect streams, in hexadecimal.

    Attributes:
        ranks: To each other; of one way alone.
        aggregator: To aggregators of streams; empty if no spare one is of these.
    """

    ranks: str
    aggregator: str


MakeSpare = Callable[[Exchange, AggregatorUrl, Sequence[AggregatorUrl], Keys], Reducer[Any]]
"""Makes a reducer over a spare aggregator, given those that are left then; collective."""

MakeStreams = Callable[[Exchange, Topology, str], Reducer[Any]]
"""Makes a reducer over streams between all ranks, given the ranks' secret; collective."""


class Replacement:
    """Makes a group's reducer anew, once, when its aggregators have ended.

    Args:
        keys: The group's.
        rank: Own rank.
        size: Ranks of the group.
        settings: Own; of spares, and of whether one is required, rank 0's count.
        spare: Makes one over a spare aggregator.
        streams: Makes one over streams.
        number: Of the change, from 1.
    """

    def __init__(
        self,
        keys: GroupStore,
        rank: int,
        size: int,
        settings: Settings,
        spare: MakeSpare,
        streams: MakeStreams,
        number: int,
    ) -> None:
        self._keys = keys
        self._rank = rank
        self._size = size
        self._settings = settings
        self._spare = spare
        self._streams = streams
        self._prefix = f"fail-over/{number}"
        # The exchanges in which ranks wait for one another.
        self._parts = ["", "streams"]
        self._look: Callable[[], None] = lambda: None

    def offer(self, limit_s: float) -> None:
        """Write, at rank 0, what all have to know to make it, in so many seconds."""
        if self._rank:
            return
        spares = self._settings.spare or ()
        drawn = [secrets.token_hex(16) for _ in range(len(spares) + 1)]
        key = key_of(spares, self._settings)
        ways = [list(map(str, spares)), self._settings.require, drawn, key]
        self._exchange("", limit_s).publish_part("ways", lambda: ways)

    def __call__(self, reason: str, limit_s: float, look: Callable[[], None]) -> Reducer[Any]:
        """Make it. Collective, after `offer`; see `Replace`.

        Raises:
            AggregatorUnreachable: There is nothing that all ranks could make.
            AffluxError: Ranks have not come, or what `look` raises.
        """
        self._look = look
        deadline = time.monotonic() + limit_s
        (offered,) = self._exchange("", limit_s).parts("ways", [0], limit_s)
        named, require, (*drawn, secret), key = offered
        spares = [AggregatorUrl.parse(each) for each in named]
        ways: list[Callable[[str, float], Reducer[Any]]] = [
            partial(self._over_spare, spares[at:], Keys(ranks, key))
            for at, ranks in enumerate(drawn)
        ]
        if not require:
            ways += partial(self._over_streams, secret), self._over_gloo
        reasons = []
        for make in ways:
            try:
                made = make(reason, max(0.5, deadline - time.monotonic()))
            except StepFailed as failure:
                _log.debug("nothing takes the aggregators' place this way", exc_info=True)
                if any(self._exchange(part, _GIVE_UP_S).failure() for part in self._parts):
                    # A rank has given up, which others may not hear: there is no way that all take.
                    raise GroupFailed(str(failure), elsewhere=True) from failure
                reasons.append(str(failure))
                continue
            except AffluxError:
                raise
            except (OSError, RuntimeError) as error:
                # The others may use by now what this rank has not.
                raise AggregatorUnreachable(
                    f"{reason}; rank {self._rank} cannot go on without it: {error}"
                ) from error
            if self._rank == 0:
                way = made.topology
                name = way.name if way.reason == reason else str(way)
                _log.warning("a group goes on without its aggregator, over %s: %s", name, reason)
            return made
        raise AggregatorUnreachable(f"{reason}; nothing takes its place: {'; '.join(reasons)}")

    def give_up(self, error: BaseException) -> None:
        """Let the ranks that make it know that this one does not."""
        for part in self._parts:
            self._exchange(part, _GIVE_UP_S).report(error, stays=False)

    def _over_spare(
        self, spares: Sequence[AggregatorUrl], keys: Keys, _reason: str, limit_s: float
    ) -> Reducer[Any]:
        first, *rest = spares
        part = f"spare/{len(spares)}"
        self._parts.append(part)
        return self._spare(self._exchange(part, limit_s), first, rest, keys)

    def _over_streams(self, secret: str, reason: str, limit_s: float) -> Reducer[Any]:
        exchange = self._exchange("streams", limit_s)
        return self._streams(exchange, Topology("streams", reason), secret)

    def _over_gloo(self, reason: str, limit_s: float) -> Reducer[Any]:
        store = PrefixStore(f"{self._keys.prefix}/{self._prefix}/gloo", self._own_store())
        rank, size, timeout = self._rank, self._size, timedelta(seconds=limit_s)
        made: list[GlooSums] = []

        def connect() -> None:
            member = Membership(store, rank, size, timeout, "fail-over", range(size))
            fallback = GlooFallback(make_gloo(store, member), store, rank, size)
            url = self._settings.aggregator
            made.append(GlooSums(fallback, rank, size, url, Topology("gloo", reason)))

        try:
            self._exchange("", limit_s).share("gloo", range(size), connect, limit_s)
        except BaseException:
            for each in made:
                each.leave()
            raise
        return made[0]

    def _exchange(self, part: str, limit_s: float) -> Exchange:
        store = self._keys.notices.under(f"{self._prefix}/{part or 'all'}")
        return Exchange(store, self._rank, self._size, limit_s, self._look)

    def _own_store(self) -> Store:
        """Return a connection that nobody blocks meanwhile, where stores have connections."""
        root = innermost(self._keys.store)
        clone = getattr(root, "clone", None) if self._keys.watch.wake_key else None
        return root if clone is None else clone()


def key_of(aggregators: Sequence[AggregatorUrl], settings: Settings) -> str:
    """Return the key of those of these aggregators that sum over streams; empty without one."""
    if all(each.scheme != "streams" for each in aggregators):
        return ""
    try:
        return aggregator_key(settings.control_secret()).hex()
    except SettingsError as error:
        # Those will refuse the ranks, which need not end for that.
        _log.warning("aggregators of streams cannot take another's place: %s", error)
        return ""
