"""The UDP sockets of a worker: connected to its aggregator, or its group; never blocking."""

import errno
import math
import select
import socket

from afflux_drivers import _native
from afflux_drivers.errors import AggregatorUnreachable, PacketTooLong
from afflux_drivers.packets import PacketBuffer
from afflux_drivers.sockets import MulticastGroup, enlarge, join_group
from afflux_drivers.worker.loss import LossSwitch
from afflux_drivers.worker.statistics import WorkerStatistics
from afflux_hdl.contract import wire

__all__ = ["UdpTransport"]

# Linux's numbers, which the socket module lacks before Python 3.14.
_IP_MTU = 14
_IP_MTU_DISCOVER = 10
_IP_PMTUDISC_DO = 2

_BUFFER_BYTES = 8 << 20


class UdpTransport:
    """Datagrams to and from one aggregator. The kernel drops those of other senders.

    Args:
        host: Name or IPv4 address.
        port: UDP port.
        statistics: Counts packets and bytes.
        loss: Loses packets for tests, or None.
        group: Where results come, too; None if only to this worker.

    Attributes:
        peer: IPv4 address and port, as text for messages.
        refused: Whether the host has said that nobody listens on the port.

    Raises:
        AggregatorUnreachable: If the name has no IPv4 address, the host no route to it, or the
            interface that leads there no multicast.
    """

    def __init__(
        self,
        host: str,
        port: int,
        statistics: WorkerStatistics,
        loss: LossSwitch | None,
        group: MulticastGroup | None = None,
    ) -> None:
        self._statistics = statistics
        self._loss = loss
        self.peer = f"{host}:{port}"
        self.refused = False
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            # A fragment would be refused, so better an error here than silence there.
            self._socket.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_DO)
            enlarge(self._socket, _BUFFER_BYTES)
            self._socket.setblocking(False)
            self._socket.connect((host, port))
        except (OSError, OverflowError) as error:
            self._socket.close()
            raise AggregatorUnreachable(
                f"no way to the aggregator at {self.peer}: {error}"
            ) from error
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._source: tuple[str, int] = self._socket.getpeername()
        self._group: socket.socket | None = None
        if group is not None:
            own = self._socket.getsockname()[0]
            try:
                self._group = join_group(group, own)
            except OSError as error:
                self._socket.close()
                raise AggregatorUnreachable(
                    f"no way into the multicast group {group} of the aggregator at {self.peer}, "
                    f"on the interface of {own}: {error}"
                ) from error
            enlarge(self._group, _BUFFER_BYTES)
            self._poll.register(self._group, select.POLLIN)

    def line(self) -> _native.Line:
        """The sockets for native code; not to be used after `close`."""
        host, port = self._source
        return _native.Line(
            self._socket.fileno(),
            -1 if self._group is None else self._group.fileno(),
            int.from_bytes(socket.inet_aton(host), "big"),
            port,
            self._loss,
        )

    def send(self, datagram: bytes) -> None:
        """Sends, or loses it as a network may: full buffers count as loss.

        Raises:
            PacketTooLong: If it does not fit the path's MTU.
        """
        if self._loss is not None and self._loss.loses_outward():
            self._statistics.dropped_sent += 1
            return
        try:
            self._socket.send(datagram)
        except ConnectionRefusedError:
            # About an earlier datagram; this one has not been sent.
            self.refused = True
            return
        except OSError as error:
            if error.errno == errno.EMSGSIZE:
                raise self.too_long(len(datagram)) from None
            # No buffers, or no route for now: the timers see to it.
            return
        self._statistics.packets_sent += 1
        self._statistics.bytes_sent += len(datagram)

    def receive(self, packet: PacketBuffer) -> int:
        """Takes the next datagram without waiting. Returns its bytes, or -1 if there is none.

        Anyone may send to a group: what does not come from the aggregator is 0 bytes long.
        """
        if self._group is not None:
            length = self._receive_of_group(self._group, packet)
            if length >= 0:
                return length
        while True:
            try:
                length = self._socket.recv_into(packet.datagram)
            except BlockingIOError:
                return -1
            except ConnectionRefusedError:
                self.refused = True
                continue
            except OSError:
                return -1
            if self._arrives(length):
                return length

    def _receive_of_group(self, group: socket.socket, packet: PacketBuffer) -> int:
        while True:
            try:
                length, source = group.recvfrom_into(packet.datagram)
            except OSError:
                return -1
            if source != self._source:
                return 0
            if self._arrives(length):
                return length

    def _arrives(self, length: int) -> bool:
        """Whether a datagram that has come is not to be lost; counts it."""
        if self._loss is not None and self._loss.loses_inward():
            self._statistics.dropped_received += 1
            return False
        self._statistics.packets_received += 1
        self._statistics.bytes_received += length
        return True

    def wait(self, seconds: float) -> None:
        """Returns when a datagram has come, or after so many seconds."""
        if seconds > 0:
            self._poll.poll(math.ceil(1000 * seconds))

    def close(self) -> None:
        """Closes the sockets. May be called more than once."""
        self._socket.close()
        if self._group is not None:
            self._group.close()

    def too_long(self, length: int) -> PacketTooLong:
        """The error that a packet of `length` bytes does not fit the path's MTU."""
        mtu = self._socket.getsockopt(socket.IPPROTO_IP, _IP_MTU)
        try:
            remedy = f"at most {wire.lanes_for_mtu(mtu)} lanes fit"
        except ValueError as error:
            remedy = str(error)
        return PacketTooLong(
            f"a packet of {length} bytes does not fit the MTU of {mtu} bytes on the path to "
            f"{self.peer}: {remedy}"
        )
