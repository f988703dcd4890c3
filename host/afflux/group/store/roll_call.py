"""How the ranks of a new group find one another, and nothing of an earlier incarnation.

    every rank   writes who it is, with a nonce                          rank/<r>
    rank 0       writes the name of this incarnation of the group, and either
                   where it hands out memory, for ranks in its reach,    ticket
                   or the nonces of all ranks: it calls the roll         ticket
    every rank   whose nonce is on the roll confirms it                  <life>/heard/<r>

A group that is made again, in the same process or after a restart of its ranks, finds these keys
with the values of its last incarnation. A rank goes by a ticket only if its nonce is on the roll,
or if the process that hands out the memory lives; else it waits for the next ticket. Rank 0 reads
again what ranks that do not confirm have written, and calls the roll anew.
"""

import json
import os
import secrets
import time
from typing import Any

from torch._C._distributed_c10d import PrefixStore, Store

from afflux.group.store.bounded import Asker, BoundedStore, StoreSilent
from afflux.group.store.exchange import RendezvousError, missing_of, names_of
from afflux.group.store.introduction import Introduction
from afflux.group.store.keys import GroupStore
from afflux_drivers.errors import timed_out

__all__ = ["RollCall"]

_RESTARTS = "TORCHELASTIC_RESTART_COUNT"
"""The restarts that torchrun counts: ranks of the last attempt may still be about when the next one
begins."""

_FIRST_POLL_S = 0.0003
_LAST_POLL_S = 0.05

_GRACE_S = 1.0

_ROLL_S = 0.2
"""A rank whose nonce has been read confirms it within milliseconds."""


class RollCall:
    """One rank's part in the roll call of a new group.

    Args:
        store: As torch hands it to the group.
        rank: Own rank.
        size: Ranks of the group.
        timeout_s: Until all ranks must have come.

    Attributes:
        incarnation: Of the group; rank 0 has drawn it, the others learn it.
    """

    def __init__(self, store: Store, rank: int, size: int, timeout_s: float) -> None:
        self._torch_store = store
        self._asker = Asker()
        own = PrefixStore(f"afflux/{os.environ.get(_RESTARTS, '0')}", store)
        self._own_keys = BoundedStore(own, self._asker)
        self._rank = rank
        self._size = size
        self._timeout_s = timeout_s
        # Rank 0 knows best who is missing: the others give it time to say so.
        self._deadline = time.monotonic() + timeout_s + (0.0 if rank == 0 else _GRACE_S)
        self._nonce = secrets.token_hex(8)
        self._last_ticket = ""
        self._declined = ""
        self.incarnation = secrets.token_hex(8) if rank == 0 else ""

    @property
    def left_s(self) -> float:
        """Seconds until all ranks must have come."""
        return self._deadline - time.monotonic()

    @property
    def _store(self) -> BoundedStore:
        """The keys in which the ranks meet, until all must have come."""
        return self._own_keys.until(self._deadline)

    def in_time(self, keys: GroupStore) -> BoundedStore:
        """Return a life's keys, until all must have come."""
        return keys.asked.until(self._deadline)

    def hurry(self, seconds: float) -> None:
        """Wait no longer than this from now on: there will be no group."""
        self._deadline = min(self._deadline, time.monotonic() + seconds)

    def introduce(self, introduction: Introduction) -> None:
        """Write who this rank is: the first step, at every rank."""
        self._declined = introduction.error
        fields = {"nonce": self._nonce, **introduction.to_fields()}
        self._store.set(f"rank/{self._rank}", json.dumps(fields))

    def keys(self) -> GroupStore:
        """Return the keys of this incarnation, in which this rank takes part."""
        limit_s = max(self.left_s, _GRACE_S)
        rank, size = self._rank, self._size
        keys = GroupStore(self._torch_store, self.incarnation, rank, size, self._asker, limit_s)
        keys.met = self._own_keys, [f"rank/{rank}"] + (["ticket"] if rank == 0 else [])
        return keys

    # Rank 0's steps.

    def offer(self, ticket: dict[str, Any]) -> None:
        """Write where this rank hands out memory."""
        self._store.set("ticket", json.dumps({"life": self.incarnation, **ticket}))

    def call_roll(self, keys: GroupStore) -> list[Introduction]:
        """Return the introductions of all ranks, in order of rank, when all have confirmed.

        Raises:
            RendezvousError: Ranks did not come in time. Those that have come raise it too.
        """
        everyone = range(self._size)
        called: list[str] = []
        late = missing_of(self._store, [f"rank/{rank}" for rank in everyone], self.left_s)
        while not late:
            found = [self._store.find(f"rank/{rank}") for rank in everyone]
            texts = [text.decode() for text in found if text is not None]
            if len(texts) < len(found):
                # Of an earlier incarnation of the group, whose ranks tidy up.
                late = missing_of(self._store, [f"rank/{rank}" for rank in everyone], self.left_s)
                continue
            if texts != called:
                called = texts
                self._write_roll(called)
            introductions = [Introduction.from_fields(json.loads(text)) for text in called]
            # A rank that cannot take part says so, and does not stay for long.
            taking_part = [
                f"heard/{rank}"
                for rank in everyone
                if rank != self._rank and not introductions[rank].error
            ]
            wait_s = min(_ROLL_S, max(self.left_s, 0.01))
            try:
                unheard = missing_of(keys.asked, taking_part, wait_s)
            except StoreSilent:
                # Slow, perhaps: it has as long for this as the ranks have to come.
                unheard = [key for key in taking_part if not self.in_time(keys).check([key])]
            if not unheard:
                return introductions
            if self.left_s <= 0:
                late = [f"rank/{key.partition('/')[2]}" for key in unheard]
        error = self._too_late(late)
        self.refuse(str(error))
        raise error

    def refuse(self, reason: str) -> None:
        """Let the ranks that have come know that there will be no group."""
        keys = [f"rank/{rank}" for rank in range(self._size)]
        found = [self._store.find(key) for key in keys]
        self._write_roll([text.decode() for text in found if text is not None], reason)

    def _write_roll(self, texts: list[str], error: str = "") -> None:
        roll = [json.loads(text)["nonce"] for text in texts]
        self._store.set(
            "ticket", json.dumps({"life": self.incarnation, "roll": roll, "error": error})
        )

    # The other ranks' steps.

    def next_ticket(self) -> dict[str, Any]:
        """Return a ticket that this rank may go by, when there is one that it has not seen.

        It is an offer of memory, whoever made it, or a roll with this rank's nonce.

        Raises:
            RendezvousError: None came in time, or rank 0 has written why there is no group.
        """
        pause_s = _FIRST_POLL_S
        while True:
            # Not with the store's wait, which writes to stderr when it is over before the key.
            text = (self._store.find("ticket") or b"").decode()
            if text and text != self._last_ticket:
                self._last_ticket = text
                ticket: dict[str, Any] = json.loads(text)
                if "roll" not in ticket or self._nonce in ticket["roll"]:
                    self.incarnation = ticket["life"]
                    if ticket.get("error"):
                        raise RendezvousError(ticket["error"])
                    return ticket
            if self.left_s <= 0:
                absent = missing_of(
                    self._store, [f"rank/{rank}" for rank in range(self._size)], 0.0
                )
                raise self._too_late(absent)
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.3, _LAST_POLL_S)

    def confirm(self, keys: GroupStore) -> None:
        """Confirm that this rank has been called."""
        self.in_time(keys).set(f"heard/{self._rank}", "1")

    def _too_late(self, late: list[str]) -> RendezvousError:
        if self._declined:
            return RendezvousError(f"rank {self._rank}: {self._declined}")
        return RendezvousError(
            f"{timed_out(self._timeout_s)}: rank {self._rank} of {self._size} waited for "
            f"{names_of(late or ['rank/0'])}"
        )
