"""The data path of engines that take frames, such as a simulated one."""

import contextlib
import select
import socket
import threading

from afflux_drivers.addresses import is_ipv6
from afflux_drivers.aggregator.engine import Engine
from afflux_drivers.aggregator.parent_ports import ParentPorts
from afflux_drivers.control.tickets import ParentJob
from afflux_drivers.frames import (
    FrameMaker,
    address_in_frames,
    datagram_of,
    destination_of,
    source_port_of,
)
from afflux_hdl.contract import wire

__all__ = ["FramePath"]

_BATCH = 64
# One byte more than the longest packet, so that a datagram that is too long shows.
_RECEIVE_BYTES = wire.LONGEST_DATAGRAM_BYTES + 1


class FramePath:
    """Gives an engine each datagram as a frame, and sends its frames as datagrams. A `DataPath`.

    Args:
        engine: The engine.
        lock: Held while the engine is used.
        udp: The socket; not closed here.
    """

    def __init__(self, engine: Engine, lock: threading.Lock, udp: socket.socket) -> None:
        self._engine, self._lock, self._udp = engine, lock, udp
        address, self._port = udp.getsockname()
        udp.setblocking(False)
        self._stopping = threading.Event()
        self._inbox: list[bytes] = []
        self._inbox_changed = threading.Condition()
        self._wake_in, self._wake_out = socket.socketpair()
        self._maker = FrameMaker(address_in_frames(address), self._port)
        self._epoll = select.epoll()
        self._epoll.register(udp, select.EPOLLIN)
        self._epoll.register(self._wake_in, select.EPOLLIN)
        self._parent_ports = ParentPorts(address, self._port, self._epoll)
        self._woken = False

    def serve(self) -> None:
        """Receive in a thread of its own, let the engine work in this one."""
        receiver = threading.Thread(target=self._receive_packets, name="afflux-receive")
        receiver.start()
        try:
            self._serve_packets()
        finally:
            self.stop()
            receiver.join()

    def stop(self) -> None:
        """Make `serve` return soon. Thread-safe."""
        self._stopping.set()
        with contextlib.suppress(OSError):
            self._wake_out.send(b"\0")
        with self._inbox_changed:
            self._inbox_changed.notify_all()

    def wake(self) -> None:
        """Make the engine run for what a command has caused, without a frame. Thread-safe."""
        with self._inbox_changed:
            self._woken = True
            self._inbox_changed.notify_all()

    def open(self, job: int, parent: ParentJob) -> None:
        """Open the port on which the parent of a job answers. Thread-safe.

        Raises:
            PortTaken: It is not free; then a job of another number may have one.
            OSError: The parent is one of IPv6.
        """
        if is_ipv6(parent.address):
            raise OSError("an engine that takes frames knows addresses of IPv4 only")
        self._parent_ports.open(job)

    def close(self, job: int) -> None:
        """Close the port of a job, if it is open. Thread-safe."""
        self._parent_ports.close(job)

    def close_all(self) -> None:
        """Free everything, once `serve` has returned or if it was never called."""
        self._parent_ports.close_all()
        self._epoll.close()
        for end in (self._wake_in, self._wake_out):
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
        udp = self._udp
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
                if source_port_of(answer) != self._port:
                    self._parent_ports.send(answer)
                    continue
                datagram = datagram_of(answer)
                if datagram is None:
                    continue
                # Full buffers and vanished peers lose answers, as a network does.
                with contextlib.suppress(OSError):
                    udp.sendto(datagram, destination_of(answer))
