"""The store that a process serves itself, and the handles by which others find it.

A handle says all that a process needs to reach another one which it has not met: no other store has
to live for that, nor to know of either.
"""

import contextlib
import functools
import json
import os
import secrets
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from torch._C._distributed_c10d import TCPStore

from afflux.group.settings.host_address import default_address, own_address
from afflux.group.store.bounded import Asker, StoreSilent
from afflux.group.store.introduction import host_identity

__all__ = ["Handle", "HandleError", "Unreachable", "connect", "own_handle", "own_store"]

_VERSION = 1
_LOOPBACK = "127.0.0.1"
_IDENTITY = "afflux/process"

_ONE_TRY_S = 3.0
"""A host that is there answers in milliseconds; one without a route, or gone, never."""

_JOIN_S = 5.0
"""torch asks a name service who its peer is, for its messages, and that may not answer."""

_REFUSED_S = 1.0
"""A process has a port for as long as it lives: one that refuses for so long has ended."""

_PAUSE_S = 0.05


class HandleError(ValueError):
    """A text is not a handle of Afflux."""


class Unreachable(RuntimeError):
    """The process behind a handle does not answer: it has ended, or no network leads to it."""


@dataclass(frozen=True)
class Handle:
    """A rank of groups that are to be: one for each communicator of a process.

    Attributes:
        identity: Drawn for the communicator; no other has it.
        process: Drawn for the process.
        host: Equal for processes of one network namespace.
        addresses: Of the host, the likeliest first.
        port: Of the process's store.
    """

    identity: str
    process: str
    host: str
    addresses: tuple[str, ...]
    port: int

    def __str__(self) -> str:
        fields = [_VERSION, self.identity, self.process, self.host, list(self.addresses), self.port]
        return "afflux" + json.dumps(fields, separators=(",", ":"))

    @property
    def where(self) -> str:
        """Where its process is, for messages."""
        return f"{self.addresses[0]}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> "Handle":
        """Read back what `str` returned.

        Raises:
            HandleError: It is another text, or of another version of Afflux.
        """
        try:
            version, identity, process, host, addresses, port = json.loads(
                text.removeprefix("afflux")
            )
            if text.startswith("afflux") and version == _VERSION and isinstance(addresses, list):
                made = cls(identity, process, host, tuple(addresses), port)
                texts = all(isinstance(each, str) for each in (identity, process, host, *addresses))
                if addresses and texts and isinstance(port, int) and 0 < port < 1 << 16:
                    return made
        except (AttributeError, RecursionError, ValueError, TypeError):
            pass
        raise HandleError(f"not a handle of this version of Afflux: {str(text)[:200]!r}")


class _Own:
    """What this process has: made when it is first needed, and kept until its end."""

    def __init__(self) -> None:
        self.stores: dict[str, TCPStore] = {}
        self.process = secrets.token_hex(8)
        self.addresses: tuple[str, ...] = ()


_own = _Own()


def own_store() -> TCPStore:
    """Return the store that this process serves."""
    found = _own.stores.get(_IDENTITY)
    if found is None:
        made = TCPStore(_LOOPBACK, 0, None, True, wait_for_workers=False)
        made.set(_IDENTITY, _own.process)
        # Of two threads that come here at once, both take the first one's.
        found = _own.stores.setdefault(_IDENTITY, made)
    return found


def own_handle(identity: str, interfaces: Sequence[str] | None, towards: str | None) -> Handle:
    """Return a handle of this process.

    Args:
        identity: Of the communicator.
        interfaces: Those of AFFLUX_INTERFACE; None if it is not set.
        towards: Name or address of another host, if one is known.

    Raises:
        OSError: There is no such interface.
    """
    found = [own_address(interfaces, towards)]
    if not interfaces:
        found.append(default_address())
    addresses = tuple(dict.fromkeys(found))
    port = own_store().port
    return Handle(identity, _own.process, host_identity(), addresses, port)


def connect(handle: Handle, asker: Asker, limit_s: float) -> TCPStore:
    """Connect to the store of the process that a handle names.

    Args:
        handle: The handle.
        asker: Asks in the place of this thread.
        limit_s: How long to try where nothing answers. A process that has ended takes a second.

    Raises:
        Unreachable: It has ended, or is behind none of its addresses.
    """
    if handle.process == _own.process:
        return own_store()
    deadline = time.monotonic() + limit_s
    # Others of this host reach it whatever its networks do.
    near = [_LOOPBACK] if handle.host == host_identity() else []
    refused_since, reasons = time.monotonic(), {}
    while True:
        for address in (*near, *handle.addresses):
            try:
                # torch's own attempt goes on for as long as it may, and writes to stderr.
                socket.create_connection((address, handle.port), _ONE_TRY_S).close()
                found = asker.ask(functools.partial(_join, address, handle), _JOIN_S, own_store())
                if found is not None:
                    return found
                reasons[address] = "another process has its port"
            except StoreSilent:
                reasons[address] = "it takes connections, and does not answer"
                refused_since = time.monotonic()
            except (OSError, RuntimeError) as error:
                reasons[address] = str(error).partition("\n")[0]
                if not isinstance(error, ConnectionRefusedError):
                    refused_since = time.monotonic()
        now = time.monotonic()
        if now > deadline or now - refused_since > _REFUSED_S:
            told = "; ".join(f"{address}: {why}" for address, why in reasons.items())
            raise Unreachable(f"port {handle.port} at {told}")
        time.sleep(_PAUSE_S)


def _join(address: str, handle: Handle) -> TCPStore | None:
    """Return the store there; None if it is another process's."""
    limit = timedelta(seconds=_JOIN_S)
    store = TCPStore(address, handle.port, None, False, limit, wait_for_workers=False)
    with contextlib.suppress(RuntimeError):
        if store.check([_IDENTITY]) and store.get(_IDENTITY).decode() == handle.process:
            return store
    return None


# The threads that serve stay in the parent.
os.register_at_fork(after_in_child=_own.__init__)  # type: ignore[misc]
