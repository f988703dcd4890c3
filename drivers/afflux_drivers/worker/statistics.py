"""Counts of what a worker has done so far."""

from dataclasses import dataclass

from afflux_hdl.contract import wire

__all__ = ["WorkerStatistics"]

_FRAME_OVERHEAD_BYTES = wire.AFFLUX_OFFSET


@dataclass
class WorkerStatistics:
    """Counts since the worker was made. Bytes are of UDP payload unless the name has "frame".

    Attributes:
        operations: Operations that ended well.
        packets_sent: Datagrams given to the network, repeated ones, probes and joins included.
        packets_received: Datagrams that came from the aggregator, ignored ones included.
        bytes_sent: Payload of the packets sent.
        bytes_received: Payload of the packets received.
        blocks_sent: Distinct blocks of contributions, fingerprints included; repeats not counted.
        rounds: Results taken.
        retransmissions: Contributions sent again.
        probes: Probes sent.
        ignored: Packets received that the worker does not accept: late, repeated or foreign.
        dropped_sent: Packets that the test switch lost on their way out; not in `packets_sent`.
        dropped_received: Packets that it lost on their way in; not in `packets_received`.
        round_trip_s: Smoothed round trip.
    """

    operations: int = 0
    packets_sent: int = 0
    packets_received: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    blocks_sent: int = 0
    rounds: int = 0
    retransmissions: int = 0
    probes: int = 0
    ignored: int = 0
    dropped_sent: int = 0
    dropped_received: int = 0
    round_trip_s: float = 0.0

    @property
    def frame_bytes_sent(self) -> int:
        """Bytes of whole Ethernet frames sent, without preamble and check sequence."""
        return self.bytes_sent + _FRAME_OVERHEAD_BYTES * self.packets_sent

    @property
    def frame_bytes_received(self) -> int:
        """Bytes of whole Ethernet frames received, without preamble and check sequence."""
        return self.bytes_received + _FRAME_OVERHEAD_BYTES * self.packets_received
