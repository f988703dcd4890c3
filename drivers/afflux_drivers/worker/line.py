"""A worker's sockets. The C++ in `drivers/native/worker` drives them; names and texts are here."""

import socket
from collections.abc import Sequence

from afflux_drivers import _native
from afflux_drivers.errors import AggregatorUnreachable, PacketTooLong
from afflux_drivers.sockets import MulticastGroup
from afflux_drivers.worker.loss import LossSwitch
from afflux_drivers.worker.session import Session
from afflux_hdl.contract import wire

__all__ = ["Line", "UdpLoop"]


_USUAL_LANES = wire.lanes_for_mtu(1500)


class Line(_native.Line):
    """A worker's way to one aggregator; `open` a dialogue with it.

    Args:
        host: Name or IPv4 address of the aggregator.
        port: UDP port.
        session: The worker's part in a job run there.
        loss: Loses packets for tests, or None.
        group: Where results come, too; None if only to this worker.
        buffer_bytes: What to ask for as socket buffers. The system may give less; then fewer
            packets are outstanding at a time.

    Attributes:
        peer: The aggregator's name and port, for messages.
        session: The same.
        overflows: Datagrams that came while the receive buffer was full.
        refused: Whether its host has reported that nobody listens on the port.
        too_long: Bytes of a packet that did not fit the path's MTU, or 0.

    Raises:
        AggregatorUnreachable: If the name has no IPv4 address, the host no route to it, or the
            interface that leads there no multicast.
    """

    def __init__(
        self,
        host: str,
        port: int,
        session: Session,
        loss: LossSwitch | None,
        group: MulticastGroup | None = None,
        buffer_bytes: int = _native.SOCKET_BUFFER_BYTES,
    ) -> None:
        self.peer = f"{host}:{port}"
        self.session = session
        try:
            if not 0 < port < 1 << 16:
                raise OSError(f"a UDP port must be 1 to 65535, not {port}")
            address = int.from_bytes(socket.inet_aton(socket.gethostbyname(host)), "big")
            super().__init__(address, port, session, loss, buffer_bytes)
        except OSError as error:
            raise AggregatorUnreachable(
                f"cannot reach the aggregator at {self.peer}: {error}"
            ) from error
        if group is None:
            return
        try:
            self.join_group(*group.words)
        except OSError as error:
            own = socket.inet_ntoa(self.own_address[0].to_bytes(4, "big"))
            raise AggregatorUnreachable(
                f"cannot join the multicast group {group} of the aggregator at {self.peer} on the "
                f"interface of {own}: {error}"
            ) from error

    @property
    def if_refused(self) -> str:
        """What to add to a message if the aggregator's host has refused the port."""
        return " (its host refuses the port)" if self.refused else ""

    def packet_too_long(self) -> PacketTooLong:
        """Return the error that a packet of `too_long` bytes does not fit the path's MTU."""
        mtu = self.mtu
        try:
            remedy = f"at most {wire.lanes_for_mtu(mtu)} lanes fit"
        except ValueError as error:
            remedy = str(error)
        return PacketTooLong(
            f"a packet of {self.too_long} bytes does not fit the MTU of {mtu} bytes on the path to "
            f"{self.peer}: {remedy}; set AFFLUX_LANES to that"
        )

    def packets_vanish(self, length: int) -> PacketTooLong:
        """Return the error that packets of so many bytes never arrive, while short ones do."""
        return PacketTooLong(
            f"packets of {length} bytes do not arrive at {self.peer}, while short ones do: "
            f"something on the path probably has a smaller MTU than its own end, {self.mtu} bytes, "
            f"and does not say so; set AFFLUX_LANES to {_USUAL_LANES}, for 1,500 bytes, or to less"
        )


class UdpLoop(_native.UdpLoop):
    """One thread that drives a worker's lines until their dialogues are over.

    Args:
        lines: To each aggregator.

    Attributes:
        lines: The same.
    """

    def __init__(self, lines: Sequence[Line]) -> None:
        self.lines = tuple(lines)
        super().__init__(self.lines)

    @property
    def served(self) -> Line:
        """The line that `run` was serving when it raised."""
        return self.lines[self.serving]
