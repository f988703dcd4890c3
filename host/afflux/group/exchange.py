"""How the ranks of a new group come to share one job of one aggregator.

    every rank   writes where it runs and what it can carry          rank/<r>
    rank 0       reads all of them, gets a job, writes the ticket    ticket
    every rank   joins the job, writes whether that worked           joined/<r>
    every rank   reads all of these

Where ranks may share memory, two steps come between, and a job only if they do not end well:

    rank 0       writes where it hands its memory out                ticket
    every rank   maps it, writes whether that worked                 mapped/<r>
    every rank   reads all of these
    rank 0       gets a job, writes the ticket                       fallback

An error anywhere is written in place of the value, so every rank raises one that names the cause.
"""

import json
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from torch._C._distributed_c10d import Store

from afflux.group.aggregator_url import AggregatorUrl
from afflux_drivers.errors import AffluxError

__all__ = ["Exchange", "Introduction", "RendezvousError", "host_identity"]

_SLICE_S = 1.0

_STEPS = {
    "rank": "come to the new group",
    "mapped": "map the memory that the ranks share",
    "joined": "join the aggregator",
}


class RendezvousError(AffluxError):
    """The ranks of a group could not agree on an aggregator; every rank raises the same."""


def host_identity() -> str:
    """Return a text that is equal for two processes if, and only if, they share a loopback."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        network = os.stat("/proc/self/ns/net").st_ino
    except OSError:
        return socket.gethostname()
    return f"{boot}/{network}"


@dataclass(frozen=True)
class Introduction:
    """What a rank publishes about itself.

    Attributes:
        url: Its AFFLUX_AGGREGATOR.
        host: Its `host_identity`.
        lanes: Most lanes that its path to the aggregator carries.
    """

    url: AggregatorUrl
    host: str
    lanes: int

    def to_json(self) -> str:
        """Return the text for the store."""
        return json.dumps({"url": str(self.url), "host": self.host, "lanes": self.lanes})

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> "Introduction":
        """Read back what `to_json` wrote, decoded."""
        return cls(AggregatorUrl.parse(fields["url"]), fields["host"], fields["lanes"])


class Exchange:
    """The exchange of one group, over a store of its own.

    Args:
        store: Shared by the group's ranks.
        rank: Own rank.
        size: Ranks of the group.
        timeout_s: Timeout of each step; the error names the ranks that did not come.
    """

    def __init__(self, store: Store, rank: int, size: int, timeout_s: float) -> None:
        self._store = store
        self._rank = rank
        self._size = size
        self._timeout_s = timeout_s

    def introduce(self, introduction: Introduction) -> None:
        """Introduce this rank: step one, at every rank."""
        self._store.set(f"rank/{self._rank}", introduction.to_json())

    def decline(self, reason: str) -> None:
        """Make the others fail because this rank cannot take part. It takes no step then."""
        error = json.dumps({"error": f"rank {self._rank}: {reason}"})
        self._store.set(f"rank/{self._rank}", error)
        if self._rank == 0:
            self._store.set("ticket", error)

    def introductions(self) -> list[Introduction]:
        """Return the introductions of all ranks, in order of rank: step two, at rank 0.

        Raises:
            RendezvousError: One has an error, or they name different aggregators.
        """
        texts = self._collect([f"rank/{rank}" for rank in range(self._size)], self._timeout_s)
        answers = [json.loads(text) for text in texts]
        errors = [answer["error"] for answer in answers if "error" in answer]
        if errors:
            raise RendezvousError("; ".join(errors))
        everyone = [Introduction.from_fields(answer) for answer in answers]
        # Below one parent, each rank may have an aggregator of its own.
        tree = all(each.url.parent for each in everyone)
        if len({each.url.parent if tree else each.url for each in everyone}) > 1:
            lines = "; ".join(f"rank {rank}: {each.url}" for rank, each in enumerate(everyone))
            raise RendezvousError(f"the ranks disagree on AFFLUX_AGGREGATOR: {lines}")
        return everyone

    def publish(self, make: Callable[[], str], key: str = "ticket") -> str:
        """Publish and return what `make` returns, or publish its error: step two, at rank 0."""
        try:
            ticket = make()
        except Exception as error:
            # A RendezvousError already names the ranks that it is about.
            rank = "" if isinstance(error, RendezvousError) else f"rank {self._rank}: "
            self._store.set(key, json.dumps({"error": f"{rank}{error}"}))
            raise
        self._store.set(key, json.dumps({"ticket": ticket}))
        return ticket

    def ticket(self, patience_s: float, key: str = "ticket") -> str:
        """Return what rank 0 publishes in step two, at the other ranks.

        They wait a step's time plus `patience_s` for it.

        Raises:
            RendezvousError: Rank 0 could not get a job; it raises for the same reason.
        """
        (text,) = self._collect([key], self._timeout_s + patience_s)
        answer = json.loads(text)
        if "error" in answer:
            raise RendezvousError(answer["error"])
        return answer["ticket"]

    def mapped(self, refusal: str) -> list[str]:
        """Exchange whether memory is shared, at every rank.

        Args:
            refusal: Why this rank has not mapped it; empty if it has.

        Returns:
            The refusals, each with its rank, such as "rank 2: no such file".
        """
        self._store.set(f"mapped/{self._rank}", refusal or "ok")
        texts = self._collect([f"mapped/{rank}" for rank in range(self._size)], self._timeout_s)
        return [f"rank {rank}: {text}" for rank, text in enumerate(texts) if text != "ok"]

    def join(self, join: Callable[[], None]) -> None:
        """Join, and exchange whether that worked: steps three and four, at every rank.

        Raises:
            RendezvousError: A rank could not join.
        """
        cause: Exception | None = None
        try:
            join()
        except Exception as error:
            cause = error
        self._store.set(f"joined/{self._rank}", str(cause) if cause else "ok")
        texts = self._collect([f"joined/{rank}" for rank in range(self._size)], self._timeout_s)
        errors = [f"rank {rank}: {text}" for rank, text in enumerate(texts) if text != "ok"]
        if errors:
            raise RendezvousError("; ".join(errors)) from cause

    def _collect(self, keys: list[str], timeout_s: float) -> list[str]:
        deadline = time.monotonic() + timeout_s
        missing = list(keys)
        while missing:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise RendezvousError(
                    f"timed out: rank {self._rank} of {self._size} waited {timeout_s:g} s for "
                    f"{_names(missing)}"
                )
            try:
                # Less than a millisecond would become 0, which some stores take as "for ever".
                slice_s = min(max(left_s, 0.01), _SLICE_S)
                self._store.wait(missing, timedelta(seconds=slice_s))
            except RuntimeError as error:
                # Each kind of store has its own class and spelling of this error.
                if "timeout" not in str(error).lower():
                    raise
                missing = [key for key in missing if not self._store.check([key])]
            else:
                break
        return [self._store.get(key).decode() for key in keys]


def _names(keys: list[str]) -> str:
    if keys[0] in ("ticket", "fallback"):
        return "rank 0 to get a job of the aggregator"
    ranks = [key.partition("/")[2] for key in keys]
    noun = "rank" if len(ranks) == 1 else "ranks"
    return f"{noun} {', '.join(ranks)} to {_STEPS[keys[0].partition('/')[0]]}"
