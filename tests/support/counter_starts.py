"""Counters that do not start at 0, so that their upper bits have something to do.

A counter of 64 bits that starts at 0 moves its upper half after years. One that starts just below
a carry through nearly all its bits does so with its next events, and must count the same from
there.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self
from unittest.mock import patch

from afflux_hdl.contract.registers import (
    COUNTER_BASE,
    COUNTERS,
    NODE_COUNTER_BASE,
    NODE_COUNTERS,
)
from afflux_hdl.engine import counters
from afflux_hdl.lib import counter_bank
from afflux_hdl.node import control
from afflux_sim.rtl.verilated import VerilatedEngine
from afflux_sim.rtl.verilated_node import VerilatedNode
from tests.support.planting import names_with

__all__ = ["START", "CountsFromStart", "counters_that_start_late"]

START = 2**63 - 3
"""Bits 2 to 62 are set. The third event carries through all of them into bit 63."""

_OF_ENGINE = range(COUNTER_BASE, COUNTER_BASE + 8 * len(COUNTERS), 4)
_OF_NODE = range(NODE_COUNTER_BASE, NODE_COUNTER_BASE + 8 * len(NODE_COUNTERS), 4)


@contextmanager
def counters_that_start_late(start: int = START) -> Iterator[None]:
    """Engines and nodes elaborated meanwhile count from `start` on, after a reset too."""
    bank = names_with(counter_bank, "COUNTS_FROM = 0", f"COUNTS_FROM = {start}")["CounterBank"]
    with patch.object(counters, "CounterBank", bank), patch.object(control, "CounterBank", bank):
        yield


class CountsFromStart:
    """An engine or node whose counters start at :data:`START`, for checks that expect 0.

    A counter shows its distance from there. Reading an upper half belongs to the last lower half
    that was read, as in the engine.

    Args:
        engine: The engine, or node; everything but counters is its own.
    """

    def __init__(self, engine: VerilatedEngine | VerilatedNode) -> None:
        self._engine = engine
        self._borrow = 0

    def read(self, address: int) -> int:
        """Value of the register at byte `address`; of a counter, half of its distance."""
        value = self._engine.read(address)
        of_node = address in _OF_NODE and isinstance(self._engine, VerilatedNode)
        if address not in _OF_ENGINE and not of_node:
            return value
        if address & 4:
            return (value - (START >> 32) - self._borrow) % 2**32
        start = START % 2**32
        self._borrow = value < start
        return (value - start) % 2**32

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._engine.close()
