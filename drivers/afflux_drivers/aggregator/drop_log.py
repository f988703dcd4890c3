"""Says in the log which frames an engine has dropped, and why, now and then."""

import logging

from afflux_drivers.aggregator.board import BoardFailed
from afflux_drivers.device.counters import read_counter
from afflux_drivers.registers import Registers
from afflux_hdl.contract import registers

__all__ = ["DropLog"]

_log = logging.getLogger("afflux")

_EVERY_S = 10.0
_DROPS = ("receive_overflow", "state_errors", "replies_dropped", "refusals_dropped", "data_errors")
"""Counters of what was lost, beside those whose names begin with `bad_`. Duplicates and the like
belong to every job over a network that loses packets."""


class DropLog:
    """Compares an engine's counters of drops with what they were. Not thread-safe.

    Args:
        engine: Read under the lock of whoever calls `look`.
    """

    def __init__(self, engine: Registers) -> None:
        self._engine = engine
        self._meanings = {
            each.name: each.meaning
            for each in registers.COUNTERS
            if each.name in _DROPS or each.name.startswith("bad_")
        }
        self._before: dict[str, int] | None = None
        self._look_at = 0.0

    def look(self, now: float) -> None:
        """Log what has been dropped since the last look, at most one line in 10 s.

        Args:
            now: On the monotonic clock, in seconds.
        """
        if now < self._look_at:
            return
        self._look_at = now + _EVERY_S
        try:
            found = {
                name: read_counter(self._engine, registers.counter_address(name))
                for name in self._meanings
            }
        except BoardFailed:
            # Others report that.
            return
        before, self._before = self._before, found
        if before is None:
            return
        # Less than before: the engine was reset.
        grown = {name: value - before[name] for name, value in found.items()}
        said = [f"{by} {name} ({self._meanings[name]})" for name, by in grown.items() if by > 0]
        if said:
            _log.warning("dropped in the last %g s: %s", _EVERY_S, "; ".join(said))
