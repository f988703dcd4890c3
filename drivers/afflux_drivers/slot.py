"""One slot of a worker: its outstanding packet, and when to ask again (protocol, section 6)."""

from afflux_drivers.packets import PacketBuffer

__all__ = ["Slot"]


class Slot:
    """A slot for the life of a job run.

    Args:
        number: Slot number within the job's range.
        first_round: r0.
        lanes: F.

    Attributes:
        number: Slot number.
        round: Round of the outstanding packet, or of the next one.
        packet: The contribution to `round`, kept as it was sent until its result is there.
        length: Bytes of that contribution.
        outstanding: Whether a result is awaited.
        opening: Whether `round` opens an operation.
        sent_at: When the contribution was sent first, in seconds.
        deadline: When to ask again.
        wait_s: Time-out of the latest transmission.
        tries: Times that the timer has run out in this round.
        repeated: Whether the contribution was sent again, so that its round trip is no sample.
        probed_at: When the latest probe was sent.
        probes_open: Probes sent since the last answer.
        missing: Bitmap of the workers that the latest MISSING named; 0 if none did.
        waits_above: Whether it named none, as the aggregator waits for its parent.
    """

    __slots__ = (
        "deadline",
        "length",
        "missing",
        "number",
        "opening",
        "outstanding",
        "packet",
        "probed_at",
        "probes_open",
        "repeated",
        "round",
        "sent_at",
        "tries",
        "wait_s",
        "waits_above",
    )

    def __init__(self, number: int, first_round: int, lanes: int) -> None:
        self.number = number
        self.round = first_round
        self.packet = PacketBuffer(lanes)
        self.length = 0
        self.outstanding = False
        self.opening = False
        self.sent_at = self.deadline = self.wait_s = self.probed_at = 0.0
        self.tries = self.probes_open = self.missing = 0
        self.repeated = self.waits_above = False

    def sent(self, length: int, opening: bool, now: float, wait_s: float) -> memoryview:
        """Notes that the packet, filled for `round`, goes out now; returns its datagram."""
        self.length = length
        self.opening = opening
        self.outstanding = True
        self.sent_at = now
        self.wait_s = wait_s
        self.deadline = now + wait_s
        self.tries = self.probes_open = self.missing = 0
        self.repeated = self.waits_above = False
        return self.packet.datagram[:length]

    def again(self) -> memoryview:
        """The outstanding contribution as it was."""
        self.repeated = True
        return self.packet.datagram[: self.length]

    def answered(self, now: float, wait_s: float) -> None:
        """Sets the timer after a probe was answered without a result."""
        self.probes_open = 0
        self.wait_s = wait_s
        self.deadline = now + wait_s

    def expired(self, now: float, cap_s: float) -> bool:
        """Moves the timer on after it ran out. Returns whether to probe rather than to repeat."""
        self.tries += 1
        self.wait_s = min(2 * self.wait_s, cap_s)
        self.deadline = now + self.wait_s
        if self.tries == 1:
            return False
        self.probed_at = now
        self.probes_open += 1
        return True
