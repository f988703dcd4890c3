"""The aggregator of streams as a server: groups form at its port and are summed, each by threads.

A group is known by its name alone, which each of its connections claims. It is complete when all of
its ranks have come with all of their connections, and over when they have ended; nothing of it is
left then.
"""

import asyncio
import logging
import socket
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from afflux_drivers import _native
from afflux_drivers.addresses import authority
from afflux_drivers.aggregator.access import Access
from afflux_drivers.aggregator.peers import may_take
from afflux_drivers.streams.accepting import has_ended
from afflux_drivers.streams.handshake import (
    AGGREGATED_RANKS,
    Claim,
    Verdict,
    aggregator_key,
    answer,
    examine,
)
from afflux_drivers.streams.strangers import Listener, Stranger, Strangers
from afflux_hdl.contract import wire

__all__ = ["StreamsServer"]

_log = logging.getLogger("afflux")

_CONNECTIONS = 2048
_FORMING_S = 120.0
_LOOK_S = 0.1


@dataclass(eq=False)
class _Meeting:
    """A group that forms, or is summed.

    Attributes:
        ranks, links: Its ranks, and the connections of each.
        since: When the last connection came, on the monotonic clock.
        sockets: Those that have come, by rank and link.
        told: Those of them whose ranks know that they have come.
        claims: One of each rank.
        hosts: The peers whose connections these are, by `peer_name`.
        aggregator: Sums, once the group is complete.
    """

    ranks: int
    links: int
    since: float = 0.0
    sockets: dict[tuple[int, int], socket.socket] = field(default_factory=dict)
    told: set[tuple[int, int]] = field(default_factory=set)
    claims: dict[int, Claim] = field(default_factory=dict)
    hosts: Counter[str] = field(default_factory=Counter)
    aggregator: _native.StreamsAggregator | None = None

    @property
    def complete(self) -> bool:
        """Whether all have come, and none has gone."""
        full = len(self.told) == self.ranks * self.links
        return full and not any(map(has_ended, self.sockets.values()))


class StreamsServer:
    """Serves groups at one TCP port.

    Args:
        host: Name or address to listen on.
        port: Port; 0 takes a free one.
        access: The clients that may come, and the most connections of one peer.

    Attributes:
        address: Host and port on which it listens.
        engine_name: "streams".
        url: For AFFLUX_AGGREGATOR.

    Raises:
        AccessUnset: Other hosts reach the address, and `access` does not say who may come.
        OSError: The address cannot be bound.
    """

    engine_name = "streams"

    def __init__(
        self, host: str = "127.0.0.1", port: int = 0, access: Access | None = None
    ) -> None:
        self._access = access or Access()
        self._access.check_host(host)
        self._secret = aggregator_key(self._access.secret)
        self._listener = Listener(host, port)
        self.address: tuple[str, int] = self._listener.endpoint
        self.url = f"streams://{authority(*self.address)}"
        self._meetings: dict[tuple[bytes, int, int], _Meeting] = {}
        self._threads: set[threading.Thread] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = threading.Event()

    def serve_forever(self) -> None:
        """Serve until `stop` is called; then end all groups."""
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            self._loop = runner.get_loop()
            try:
                runner.run(self._serve())
            finally:
                self._listener.close()

    def stop(self) -> None:
        """Make `serve_forever` return soon. Thread-safe."""
        self._stopping.set()
        if self._loop is None:
            self._listener.close()

    async def _serve(self) -> None:
        strangers = Strangers(self._listener.tcp, self._welcome)
        strangers.listen()
        told = ""
        try:
            while not self._stopping.is_set():
                await asyncio.sleep(_LOOK_S)
                self._drop_late()
                if strangers.turned_away != told:
                    told = strangers.turned_away
                    _log.warning("%s", told)
        finally:
            await strangers.end()
            for meeting in self._meetings.values():
                if meeting.aggregator is not None:
                    meeting.aggregator.stop()
                _close(meeting)
            for thread in list(self._threads):
                await asyncio.to_thread(thread.join)

    async def _welcome(self, stranger: Stranger) -> str:
        """Return why a connection belongs to no group here; empty if it does."""
        claim, codes = await examine(stranger.tcp, self._secret)
        verdict = self._judge(claim, stranger.host)
        key = (claim.group, claim.ranks, claim.links)
        place = (claim.connecting, claim.link)
        if verdict != Verdict.ACCEPTED:
            await answer(stranger.tcp, codes, verdict)
            return f"rank {claim.number} at {stranger.where}: {verdict.reason}"
        meeting = self._meetings.setdefault(key, _Meeting(claim.ranks, claim.links))
        former = meeting.sockets.get(place)
        if former is not None:
            former.close()
            meeting.told.discard(place)
        meeting.sockets[place] = stranger.tcp
        meeting.claims[claim.connecting] = claim
        meeting.hosts[stranger.host] += former is None
        meeting.since = time.monotonic()
        try:
            await answer(stranger.tcp, codes, verdict)
        except BaseException:
            # Its rank comes again; until then the place is taken by a connection that has ended.
            stranger.tcp.shutdown(socket.SHUT_RDWR)
            return f"rank {claim.number} at {stranger.where}: it has gone"
        meeting.told.add(place)
        if meeting.complete:
            self._begin(key, meeting)
        return ""

    def _judge(self, claim: Claim, host: str) -> Verdict:
        valid = 0 < claim.ranks <= AGGREGATED_RANKS and 0 < claim.links <= _CONNECTIONS
        there = claim.connecting < claim.ranks == claim.accepting and claim.link < claim.links
        if not valid or not there or not 0 < claim.sources <= wire.WORKERS_MAX:
            return Verdict.OTHER_PLACE
        meeting = self._meetings.get((claim.group, claim.ranks, claim.links))
        if meeting is not None:
            taken = meeting.sockets.get((claim.connecting, claim.link))
            if meeting.aggregator is not None or (taken is not None and not has_ended(taken)):
                return Verdict.OCCUPIED
            if taken is not None:
                return Verdict.ACCEPTED
        if not self._has_room(host):
            # Those whose group has not formed may have gone since the last look.
            self._drop_late()
        return Verdict.ACCEPTED if self._has_room(host) else Verdict.NO_ROOM

    def _has_room(self, host: str) -> bool:
        has = sum(each.hosts[host] for each in self._meetings.values())
        free = _CONNECTIONS - sum(each.hosts.total() for each in self._meetings.values())
        return may_take(has, free, self._access.peer_share) > 0

    def _begin(self, key: tuple[bytes, int, int], meeting: _Meeting) -> None:
        """Sum for a group from now on."""
        ranks = range(meeting.ranks)
        sources = [meeting.claims[rank].sources for rank in ranks]
        names = [meeting.claims[rank].number for rank in ranks]
        sockets = [
            [meeting.sockets[rank, link].detach() for rank in ranks]
            for link in range(meeting.links)
        ]
        meeting.sockets.clear()
        meeting.aggregator = _native.StreamsAggregator(sockets, sources, names)
        _log.info("group %s begins: %d ranks, %d streams each", key[0].hex()[:8], *key[1:])
        loop = asyncio.get_running_loop()

        def run() -> None:
            assert meeting.aggregator is not None
            failure = meeting.aggregator.run()
            about = f"{meeting.aggregator.operations} sums, {meeting.aggregator.bytes} bytes"
            _log.log(
                logging.WARNING if failure else logging.INFO,
                "group %s is over: %s%s", key[0].hex()[:8], about, failure and f"; {failure}",
            )  # fmt: skip
            loop.call_soon_threadsafe(self._forget, key, threading.current_thread())

        thread = threading.Thread(target=run, name="afflux-streams")
        self._threads.add(thread)
        thread.start()

    def _forget(self, key: tuple[bytes, int, int], thread: threading.Thread) -> None:
        # Closes its sockets.
        self._meetings.pop(key, None)
        self._threads.discard(thread)

    def _drop_late(self) -> None:
        """End meetings that all have left, or to which nobody has come for long."""
        latest = time.monotonic() - _FORMING_S
        for key, meeting in list(self._meetings.items()):
            if meeting.aggregator is not None:
                continue
            if meeting.since < latest or all(map(has_ended, meeting.sockets.values())):
                _log.warning(
                    "group %s has not formed: %d of %d connections came",
                    key[0].hex()[:8], len(meeting.sockets), meeting.ranks * meeting.links,
                )  # fmt: skip
                _close(meeting)
                del self._meetings[key]


def _close(meeting: _Meeting) -> None:
    for tcp in meeting.sockets.values():
        tcp.close()
