"""How long to wait for an answer: the estimator of RFC 6298, with Karn's rule."""

__all__ = ["RoundTrip"]

# RFC 6298 asks for one second, for the sake of TCP's delayed acknowledgements; there are none here.
# Less than some scheduling quanta above the round trip would repeat packets whose receiver merely
# had to wait for a processor.
GRANULARITY_S = 0.02
INITIAL_S = 0.2
_GAIN = 1 / 8
_VARIATION_GAIN = 1 / 4


class RoundTrip:
    """Estimates the time-out of one path.

    Samples must come from packets that were sent once (Karn): the answer to a repeated one does not
    say which it answers. So a time-out that proves too short must stay doubled until a sample
    comes, or every packet of a slow aggregator would be repeated for ever.

    Args:
        cap_s: The longest time-out.

    Attributes:
        timeout_s: How long to wait now.
        smoothed_s: Smoothed round trip, 0 before the first sample.
        cap_s: The longest time-out.
    """

    __slots__ = (
        "_doubled_at",
        "_sampled_from",
        "_variation_s",
        "cap_s",
        "smoothed_s",
        "timeout_s",
    )

    def __init__(self, cap_s: float = 1.0) -> None:
        self.cap_s = cap_s
        self.smoothed_s = 0.0
        self._variation_s = 0.0
        self.timeout_s = min(INITIAL_S, cap_s)
        # When the latest of the packets that gave samples was sent.
        self._sampled_from = float("-inf")
        self._doubled_at = float("-inf")

    def sample(self, sent_at: float, now: float) -> None:
        """Takes the round trip of a packet that was sent once, at `sent_at`, and answered now."""
        seconds = now - sent_at
        self._sampled_from = max(self._sampled_from, sent_at)
        if self.smoothed_s == 0.0:
            self.smoothed_s, self._variation_s = seconds, seconds / 2
        else:
            off = abs(self.smoothed_s - seconds)
            self._variation_s += _VARIATION_GAIN * (off - self._variation_s)
            self.smoothed_s += _GAIN * (seconds - self.smoothed_s)
        timeout = self.smoothed_s + max(GRANULARITY_S, 4 * self._variation_s)
        self.timeout_s = min(timeout, self.cap_s)

    def expired(self, sent_at: float, now: float) -> None:
        """Notes that the time-out of a packet that was sent at `sent_at` passed.

        It does not double if a later packet was answered, since then this one is not slow but lost;
        and it doubles only once for all packets of one flight.
        """
        if sent_at > self._sampled_from and sent_at >= self._doubled_at:
            self._doubled_at = now
            self.timeout_s = min(2 * self.timeout_s, self.cap_s)
