"""Plants a bug in gateware by names: what drives a signal of a part is something else.

The last statement about a signal is the one that counts. So a bug is a statement that is added when
a part has been elaborated, about the members of the part and about what has a name on it. The text
of its source does not matter.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from amaranth.hdl import Module
from amaranth.lib.wiring import Component

from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.engine.verilog import generate
from afflux_sim.rtl.verilated import VerilatedEngine
from afflux_sim.rtl.verilated_model import SimulationError

__all__ = ["Override", "engine_verilog_with", "found_in_engine", "overriding"]

Override = Callable[[Module, Any], None]
"""Adds statements to a part that is elaborated: its module and the part."""


@contextmanager
def overriding(part: type[Component], bug: Override) -> Iterator[None]:
    """Have parts of this class elaborated with a bug."""
    elaborate: Callable[[Component, object], Module] = part.elaborate

    def with_bug(self: Component, platform: object) -> Module:
        m = elaborate(self, platform)
        bug(m, self)
        return m

    with patch.object(part, "elaborate", with_bug):
        yield


def engine_verilog_with(
    part: type[Component], bug: Override, bus_bits: int, build: Mapping[str, Any]
) -> str:
    """Return the Verilog of an engine with a bug in a part; the sizes are in `build`."""
    with overriding(part, bug):
        return generate(Parameters(bus_bits=bus_bits, **build))


@contextmanager
def found_in_engine(
    part: type[Component], bug: Override, bus_bits: int, build: Mapping[str, Any]
) -> Iterator[VerilatedEngine]:
    """Open a simulated engine with a bug, for a check that must fail."""
    verilog = engine_verilog_with(part, bug, bus_bits, build)
    with (
        VerilatedEngine.from_verilog(verilog, bus_bits) as engine,
        pytest.raises((AssertionError, SimulationError)) as caught,
    ):
        yield engine
    print(str(caught.value)[:300])
