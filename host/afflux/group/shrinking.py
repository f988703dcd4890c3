"""The ranks that are left of a group, and agree on who that is.

`torch.distributed.shrink_group` makes a group of them. Its sums are those of any group of the same
ranks, since no sum depends on who came when.
"""

import contextlib
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Protocol

from torch._C._distributed_c10d import PrefixStore, Store

from afflux.group.settings.membership import Membership
from afflux.group.store.bounded import Asker, BoundedStore, StoreSilent
from afflux.group.store.exchange import RendezvousError, names_of

__all__ = ["shrunk"]

_FIRST_PAUSE_S = 0.0003
_LAST_PAUSE_S = 0.05


class _Group(Protocol):
    membership: Membership
    shrinks: int
    timeout_s: float

    @property
    def store(self) -> Store: ...


def shrunk(group: _Group, excluded: Sequence[int]) -> Membership:
    """Return this rank's membership of the group that is left; a collective of those ranks.

    Args:
        group: The group, which may have failed or be closed.
        excluded: Ranks that are left out. They do not call.

    Raises:
        RendezvousError: Ranks leave out others, or have not called in time.
    """
    old = group.membership
    left = [rank for rank in range(old.size) if rank not in excluded]
    group.shrinks += 1
    meeting = PrefixStore(f"shrink/{group.shrinks}", group.store)
    limit_s = group.timeout_s
    deadline = time.monotonic() + limit_s
    keys = BoundedStore(meeting, Asker()).until(deadline)
    call = f"shrink_group at rank {old.rank}, which leaves out {list(excluded)}"
    own = f"left/{old.rank}"
    try:
        keys.set(own, json.dumps(left))
        waiting, pause_s = set(left), _FIRST_PAUSE_S
        while waiting:
            for rank in sorted(waiting):
                found = keys.find(f"left/{rank}")
                if found is None:
                    continue
                waiting.discard(rank)
                theirs = json.loads(found)
                if isinstance(theirs, str):
                    raise RendezvousError(f"{call}: rank {rank} has given up: {theirs}")
                if theirs != left:
                    others = [each for each in range(old.size) if each not in theirs]
                    raise RendezvousError(f"{call}: rank {rank} leaves out {others}")
            if waiting and time.monotonic() > deadline:
                missing = names_of([f"left/{rank}" for rank in sorted(waiting)])
                raise RendezvousError(f"{call}: waited {limit_s:g} s for {missing}")
            if waiting:
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, _LAST_PAUSE_S)
    except StoreSilent as silence:
        raise RendezvousError(f"{call}: {silence}") from None
    except RendezvousError as error:
        # A rank that comes later fails of it at once, and the next attempt is the same for both.
        with contextlib.suppress(StoreSilent):
            BoundedStore(meeting, Asker()).set(own, json.dumps(str(error)))
        raise
    except RuntimeError as error:
        # torch's, of which each kind of store has its own class, and words that name nobody.
        raise RendezvousError(f"{call}: the store by which ranks meet is gone: {error}") from None
    members = old.global_ranks or range(old.size)
    return replace(
        old,
        store=PrefixStore("group", meeting),
        rank=left.index(old.rank),
        size=len(left),
        timeout=timedelta(seconds=limit_s),
        name=f"{old.name}-shrunk{group.shrinks}",
        global_ranks=[members[rank] for rank in left],
    )
