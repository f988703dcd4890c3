"""The aggregator on a host: an engine behind a UDP socket, with its control channel beside it."""

import contextlib
import select
import socket
import threading

from afflux_drivers.aggregator.control_server import ControlServer
from afflux_drivers.aggregator.engine import Engine
from afflux_drivers.aggregator.jobs import JobTable, engine_limits
from afflux_drivers.aggregator.parent_ports import ParentPorts
from afflux_drivers.aggregator.requests import RequestHandler
from afflux_drivers.frames import FrameMaker, destination_of, mac_of, source_port_of
from afflux_drivers.sockets import MulticastGroup, datagrams_held, enlarge, send_to_groups
from afflux_hdl.contract import registers, wire

__all__ = ["AggregatorServer"]

_BATCH = 64
_BUFFER_BYTES = 16 << 20
_BIND_TRIES = 16
# One byte more than the longest packet, so that a datagram that is too long shows.
_RECEIVE_BYTES = wire.datagram_bytes(wire.LANES_MAX) + 1


class AggregatorServer:
    """Serves one engine on one IPv4 address: UDP and, on the same port number, TCP.

    The server decides nothing about packets: whatever comes goes to the engine as a frame, and what
    the engine sends goes out.

    Args:
        engine: The engine; the server is its only user, but does not close it.
        host: Name or IPv4 address to listen on. Answers leave with the address that routing picks,
            so on a host with several, name the one that workers use.
        port: Port; 0 takes a free one.
        group: Where the results of all jobs go, once for all workers, by the interface of `host`;
            None sends them to each worker.
        group_ttl: One more than the routers that these results may pass.

    Attributes:
        address: Host and port on which it listens.

    Raises:
        OSError: If the address cannot be bound, or cannot send to a group.
    """

    def __init__(
        self,
        engine: Engine,
        host: str = "127.0.0.1",
        port: int = 0,
        group: MulticastGroup | None = None,
        group_ttl: int = 1,
    ) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._inbox: list[bytes] = []
        self._inbox_changed = threading.Condition()
        self._udp, listener = _bind(host, port)
        self.address: tuple[str, int] = self._udp.getsockname()
        self._udp.setblocking(False)
        if group is not None:
            try:
                send_to_groups(self._udp, self.address[0], group_ttl)
            except OSError:
                self._udp.close()
                listener.close()
                raise
        buffer_bytes = enlarge(self._udp, _BUFFER_BYTES)
        self._wake_in, self._wake_out = socket.socketpair()
        own = int.from_bytes(socket.inet_aton(self.address[0]), "big")
        mac = int.from_bytes(mac_of(own), "big")
        for name, value in (
            ("local_mac_low", mac & 0xFFFF_FFFF),
            ("local_mac_high", mac >> 32),
            ("local_address", own),
            ("local_port", self.address[1]),
        ):
            engine.write(registers.address_of(name), value)
        self._maker = FrameMaker(own, self.address[1])
        self._epoll = select.epoll()
        self._epoll.register(self._udp, select.EPOLLIN)
        self._epoll.register(self._wake_in, select.EPOLLIN)
        self._parent_ports = ParentPorts(self.address[0], self.address[1], self._epoll)
        self._woken = False
        lanes = engine_limits(engine)["lanes"]
        capacity = datagrams_held(buffer_bytes, wire.datagram_bytes(lanes))
        table = JobTable(engine, capacity, group, self._parent_ports)
        handler = RequestHandler(engine, table, self.address[1], self._wake)
        self._control = ControlServer(listener, table, handler, self._lock)
        self._serving = False

    def serve_forever(self) -> None:
        """Serve until `stop` is called; then close the sockets and end all jobs.

        Raises:
            RuntimeError: If it was called before.
        """
        if self._serving:
            raise RuntimeError("serve_forever was called before: a server serves only once")
        self._serving = True
        control = threading.Thread(target=self._control.serve, name="afflux-control")
        receiver = threading.Thread(target=self._receive_packets, name="afflux-receive")
        control.start()
        receiver.start()
        try:
            self._serve_packets()
        finally:
            # Also when the engine has failed, so that nobody waits for its answers.
            self.stop()
            self._control.stop()
            control.join()
            receiver.join()
            self._close()

    def stop(self) -> None:
        """Make `serve_forever` return soon. Thread-safe.

        If it was never called, free the sockets; it cannot be called then.
        """
        self._stopping.set()
        if self._serving:
            with contextlib.suppress(OSError):
                self._wake_out.send(b"\0")
            with self._inbox_changed:
                self._inbox_changed.notify_all()
        else:
            self._serving = True
            self._control.close()
            self._close()

    def _wake(self) -> None:
        """Make the engine run for what a command has caused, without a frame."""
        with self._inbox_changed:
            self._woken = True
            self._inbox_changed.notify_all()

    def _close(self) -> None:
        self._parent_ports.close_all()
        self._epoll.close()
        for end in (self._udp, self._wake_in, self._wake_out):
            end.close()

    def _receive_packets(self) -> None:
        """Fill the inbox, also while the engine works: full batches suit a simulated one."""
        udp, frame = self._udp, self._maker.frame
        while not self._stopping.is_set():
            frames = self._parent_ports.receive(_BATCH)
            while len(frames) < _BATCH:
                try:
                    payload, (host, port) = udp.recvfrom(_RECEIVE_BYTES)
                except OSError:
                    # None left, or the kernel reports that an earlier answer found no listener.
                    break
                frames.append(frame(payload, host, port))
            if not frames:
                self._epoll.poll()
                continue
            with self._inbox_changed:
                self._inbox += frames
                self._inbox_changed.notify_all()
                # Further datagrams stay in the socket buffer, whose size bounds the credit.
                self._inbox_changed.wait_for(
                    lambda: len(self._inbox) < _BATCH or self._stopping.is_set()
                )

    def _serve_packets(self) -> None:
        udp, own_port = self._udp, self.address[1]
        answers_kept = False
        while True:
            with self._inbox_changed:
                if not answers_kept:
                    self._inbox_changed.wait_for(
                        lambda: self._inbox or self._woken or self._stopping.is_set()
                    )
                if self._stopping.is_set():
                    return
                self._woken = False
                frames, self._inbox = self._inbox, []
                self._inbox_changed.notify_all()
            with self._lock:
                # The last answers come out while the next frames, if any, go in.
                answers = self._engine.feed(frames) if frames else self._engine.play([])
            answers_kept = bool(frames)
            for answer in answers:
                if source_port_of(answer) != own_port:
                    self._parent_ports.send(answer)
                    continue
                # Full buffers and vanished peers lose answers, as a network does.
                with contextlib.suppress(OSError):
                    udp.sendto(memoryview(answer)[wire.AFFLUX_OFFSET :], destination_of(answer))


def _bind(host: str, port: int) -> tuple[socket.socket, socket.socket]:
    """Return a UDP socket and a listening TCP socket on the same port."""
    tries = _BIND_TRIES if port == 0 else 1
    while True:
        tries -= 1
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            if port:
                # Closed connections of an earlier server must not hold the port.
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            udp.bind(listener.getsockname())
            listener.listen()
        except OSError:
            listener.close()
            udp.close()
            # The number of a free TCP port may be in use for UDP.
            if tries == 0:
                raise
        except BaseException:
            listener.close()
            udp.close()
            raise
        else:
            return udp, listener
