"""The aggregator on a host: an engine behind a socket or on a board, and its control channel."""

import socket
import threading
from collections.abc import Sequence
from typing import Any

from afflux_drivers import _native
from afflux_drivers.addresses import authority, is_ipv6, named, resolve
from afflux_drivers.aggregator.access import Access
from afflux_drivers.aggregator.board import Board, BoardPath, interface_mac
from afflux_drivers.aggregator.control_server import BACKLOG, ControlServer
from afflux_drivers.aggregator.data_path import DataPath
from afflux_drivers.aggregator.drop_log import DropLog
from afflux_drivers.aggregator.engine import Engine, SoftEngine
from afflux_drivers.aggregator.frame_path import FramePath
from afflux_drivers.aggregator.job_journal import JobJournal
from afflux_drivers.aggregator.jobs import JobTable, engine_limits
from afflux_drivers.aggregator.requests import RequestHandler
from afflux_drivers.aggregator.socket_path import SocketPath
from afflux_drivers.frames import address_in_frames, mac_of
from afflux_drivers.sockets import MulticastGroup, enlarge, send_to_groups
from afflux_hdl.contract import registers, wire

__all__ = ["AggregatorServer"]

_BUFFER_BYTES = 16 << 20
_BIND_TRIES = 16
_ANY = "0.0.0.0"


class AggregatorServer:
    """Serves one engine on one address: UDP and, on the same port number, TCP.

    The server decides nothing about packets: it hands every datagram to the engine, and sends the
    engine's out. For the engine in software that is done in C++, with a thread for each of its
    shares; others get frames. The packets of a board do not pass here at all. A board that is apart
    has its own address, which the control channel states; any other one gets this host's.

    Jobs that a board already has go on if its journal has them and they are renewed; others are
    destroyed (`JobTable.adopt`).

    Args:
        engine: The engine; the server is its only user, but does not close it.
        host: Name or address to listen on; `::` is every address of both families, and only an
            engine in software listens on IPv6. Answers leave with the address that routing picks,
            so on a host with several, name the one that workers use. The node of a board that is
            not apart takes it, and the MAC address of the interface that has it, for its own.
        port: Port; 0 takes a free one.
        group: Where the results of all jobs go, once for all workers, by the interface of `host`;
            None sends them to each worker.
        group_ttl: One more than the routers that these results may pass.
        access: The clients that may create jobs, and how many; by default any program of this host
        may.
        may_move: Workers may join from another address while their job runs, as where addresses
            are translated on the way.
        journal: Of the jobs of a board, for its next controller; None: there is none.

    Attributes:
        address: Host and port on which it listens.
        engine_name: The engine's kind.
        url: For AFFLUX_AGGREGATOR.

    Raises:
        BoardFailed: If a board cannot be reached, or is apart and has no address.
        NoRoom: If a board does not let a job be destroyed that belongs to nobody.
        AccessUnset: If other hosts reach the address, and `access` does not say who may ask.
        OSError: If the address cannot be bound, cannot send to a group, or is of IPv6 and the
            engine is not in software.
    """

    def __init__(
        self,
        engine: Engine | Board,
        host: str = "127.0.0.1",
        port: int = 0,
        group: MulticastGroup | None = None,
        group_ttl: int = 1,
        access: Access | None = None,
        may_move: bool = False,
        journal: JobJournal | None = None,
    ) -> None:
        access = access or Access()
        access.check_host(host)
        self.engine_name = engine.name
        self._lock = threading.Lock()
        self._sockets, listener = _bind(host, port, _sockets_of(engine))
        self.address: tuple[str, int] = named(listener.getsockname())
        self.url = f"udp://{authority(*self.address)}"
        try:
            host, port = "", self.address[1]
            if isinstance(engine, Board) and engine.apart:
                host, port = engine.own_address()
            else:
                own = _number_of(self.address[0], engine, group)
            buffer_bytes = [enlarge(udp, _BUFFER_BYTES) for udp in self._sockets]
            if group is not None:
                for udp in self._sockets:
                    send_to_groups(udp, self.address[0], group_ttl)
            if not host:
                _give_addresses(engine, self.address, own)
            self._path = _data_path(engine, self._lock, self._sockets)
            try:
                table = self._table(engine, buffer_bytes, group, access, may_move, journal)
            except BaseException:
                self._path.close_all()
                raise
        except BaseException:
            self._close_sockets()
            listener.close()
            raise
        handler = RequestHandler(engine, table, port, self._path.wake, host)
        self._control = ControlServer(listener, table, handler, self._lock, access, DropLog(engine))
        self._serving = False

    def _table(
        self,
        engine: Engine | Board,
        buffer_bytes: Sequence[int],
        group: MulticastGroup | None,
        access: Access,
        may_move: bool,
        journal: JobJournal | None,
    ) -> JobTable:
        """Make the table of jobs; on a board with those that it has already."""
        if not isinstance(engine, Board):
            room_bytes = sum(map(_native.usable_bytes, buffer_bytes))
            return JobTable(engine, room_bytes, group, self._path, access.peer_share, may_move)
        # A parent's MAC address would have to be asked for, which nobody does yet.
        longest = wire.datagram_bytes(engine_limits(engine)["lanes"])
        room_bytes = engine.queue * _native.datagram_charge(longest)
        table = JobTable(engine, room_bytes, group, None, access.peer_share, may_move, journal)
        table.adopt()
        assert isinstance(self._path, BoardPath)
        self._path.look = table.forget_lost
        return table

    def serve_forever(self) -> None:
        """Serve until `stop` is called; then close the sockets and end all jobs.

        Raises:
            RuntimeError: If it was called before.
        """
        if self._serving:
            raise RuntimeError("serve_forever was called before: a server serves only once")
        self._serving = True
        control = threading.Thread(target=self._serve_control, name="afflux-control")
        control.start()
        try:
            self._path.serve()
        finally:
            # Also when the engine has failed, so that nobody waits for its answers.
            self._control.stop()
            control.join()
            self._close()

    def _serve_control(self) -> None:
        try:
            self._control.serve()
        finally:
            # Also when that has failed: packets alone are useless, and clients would wait.
            self._path.stop()

    def stop(self) -> None:
        """Make `serve_forever` return soon. Thread-safe.

        If it was never called, free the sockets; it cannot be called then.
        """
        if self._serving:
            self._path.stop()
        else:
            self._serving = True
            self._control.close()
            self._close()

    def traffic(self) -> dict[str, Any]:
        """Return what has passed the sockets, as `SocketPath.traffic`; empty where frames pass."""
        return self._path.traffic() if isinstance(self._path, SocketPath) else {}

    def _close(self) -> None:
        self._path.close_all()
        self._close_sockets()

    def _close_sockets(self) -> None:
        for udp in self._sockets:
            udp.close()


def _sockets_of(engine: Engine | Board) -> int:
    """Return how many UDP sockets an engine is served on."""
    if isinstance(engine, Board):
        return 0
    return engine.shares if isinstance(engine, SoftEngine) else 1


def _data_path(
    engine: Engine | Board, lock: threading.Lock, sockets: Sequence[socket.socket]
) -> DataPath:
    if isinstance(engine, Board):
        return BoardPath(engine, lock)
    if isinstance(engine, SoftEngine):
        return SocketPath(engine, sockets)
    return FramePath(engine, lock, sockets[0])


def _give_addresses(engine: Engine | Board, listening: tuple[str, int], own: int) -> None:
    """Make the address of this host the engine's.

    Args:
        engine: An engine behind sockets of this host, or a board in this host.
        listening: Address and port of the control channel.
        own: The same address as the engine has it.

    Raises:
        OSError: If no Ethernet interface of this host has the address.
    """
    on_board = isinstance(engine, Board)
    mac = interface_mac(listening[0]) if on_board else int.from_bytes(mac_of(own), "big")
    for name, value in (
        ("local_mac_low", mac & 0xFFFF_FFFF),
        ("local_mac_high", mac >> 32),
        ("local_address", own),
        ("local_port", listening[1]),
    ):
        engine.write(registers.address_of(name), value)


def _number_of(address: str, engine: Engine | Board, group: MulticastGroup | None) -> int:
    """Return an address as the engine's register has it: 0 for one of IPv6.

    Raises:
        OSError: If it is one of IPv6, and the engine or the group takes IPv4 only.
    """
    if not is_ipv6(address):
        if isinstance(engine, SoftEngine):
            return int.from_bytes(socket.inet_aton(address), "big")
        return address_in_frames(address)
    if not isinstance(engine, SoftEngine):
        raise OSError(f"the engine {engine.name} takes frames of IPv4 only, and {address} is IPv6")
    if group is not None:
        raise OSError(f"the multicast group {group} is one of IPv4, and {address} is IPv6")
    return 0


def _bind(host: str, port: int, shares: int) -> tuple[list[socket.socket], socket.socket]:
    """Return UDP sockets and a listening TCP socket, all on the same port."""
    tries = _BIND_TRIES if port == 0 else 1
    place = resolve(host or _ANY, port, socket.SOCK_STREAM)[0]
    while True:
        tries -= 1
        listener = socket.socket(place.family, socket.SOCK_STREAM)
        sockets: list[socket.socket] = []
        try:
            if port:
                # Closed connections of an earlier server must not hold the port.
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _take_both_families(listener)
            listener.bind(place.where)
            for _ in range(shares):
                udp = socket.socket(place.family, socket.SOCK_DGRAM)
                sockets.append(udp)
                _take_both_families(udp)
                if shares > 1:
                    # A second server is kept out by the TCP port, which it cannot share.
                    udp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                udp.bind(listener.getsockname())
            listener.listen(BACKLOG)
            # The sockets that it accepts have it too: a later server may come to this port by its
            # number.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        except BaseException as error:
            for end in (listener, *sockets):
                end.close()
            # The number of a free TCP port may be in use for UDP.
            if tries == 0 or not isinstance(error, OSError):
                raise
        else:
            return sockets, listener


def _take_both_families(made: socket.socket) -> None:
    """Have `::` take what comes by IPv4, too; other addresses are of one family anyway."""
    if made.family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
