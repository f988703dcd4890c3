"""How the ranks of a new group, once they have met, come to share one job of one aggregator.

    rank 0       gets a job, writes the ticket                      ticket
    every rank   joins the job, writes whether that worked          joined/<r>
    every rank   reads all of these
    every rank   writes its finding: whether it can go on           finding/<r>
    rank 0       reads all of these, writes the verdict             verdict
                 (or who has waited for it in vain: the first one)
    every rank   goes by the verdict

An error anywhere is written in place of the value, so every rank raises one that names the cause.
A rank that fails otherwise, such as by its own timeout, writes `failed`, so that nobody waits for
it. No rank goes on, or to Gloo, by what it has found alone.
"""

import json
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import Store

from afflux.group.store.bounded import BoundedStore, StoreSilent
from afflux_drivers.errors import AffluxError, timed_out

__all__ = [
    "Exchange",
    "RendezvousError",
    "StepFailed",
    "missing_of",
    "names_of",
]

_log = logging.getLogger("afflux")

_FIRST_POLL_S = 0.0003
_LAST_POLL_S = 0.05

_STEPS = {
    "rank": "come to the new group",
    "joined": "join the aggregator",
    "way": "find its way to the board",
    "port": "open a port for the other ranks",
    "streams": "connect with the others",
    "ucx": "make UCX ready",
    "endpoints": "connect with the others over UCX",
    "memory": "make memory for the ranks of its host",
    "shared": "share memory with the ranks of its host",
    "job": "get a job of the aggregator",
    "finding": "say whether they can go on",
    "witness": "say on which host they are",
    "listens": "say where they listen",
    "left": "call shrink_group",
    "ways": "say what may take the aggregator's place",
    "gloo": "connect with the others over Gloo",
}

_FAILED = "failed"
"""Key of the first failure: a rank that waits for a step waits in vain."""

_PATIENCE_S = 3.0
"""For ranks that others have waited for in vain."""

_GRACE_S = 1.0
"""Rank 0 knows best who is missing: the others give it time to say so."""


def published(make: Callable[[], Any]) -> str:
    """Return what `make` returns, or its error, as text for the store."""
    try:
        return json.dumps({"value": make()})
    except Exception as error:
        return json.dumps({"error": str(error) or type(error).__name__})


class RendezvousError(AffluxError, dist.DistBackendError):
    """The ranks of a group could not agree on an aggregator; every rank raises the same."""


class StepFailed(RendezvousError):
    """A rank could not do its part of a step; every rank knows it, and for which reason."""


def _nothing() -> None:
    return None


def missing_of(
    store: BoundedStore,
    keys: list[str],
    timeout_s: float,
    unless: str = "",
    look: Callable[[], None] = _nothing,
) -> list[str]:
    """Wait until all keys are in the store; return those that are not after `timeout_s`.

    It asks again and again: a store's own wait writes to stderr when its time is over.

    Args:
        store: The store.
        keys: The keys to wait for.
        timeout_s: How long.
        unless: A key with the reason why they may never come; empty for none.
        look: Called again and again; raises an `AffluxError` if they may never come.

    Raises:
        StoreSilent: The store does not say.
        StepFailed: The key `unless` came instead of them, not behind them.
    """
    deadline = time.monotonic() + timeout_s
    store = store.until(deadline)
    pause_s = _FIRST_POLL_S
    while not store.check(keys):
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return [key for key in keys if not store.check([key])]
        try:
            reason = store.find(unless) if unless else None
            if reason is not None:
                raise StepFailed(reason.decode())
            look()
        except AffluxError:
            # They may have come between the two looks, and the failure after them.
            if store.check(keys):
                return []
            raise
        time.sleep(min(pause_s, left_s))
        pause_s = min(pause_s * 1.3, _LAST_POLL_S)
    return []


class Exchange:
    """The exchange of one group, under keys that only this incarnation of the group uses.

    Args:
        store: Shared by the group's ranks.
        rank: Own rank.
        size: Ranks of the group.
        timeout_s: Timeout of each step; the error names the ranks that did not come.
        look: Called again and again while others are waited for; raises an `AffluxError` if that is
            to end.
    """

    def __init__(
        self,
        store: Store | BoundedStore,
        rank: int,
        size: int,
        timeout_s: float,
        look: Callable[[], None] = _nothing,
    ) -> None:
        self._keys = store if isinstance(store, BoundedStore) else BoundedStore(store)
        self._rank = rank
        self._size = size
        self._timeout_s = timeout_s
        self._look = look

    @property
    def size(self) -> int:
        """Ranks of the group."""
        return self._size

    @property
    def timeout_s(self) -> float:
        """Timeout of each step."""
        return self._timeout_s

    @property
    def _store(self) -> BoundedStore:
        return self._keys.until(time.monotonic() + self._timeout_s)

    def publish(self, make: Callable[[], str]) -> str:
        """Publish and return what `make` returns, or publish its error: step one, at rank 0."""
        try:
            ticket = make()
        except Exception as error:
            # A RendezvousError already names the ranks that it is about.
            rank = "" if isinstance(error, RendezvousError) else f"rank {self._rank}: "
            self._store.set("ticket", json.dumps({"error": f"{rank}{error}"}))
            raise
        self._store.set("ticket", json.dumps({"ticket": ticket}))
        return ticket

    def ticket(self, patience_s: float) -> str:
        """Return what rank 0 publishes in step one, at the other ranks.

        They wait a step's time plus `patience_s` for it.

        Raises:
            RendezvousError: Rank 0 could not get a job; it raises for the same reason.
        """
        try:
            (text,) = self._collect(["ticket"], self._timeout_s + patience_s)
        except BaseException as error:
            # Rank 0 may be about to publish it.
            self.report(error, stays=False)
            raise
        answer = json.loads(text)
        if "error" in answer:
            raise RendezvousError(answer["error"])
        return str(answer["ticket"])

    def join(self, join: Callable[[], None]) -> None:
        """Join, and exchange whether that worked: steps two and three, at every rank.

        Raises:
            RendezvousError: A rank could not join.
        """
        cause: Exception | None = None
        try:
            join()
        except Exception as error:
            cause = error
        self._store.set(
            f"joined/{self._rank}", (str(cause) or type(cause).__name__) if cause else "ok"
        )
        texts = self._collect([f"joined/{rank}" for rank in range(self._size)], self._timeout_s)
        errors = [f"rank {rank}: {text}" for rank, text in enumerate(texts) if text != "ok"]
        if errors:
            raise StepFailed("; ".join(errors)) from cause

    def share(
        self,
        step: str,
        ranks: Sequence[int],
        make: Callable[[], Any],
        patience_s: float,
        tell: Callable[[int], str] = str,
    ) -> list[Any]:
        """Publish what `make` returns, if this rank takes part; return what all of `ranks` have.

        Args:
            step: Names the step in keys and, by `_STEPS`, in messages.
            ranks: Those that take part. All ranks of the group call this, with the same ones.
            make: Makes a value for JSON.
            patience_s: How long to wait for the others, at most a step's time.
            tell: Names a rank, for messages.

        Raises:
            StepFailed: One or more could not make theirs.
            RendezvousError: They did not come.
        """
        if self._rank in ranks:
            self.publish_part(step, make)
        return self.parts(step, ranks, patience_s, tell)

    def publish_part(self, step: str, make: Callable[[], Any]) -> None:
        """Publish what `make` returns, or its error: this rank's part of a step."""
        self._store.set(f"{step}/{self._rank}", published(make))

    def have_parts(self, step: str, ranks: Sequence[int]) -> bool:
        """Return whether these ranks have published theirs."""
        try:
            return self._keys.check([f"{step}/{rank}" for rank in ranks]) if ranks else True
        except StoreSilent:
            # A caller that needs them says how long it waits for them.
            return False

    def failure(self) -> str:
        """Return the first failure that a rank has reported; empty if none has."""
        try:
            reason = self._keys.find(_FAILED)
        except StoreSilent:
            return ""
        return reason.decode() if reason is not None else ""

    def parts(
        self, step: str, ranks: Sequence[int], patience_s: float, tell: Callable[[int], str] = str
    ) -> list[Any]:
        """Return what these ranks have published; see `share`."""
        limit_s = min(self._timeout_s, patience_s)
        texts = self._collect([f"{step}/{rank}" for rank in ranks], limit_s)
        found = [json.loads(text) for text in texts]
        errors = [
            f"rank {tell(rank)}: {each['error']}"
            for rank, each in zip(ranks, found, strict=True)
            if "error" in each
        ]
        if errors:
            raise StepFailed("; ".join(errors))
        return [each["value"] for each in found]

    def report(self, failure: BaseException | None, stays: bool = True) -> None:
        """Write this rank's finding.

        Args:
            failure: Why it cannot go on; None if it can.
            stays: Whether it waits for the verdict.
        """
        text = ""
        if failure is not None:
            text = str(failure) or type(failure).__name__
            # A RendezvousError already names the ranks that it is about.
            text = text if isinstance(failure, RendezvousError) else f"rank {self._rank}: {text}"
        finding = {"error": text, "stays": stays, "waited": _in_vain(failure)}
        writes: list[Callable[[], Any]] = [
            lambda: self._keys.set(f"finding/{self._rank}", json.dumps(finding))
        ]
        if text:
            writes.append(lambda: self._keys.compare_set(_FAILED, "", text))
        for write in writes:
            try:
                write()
            except RuntimeError:
                # A silent store may write it later. The verdict does not come either.
                _log.debug("the finding was not written", exc_info=True)

    def verdict(self, failure: Exception | None, may_fall: bool, patience_s: float) -> str:
        """Write this rank's finding; return the verdict upon those of all ranks. Collective.

        Args:
            failure: Why this rank cannot go on; None if it can.
            may_fall: Whether the group can do without what the ranks have tried, at rank 0.
            patience_s: For ranks of which nothing is heard, once others have failed. A rank that
                has waited for them in vain has had patience: then it is at most a few seconds.

        Returns:
            Why all ranks do without; empty if all have succeeded.

        Raises:
            RendezvousError: At every rank: ranks have failed, and nothing else is left; or not all
                have come to this, so that the group cannot be made.
        """
        self.report(failure)
        if self._rank == 0:
            self._store.compare_set("verdict", "", json.dumps(self._judge(may_fall, patience_s)))
        if _in_vain(failure):
            patience_s = min(patience_s, _PATIENCE_S)
        try:
            try:
                (text,) = self._collect(["verdict"], self._timeout_s + _GRACE_S)
            except StepFailed:
                limit_s = _GRACE_S if self._keys.silence else patience_s + 2 * _GRACE_S
                (text,) = self._collect(["verdict"], limit_s, heeds=False)
        except RendezvousError as error:
            reason = f"{failure}; " if failure is not None else ""
            text = self._give_up(f"{reason}{error}")
        verdict = json.loads(text)
        if verdict["error"] and not verdict["falls"]:
            kind = StepFailed if verdict["complete"] else RendezvousError
            raise kind(verdict["error"]) from failure
        return str(verdict["error"])

    def _give_up(self, error: str) -> str:
        """Return the verdict that ranks have failed, unless there is one by now: then that.

        Rank 0, which comes late perhaps, goes by it: it must not go to Gloo without this rank.
        """
        own = json.dumps({"error": error, "falls": False, "complete": False})
        try:
            return self._keys.compare_set("verdict", "", own).decode()
        except RuntimeError:
            # A silent store may write it later.
            _log.debug("the verdict was not written", exc_info=True)
            return own

    def _judge(self, may_fall: bool, patience_s: float) -> dict[str, Any]:
        keys = [f"finding/{rank}" for rank in range(self._size)]
        try:
            late = missing_of(self._store, keys, self._timeout_s, _FAILED)
        except StepFailed:
            # A live rank hears of it, too, unless it is busy.
            if any(each["waited"] for each in self._findings(keys)):
                patience_s = min(patience_s, _PATIENCE_S)
            late = missing_of(self._store, keys, patience_s)
        findings = self._findings(keys)
        # Ranks that have failed of the same say the same.
        reasons = [each["error"] for each in findings if each["error"]]
        if late:
            reasons.append(f"rank 0 of {self._size} waited for {names_of(late)}")
        return {
            "error": "; ".join(dict.fromkeys(reasons)),
            "falls": may_fall and not late and all(each["stays"] for each in findings),
            "complete": not late,
        }

    def _findings(self, keys: Sequence[str]) -> list[dict[str, Any]]:
        """Return the findings that have come."""
        texts = (self._store.find(key) for key in keys)
        return [json.loads(text) for text in texts if text is not None]

    def _collect(self, keys: list[str], timeout_s: float, heeds: bool = True) -> list[str]:
        who = f"{timed_out(timeout_s)}: rank {self._rank} of {self._size} waited for "
        try:
            unless = _FAILED if heeds else ""
            missing = missing_of(self._store, keys, timeout_s, unless, self._look)
            if not missing:
                return [self._store.get(key).decode() for key in keys]
        except StoreSilent as silence:
            raise RendezvousError(f"{who}{names_of(keys)}: {silence}") from None
        raise RendezvousError(f"{who}{names_of(missing)}")


def _in_vain(failure: BaseException | None) -> bool:
    """Return whether a rank has failed because it has waited for others in vain."""
    return isinstance(failure, RendezvousError) and not isinstance(failure, StepFailed)


def names_of(keys: list[str]) -> str:
    """Say in words whose step is missing where these keys are."""
    if keys[0] == "ticket":
        return "rank 0 to get a job of the aggregator"
    if keys[0] == "verdict":
        return "rank 0 to say whether all ranks can go on"
    ranks = [key.partition("/")[2] for key in keys]
    noun = "rank" if len(ranks) == 1 else "ranks"
    return f"{noun} {', '.join(ranks)} to {_STEPS[keys[0].partition('/')[0]]}"
