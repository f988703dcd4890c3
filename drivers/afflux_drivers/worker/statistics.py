"""Counts of what a worker has done so far."""

from collections.abc import Iterable
from dataclasses import dataclass, fields

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
        system_calls: To send, to receive and to wait.
        round_trip_s: Smoothed round trip, the longest if there are several aggregators.
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
    system_calls: int = 0
    round_trip_s: float = 0.0

    @classmethod
    def of(cls, operations: int, lines: "Iterable[WorkerStatistics]") -> "WorkerStatistics":
        """Return the counts of a worker by those of its lines: sums, and the longest round trip."""
        total = cls(operations)
        for line in lines:
            for field in fields(cls):
                if field.type is int:
                    value = getattr(total, field.name) + getattr(line, field.name)
                    setattr(total, field.name, value)
            total.round_trip_s = max(total.round_trip_s, line.round_trip_s)
        return total

    @property
    def frame_bytes_sent(self) -> int:
        """Bytes of whole Ethernet frames sent, without preamble and check sequence."""
        return self.bytes_sent + _FRAME_OVERHEAD_BYTES * self.packets_sent

    @property
    def frame_bytes_received(self) -> int:
        """Bytes of whole Ethernet frames received, without preamble and check sequence."""
        return self.bytes_received + _FRAME_OVERHEAD_BYTES * self.packets_received
