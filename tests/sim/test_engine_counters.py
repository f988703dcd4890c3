"""All 64 bits of the counters: engines that start counting just below a carry through them."""

from typing import cast

import pytest

from afflux_hdl.contract.registers import COUNTERS, counter_address
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.engine.verilog import generate
from afflux_sim.rtl.verilated import VerilatedEngine
from tests.checks.engine_checks import BUILDS, check_any_frame, check_floods
from tests.support.counter_starts import START, CountsFromStart, counters_that_start_late


def open_late(bus_bits: int) -> VerilatedEngine:
    with counters_that_start_late():
        verilog = generate(Parameters(bus_bits=bus_bits, **BUILDS[bus_bits]))
    return VerilatedEngine.from_verilog(verilog, bus_bits)


def shown(engine: VerilatedEngine) -> list[int]:
    """All counters, as the registers show them."""
    addresses = [counter_address(counter.name) for counter in COUNTERS]
    return [engine.read(address) | engine.read(address + 4) << 32 for address in addresses]


@pytest.mark.slow
@pytest.mark.parametrize("bus_bits", [32, pytest.param(512, marks=pytest.mark.long)])
def test_counters_carry_through_all_their_bits(bus_bits: int) -> None:
    with open_late(bus_bits) as engine:
        assert shown(engine) == [START] * len(COUNTERS)
        counters = check_any_frame(
            cast(VerilatedEngine, CountsFromStart(engine)), BUILDS[bus_bits], seed=3
        )
        carried = [count >= 2**63 for count in shown(engine)]
        assert carried == [counters[counter.name] >= 2**63 - START for counter in COUNTERS]
        assert sum(carried) > len(COUNTERS) // 2
        engine.reset()
        assert shown(engine) == [START] * len(COUNTERS)
        check_floods(cast(VerilatedEngine, CountsFromStart(engine)), BUILDS[bus_bits], 0.5)
