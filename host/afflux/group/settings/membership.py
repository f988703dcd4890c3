"""Torch's arguments for a group that is to be made, at one of its ranks."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import Store

__all__ = ["NATIVE", "PYTHON_BACKEND", "PYTHON_PROCESS_GROUP", "Membership"]

NATIVE = "native"
PYTHON_BACKEND = "python backend"
PYTHON_PROCESS_GROUP = "python process group"
"""It makes a Gloo group of its own, in which it would wait for ranks with other adapters."""


@dataclass(frozen=True)
class Membership:
    """A rank's membership of a new group.

    Attributes:
        store: Of this group.
        rank: Own rank in the group.
        size: Ranks of the group, at most 64.
        timeout: Timeout of each operation, and for the ranks to come.
        name: Names the group in messages and threads.
        global_ranks: The members' ranks in the world, by rank; empty for the world itself.
        pg_options: The caller's `pg_options`.
        adapter: The layer between torch and the group, in words.
    """

    store: Store
    rank: int
    size: int
    timeout: timedelta
    name: str
    global_ranks: Sequence[int] = ()
    pg_options: Any = None
    adapter: str = NATIVE
