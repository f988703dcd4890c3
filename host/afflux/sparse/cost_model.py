"""How long each form of a sparse sum takes: its bytes over the measured rate, and its steps.

    seconds = steps * latency + (bytes through a port) / rate

The traffic of a rank's port follows from how the bytes travel. With R bytes of results, which every
rank receives, and O bytes of offers of all N ranks together:

    aggregator       max(R, O / N)                its port carries what it must; so does a rank's
    streams          (1 - 1/N) * (R + O / N)      a rank receives results, and offers for its share
    memory           R + O / N                    each rank writes its offers and reads results
    Gloo, sum        2 * (1 - 1/N) * R            a ring
    Gloo, gathering  (1 - 1/N) * R

These are the counterparts of Zen's T_bp and T_hc (Z. Wang et al., OSDI 2025), which count 8 bytes
for each element of a COO tensor through a ring of parameter servers, or up a tree.

Latency and rate are measured at each rank, in the steps of earlier sparse sums, and all ranks tell
each other theirs with the counts of rows; all take the medians. So they come to the same choice.
"""

from collections.abc import Sequence
from statistics import median_low

from afflux.sparse.index_forms import Form, StepTraffic
from afflux.sparse.sums import Way

__all__ = ["TOLD", "Costs", "carried"]

TOLD = 2
"""Integers that each rank tells the others, neither negative nor of more than 31 bits."""

_SMALL_BYTES = 16 << 10
_LARGE_BYTES = 64 << 10
"""Steps below the one measure the latency, above the other the rate."""

_NEW_SHARE = 0.5
"""Of a new measurement in what is known."""

_MOST = (1 << 31) - 1


def carried(step: StepTraffic, ranks: int) -> float:
    """Return the bytes of a step through a rank's port, in the direction that has more."""
    if step.way is Way.AGGREGATOR:
        return max(step.results, step.offers / ranks)
    if step.way is Way.MEMORY:
        return step.results + step.offers / ranks
    others = 1.0 - 1.0 / ranks
    if step.way is Way.STREAMS:
        return others * (step.results + step.offers / ranks)
    return others * step.results * (1 if step.gathered else 2)


class Costs:
    """The cost of a group's steps, as far as it is known.

    Args:
        ranks: How many there are.

    Attributes:
        latency_us: Of a step; 0 while nothing is known. The same at all ranks.
        rate: Bytes in a millisecond; 0 while nothing is known. The same at all ranks.
    """

    def __init__(self, ranks: int) -> None:
        self.latency_us = 0
        self.rate = 0
        self._ranks = ranks
        self._own_latency_us = 0.0
        self._own_rate = 0.0

    def told(self) -> tuple[int, int]:
        """Return what the other ranks are to know of this one's measurements."""
        return min(round(self._own_latency_us), _MOST), min(round(self._own_rate), _MOST)

    def hear(self, told: Sequence[Sequence[int]]) -> None:
        """Take what all ranks have told, in the order of the ranks."""
        latencies, rates = zip(*told, strict=True)
        self.latency_us, self.rate = median_low(latencies), median_low(rates)

    def note(self, size: float, took_s: float) -> None:
        """Note that a step with so many bytes through the port has taken so long here."""
        if size < _SMALL_BYTES:
            self._own_latency_us = _mixed(self._own_latency_us, took_s * 1e6)
        elif size >= _LARGE_BYTES:
            moved_s = max(took_s - self._own_latency_us / 1e6, took_s / 2)
            self._own_rate = _mixed(self._own_rate, size / max(moved_s, 1e-9) / 1e3)

    def bytes(self, form: Form) -> int:
        """Return the bytes of all steps through a rank's port.

        They are whole, and so are the microseconds by which forms are compared: ranks whose floats
        differ in the last bit, as those of unlike hosts may, are to choose the same form.
        """
        return sum(round(carried(step, self._ranks)) for step in form.steps)

    def milliseconds(self, form: Form) -> float | None:
        """Return how long a form would take; None while nothing is known."""
        if not self.rate or not self.latency_us:
            return None
        return len(form.steps) * self.latency_us / 1e3 + self.bytes(form) / self.rate

    def least(self, forms: Sequence[Form]) -> Form:
        """Return the form that takes least time or, while that is not known, has least bytes."""
        return min(forms, key=self._cost)

    def _cost(self, form: Form) -> int:
        expected_ms = self.milliseconds(form)
        return self.bytes(form) if expected_ms is None else round(expected_ms * 1e3)


def _mixed(known: float, new: float) -> float:
    return new if not known else known + _NEW_SHARE * (new - known)
