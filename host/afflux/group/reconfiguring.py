"""The ranks of a group that change: some leave, some come, by handles alone.

The process of the first handle serves the store in which the ranks meet, and which the group has
afterwards. In it, under a name that number and handles determine:

    every rank   writes that it is here            here/<r>
    first rank   reads all of these, and writes    verdict

In its own store, every rank says what it was told: so ranks that were told different things, and
never meet, find that out.
"""

import contextlib
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from torch._C._distributed_c10d import PrefixStore, Store

from afflux.group.store.bounded import Asker, BoundedStore, StoreSilent
from afflux.group.store.exchange import RendezvousError
from afflux.group.store.own_store import (
    Handle,
    HandleError,
    Unreachable,
    connect,
    own_handle,
    own_store,
)

__all__ = ["MOST_RANKS", "Place", "Reconfiguring"]

MOST_RANKS = 64

_FIRST_PAUSE_S = 0.0003
_LAST_PAUSE_S = 0.05

_INQUIRY_S = 0.5
"""Ranks that have been told the same have come by then, as a rule."""

_INQUIRY_PAUSE_S = 0.25

_CONFLICT_S = 1.0
"""A rank may still be busy with what it was told before."""

_OVER_S = 5.0
"""A rank that has given up what it was told may be about to come."""

_LEAST_S = 1.0

_CLAIMS = 16
"""Ranks that come late hear of so many."""

_GO = "go"


class Place(NamedTuple):
    """A rank's place in a new group.

    Attributes:
        store: Of the group; nobody else has its keys.
        rank: Own rank.
        size: Ranks of the group.
        left: How long it may take to form it.
    """

    store: Store
    rank: int
    size: int
    left: timedelta


@dataclass(frozen=True)
class _Call:
    """A rank's call: the number and the handles that it was told."""

    uuid: int
    handles: tuple[Handle, ...]

    @property
    def name(self) -> str:
        """Equal for the same call."""
        told = json.dumps([self.uuid, [each.identity for each in self.handles]])
        return hashlib.sha256(told.encode()).hexdigest()[:16]

    def __str__(self) -> str:
        return f"uuid {self.uuid}, {len(self.handles)} handles"


class _Claim(NamedTuple):
    """A rank's words, in its own store, about a call of its.

    Attributes:
        uuid: The number.
        identities: Of the handles.
        error: Why it has given up; empty if it has not.
    """

    uuid: int
    identities: list[str]
    error: str = ""


class Reconfiguring:
    """One communicator's part in groups whose ranks change.

    Args:
        interfaces: Those of AFFLUX_INTERFACE; None if it is not set.
        towards: Name or address of another host, if one is known.
    """

    def __init__(self, interfaces: Sequence[str] | None, towards: str | None) -> None:
        self._interfaces, self._towards = interfaces, towards
        self._identity = secrets.token_hex(8)
        self._handle: Handle | None = None
        self._used: set[int] = set()
        self._claimed: list[int] = []
        self._given_up = threading.Event()

    @property
    def handle(self) -> Handle:
        """The communicator's: the same for as long as it lives.

        Raises:
            OSError: AFFLUX_INTERFACE names no interface.
        """
        if self._handle is None:
            self._handle = own_handle(self._identity, self._interfaces, self._towards)
        return self._handle

    def give_up(self) -> None:
        """End a wait for the other ranks, in whichever thread it is."""
        self._given_up.set()

    @contextlib.contextmanager
    def met(
        self,
        uuid: int,
        handles: Collection[str],
        limit_s: float,
        end: Callable[[], None],
    ) -> Iterator[Place]:
        """Meet the ranks of a new group; the body forms it. Collective.

        Args:
            uuid: Numbers the call; this communicator has not used it before.
            handles: One for each rank: in the order of a list, or in an order of their own for a
                set.
            limit_s: How long it may take.
            end: Ends the last group; called when the arguments are right in themselves.

        Yields:
            This rank's place in the new group.

        Raises:
            RendezvousError: The arguments are wrong in themselves: the number has been used, or
                handles are none, too many, equal, of others alone; others who wait for this rank
                hear it. Or ranks were told other things, do not come, or have ended; by name.
        """
        deadline = time.monotonic() + limit_s
        self._given_up.clear()
        call = self._checked(uuid, handles)
        end()
        asker = Asker()
        try:
            self._claim(call)
            known = self._identity, self._used, self._given_up
            meeting = _Meeting(call, *known, asker, deadline)
            try:
                store = PrefixStore("group", meeting.meet())
                left = timedelta(seconds=max(deadline - time.monotonic(), _LEAST_S))
                yield Place(store, meeting.rank, len(call.handles), left)
                meeting.leave()
            except RendezvousError as error:
                self._claim(call, str(error))
                raise
        finally:
            asker.end()

    def _checked(self, uuid: int, handles: Collection[str]) -> _Call:
        """Return the call; tell others of one that is wrong.

        Raises:
            RendezvousError: See `met`.
        """
        if isinstance(handles, str):
            raise TypeError("reconfigure takes a list or a set of handles, not one handle")
        texts = handles if isinstance(handles, list | tuple) else sorted(handles)
        known: list[Handle] = []
        try:
            if uuid in self._used:
                raise RendezvousError(
                    f"reconfigure: uuid {uuid} was already used by this group; each call needs "
                    "a number of its own, the same at all ranks"
                )
            self._used.add(uuid)
            for rank, text in enumerate(texts):
                try:
                    known.append(Handle.parse(text))
                except HandleError as error:
                    reason = f"reconfigure, uuid {uuid}: handle {rank}: {error}"
                    raise RendezvousError(reason) from None
            identities = [each.identity for each in known]
            if not 0 < len(known) <= MOST_RANKS:
                raise RendezvousError(
                    f"reconfigure, uuid {uuid}: {len(known)} handles; a group has 1 to {MOST_RANKS}"
                )
            for rank, identity in enumerate(identities):
                first = identities.index(identity)
                if first != rank:
                    raise RendezvousError(
                        f"reconfigure, uuid {uuid}: handles {first} and {rank} are the same one, "
                        f"of {known[rank].where}"
                    )
            if self._identity not in identities:
                raise RendezvousError(
                    f"reconfigure, uuid {uuid}: none of the {len(known)} handles is this rank's "
                    f"own, of {self.handle.where}; ranks that leave do not call"
                )
        except RendezvousError as error:
            self._claim(_Call(uuid, tuple(known)), str(error))
            raise
        return _Call(uuid, tuple(known))

    def _claim(self, call: _Call, error: str = "") -> None:
        """Say what this rank was told, and perhaps why it has given up."""
        text = json.dumps(_Claim(call.uuid, [each.identity for each in call.handles], error))
        store = own_store()
        # Of the same number at once, as others may come late to it.
        for key in (_claim_key(self.handle, call.uuid), _claim_key(self.handle)):
            store.set(key, text)
        if call.uuid not in self._claimed:
            self._claimed.append(call.uuid)
        if len(self._claimed) > _CLAIMS:
            store.delete_key(_claim_key(self.handle, self._claimed.pop(0)))


def _rank_of(identity: str, handles: Sequence[Handle]) -> int:
    """Return the rank that a handle gives: ranks of earlier groups have no part in it."""
    return [each.identity for each in handles].index(identity)


def _claim_key(handle: Handle, uuid: int | None = None) -> str:
    """Return the key of what a rank was told: last, or with this number."""
    return f"afflux/claim/{handle.identity}" + ("" if uuid is None else f"/{uuid}")


class _Meeting:
    """The meeting of one call's ranks, at one of them.

    Args:
        call: The call.
        identity: Own.
        used: Numbers of all calls of this communicator.
        given_up: Set when nobody waits for it any more.
        asker: Asks stores.
        deadline: When the ranks must have met, in seconds of the monotonic clock.

    Attributes:
        rank: Own.
    """

    def __init__(
        self,
        call: _Call,
        identity: str,
        used: set[int],
        given_up: threading.Event,
        asker: Asker,
        deadline: float,
    ) -> None:
        self._call, self._identity = call, identity
        self.rank = _rank_of(identity, call.handles)
        self._used, self._given_up = used, given_up
        self._asker, self._deadline = asker, deadline
        self._began = time.monotonic()
        self._inquiry = self._began + _INQUIRY_S
        self._conflicts: dict[int, float] = {}
        self._busy: set[int] = set()
        self._servers: dict[int, BoundedStore] = {}
        self._place: PrefixStore | None = None

    def meet(self) -> PrefixStore:
        """Return the store of the group that is to be, when all ranks have come and agree.

        Raises:
            RendezvousError: They have not, or do not.
        """
        first = self._call.handles[0]
        try:
            server = connect(first, self._asker, self._deadline - time.monotonic())
        except Unreachable as error:
            raise self._error(f"rank 0 cannot be reached: {error}") from None
        self._place = place = PrefixStore(f"afflux/met/{self._call.name}", server)
        keys = BoundedStore(place, self._asker).until(self._deadline)
        try:
            keys.set(f"here/{self.rank}", self._identity)
            if self.rank == 0:
                self._gather(keys)
            else:
                self._wait(keys, BoundedStore(server, self._asker).until(self._deadline))
        except StoreSilent as silence:
            raise self._error(f"rank 0, at {first.where}: {silence}") from None
        return place

    def leave(self) -> None:
        """Delete what this rank has written: all have met."""
        assert self._place is not None
        keys = BoundedStore(self._place, self._asker)
        with contextlib.suppress(StoreSilent, RuntimeError):
            keys.delete_key(f"here/{self.rank}")
            if self.rank == 0:
                keys.delete_key("verdict")

    def _gather(self, keys: BoundedStore) -> None:
        """Wait for all ranks, and tell them whether they have come: rank 0."""
        missing = set(range(1, len(self._call.handles)))
        try:
            for _ in self._looks():
                missing -= {rank for rank in missing if self._has_come(rank, keys)}
                if not missing:
                    break
                if time.monotonic() > self._deadline:
                    raise self._error(f"waited in vain for {_named(missing)}")
                if self._inquires():
                    for rank in sorted(missing):
                        self._inquire(rank)
            keys.set("verdict", _GO)
        except RendezvousError as error:
            with contextlib.suppress(StoreSilent):
                keys.set("verdict", str(error))
            raise

    def _has_come(self, rank: int, keys: BoundedStore) -> bool:
        found = keys.find(f"here/{rank}")
        handle = self._call.handles[rank]
        if found is not None and found.decode() != handle.identity:
            raise self._error(f"another rank has come as rank {rank}, which is at {handle.where}")
        return found is not None

    def _wait(self, keys: BoundedStore, server: BoundedStore) -> None:
        """Wait for the verdict: the other ranks."""
        for _ in self._looks():
            found = keys.find("verdict")
            if found is not None:
                if found.decode() != _GO:
                    raise self._error(f"rank 0 has given up: {found.decode()}")
                return
            if self._inquires():
                self._compare(0, server)
            # Rank 0 knows best who is missing.
            if time.monotonic() > self._deadline + _CONFLICT_S:
                raise self._error("waited in vain for rank 0 to say that all have come")

    def _looks(self) -> Iterator[None]:
        pause_s = _FIRST_PAUSE_S
        while True:
            if self._given_up.is_set():
                raise self._error("aborted at this rank")
            yield
            time.sleep(pause_s)
            pause_s = min(1.3 * pause_s, _LAST_PAUSE_S)

    def _inquires(self) -> bool:
        """Return whether it is time to ask others for what they are being called."""
        now = time.monotonic()
        if now < self._inquiry:
            return False
        self._inquiry = now + _INQUIRY_PAUSE_S
        return True

    def _inquire(self, rank: int) -> None:
        """Ask the process of a rank that has not come for what it is being called."""
        handle = self._call.handles[rank]
        try:
            server = self._servers.get(rank)
            if server is None:
                server = BoundedStore(connect(handle, self._asker, _CONFLICT_S), self._asker)
                self._servers[rank] = server
            self._compare(rank, server)
        except Unreachable as error:
            raise self._error(f"rank {rank} cannot be reached: {error}") from None
        except StoreSilent:
            # Slow, perhaps.
            return

    def _compare(self, rank: int, server: BoundedStore) -> None:
        """Compare what a rank was told, as its own store has it, with this rank's call.

        Raises:
            RendezvousError: They do not agree.
        """
        handle = self._call.handles[rank]
        text = server.find(_claim_key(handle, self._call.uuid)) or server.find(_claim_key(handle))
        claim = None if text is None else _Claim(*json.loads(text))
        own = [each.identity for each in self._call.handles]
        if claim is None or claim.uuid in self._used - {self._call.uuid}:
            # It is busy with an earlier call, or with none.
            self._conflicts.pop(rank, None)
            return
        if claim.uuid == self._call.uuid and claim.identities == own:
            if claim.error:
                raise self._error(f"rank {rank} has given up: {claim.error}")
            return
        if claim.uuid != self._call.uuid:
            if own[self.rank] not in claim.identities:
                # A call of others alone; this one may be its next.
                return
            if not claim.error:
                self._busy.add(rank)
            since = self._conflicts.setdefault(rank, time.monotonic())
            grace_s = _CONFLICT_S if rank in self._busy else _OVER_S
            if time.monotonic() - since < grace_s:
                return
        what = f"rank {rank} was told uuid {claim.uuid} and {self._list(claim.identities)}"
        raise self._error(f"{what}{': ' if claim.error else ''}{claim.error}")

    def _list(self, identities: list[str]) -> str:
        """Describe another rank's handles by the ranks that they have here."""
        own = [each.identity for each in self._call.handles]
        ranks = [str(own.index(each)) if each in own else "another" for each in identities]
        return f"the handles of ranks [{', '.join(ranks)}] of this call"

    def _error(self, reason: str) -> RendezvousError:
        size = len(self._call.handles)
        return RendezvousError(
            f"reconfigure, uuid {self._call.uuid}, at rank {self.rank} of {size}: {reason}"
        )


def _named(ranks: Collection[int]) -> str:
    numbers = ", ".join(map(str, sorted(ranks)))
    return f"rank{'s' if len(ranks) > 1 else ''} {numbers}"
