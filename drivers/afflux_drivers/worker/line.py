"""A worker's sockets. The C++ in `drivers/native/worker` drives them; names and texts are here."""

from collections.abc import Sequence

from afflux_drivers import _native
from afflux_drivers.addresses import authority, is_ipv6, lanes_for_mtu, resolve
from afflux_drivers.errors import AggregatorUnreachable, PacketTooLong
from afflux_drivers.sockets import MulticastGroup
from afflux_drivers.worker.loss import LossSwitch
from afflux_drivers.worker.session import Session

__all__ = ["Line", "UdpLoop"]


_USUAL_MTU = 1500


class Line(_native.Line):
    """A worker's way to one aggregator; `open` a dialogue with it.

    Args:
        host: Name or address of the aggregator.
        port: UDP port.
        session: The worker's part in a job run there.
        loss: Loses packets for tests, or None.
        group: Where results come, too; None if only to this worker.
        buffer_bytes: Size to request for socket buffers. The system may give less; then fewer
            packets are outstanding at a time.

    Attributes:
        peer: The aggregator's name and port, for messages.
        session: The same.
        overflows: Datagrams that came while the receive buffer was full.
        refused: Whether its host has reported that nobody listens on the port.
        too_long: Bytes of a packet that did not fit the path's MTU, or 0.

    Raises:
        AggregatorUnreachable: If the name has no address, the host no route to it, or the
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
        self.peer = authority(host, port)
        self.session = session
        try:
            if not 0 < port < 1 << 16:
                raise OSError(f"a UDP port must be 1 to 65535, not {port}")
            self._address = resolve(host, port)[0].host
            super().__init__(self._address, port, session, loss, buffer_bytes)
        except OSError as error:
            raise AggregatorUnreachable(
                f"cannot reach the aggregator at {self.peer}: {error}"
            ) from error
        if group is None:
            return
        if is_ipv6(self._address):
            self.close()
            raise AggregatorUnreachable(
                f"the aggregator at {self.peer} sends results to the multicast group {group} of "
                f"IPv4, which {self._address} is not: name its IPv4 address"
            )
        try:
            self.join_group(*group.words)
        except OSError as error:
            own, _ = self.own_address
            raise AggregatorUnreachable(
                f"cannot join the multicast group {group} of the aggregator at {self.peer} on the "
                f"interface of {own}: {error}"
            ) from error

    @property
    def if_refused(self) -> str:
        """The addition to a message if the aggregator's host has refused the port."""
        return " (its host refuses the port)" if self.refused else ""

    def packet_too_long(self) -> PacketTooLong:
        """Return the error that a packet of `too_long` bytes does not fit the path's MTU."""
        mtu = self.mtu
        try:
            remedy = f"at most {lanes_for_mtu(mtu, self._address)} lanes fit"
        except ValueError as error:
            remedy = str(error)
        return PacketTooLong(
            f"a packet of {self.too_long} bytes does not fit the MTU of {mtu} bytes on the path to "
            f"{self.peer}: {remedy}; set AFFLUX_LANES to that"
        )

    def packets_vanish(self, length: int) -> PacketTooLong:
        """Return the error that packets of so many bytes never arrive, while short ones do."""
        lanes = lanes_for_mtu(_USUAL_MTU, self._address)
        return PacketTooLong(
            f"packets of {length} bytes do not arrive at {self.peer}, while short ones do: "
            f"something on the path probably has a smaller MTU than its own end, {self.mtu} bytes, "
            f"and does not say so; set AFFLUX_LANES to {lanes}, for 1,500 bytes, or to less"
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
