"""A worker's sockets. The C++ in `drivers/native/worker` drives them; names and texts are here."""

import socket

from afflux_drivers import _native
from afflux_drivers.errors import AggregatorUnreachable, PacketTooLong
from afflux_drivers.sockets import MulticastGroup
from afflux_drivers.worker.loss import LossSwitch
from afflux_hdl.contract import wire

__all__ = ["UdpLoop"]


class UdpLoop(_native.UdpLoop):
    """Datagrams to and from one aggregator; `open` and `run` a dialogue with it.

    Args:
        host: Name or IPv4 address of the aggregator.
        port: UDP port.
        loss: Loses packets for tests, or None.
        group: Where results come, too; None if only to this worker.

    Attributes:
        peer: The aggregator's name and port, for messages.
        refused: Whether its host has reported that nobody listens on the port.
        too_long: Bytes of a packet that did not fit the path's MTU, or 0.

    Raises:
        AggregatorUnreachable: If the name has no IPv4 address, the host no route to it, or the
            interface that leads there no multicast.
    """

    def __init__(
        self, host: str, port: int, loss: LossSwitch | None, group: MulticastGroup | None = None
    ) -> None:
        self.peer = f"{host}:{port}"
        try:
            if not 0 < port < 1 << 16:
                raise OSError(f"a UDP port must be 1 to 65535, not {port}")
            address = int.from_bytes(socket.inet_aton(socket.gethostbyname(host)), "big")
            super().__init__(address, port, loss)
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

    def packet_too_long(self) -> PacketTooLong:
        """Return the error that a packet of `too_long` bytes does not fit the path's MTU."""
        mtu = self.mtu
        try:
            remedy = f"at most {wire.lanes_for_mtu(mtu)} lanes fit"
        except ValueError as error:
            remedy = str(error)
        return PacketTooLong(
            f"a packet of {self.too_long} bytes does not fit the MTU of {mtu} bytes on the path to "
            f"{self.peer}: {remedy}"
        )
