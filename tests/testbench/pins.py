"""Performs a scenario's actions on the engine's pins, under cocotb."""

from collections.abc import Callable
from typing import Any

from afflux_hdl.contract.registers import address_of
from tests.scenarios.director import Action, Actions, Director, Play, ReadRegister
from tests.testbench.engine_testbench import EngineTestbench

__all__ = ["new_director", "perform_on_pins", "run_on_pins"]


async def run_on_pins(dut: Any, scenario: Callable[[Director], Actions[None]], **pace: Any) -> None:
    """Reset the engine and run a scenario to its end. `pace` is that of EngineTestbench."""
    testbench = EngineTestbench(dut, **pace)
    await testbench.start()
    director = await new_director(testbench)
    await perform_on_pins(testbench, scenario(director))


async def new_director(testbench: EngineTestbench) -> Director:
    """Return a director for what the engine was built for; the engine has its addresses."""
    registers = ("build_workers", "build_lanes", "build_jobs", "build_slots")
    built = [await testbench.registers.read(address_of(register)) for register in registers]
    workers, lanes, jobs, slots = built
    director = Director(workers=workers, lanes=lanes, jobs=jobs, slots=slots)
    await perform_on_pins(testbench, director.configure())
    return director


async def perform_on_pins(testbench: EngineTestbench, actions: Actions[Any]) -> Any:
    """Run a scenario to its end, and return its result."""
    answer: object = None
    while True:
        try:
            action = actions.send(answer)
        except StopIteration as end:
            return end.value
        answer = await _perform_one(testbench, action)


async def _perform_one(testbench: EngineTestbench, action: Action) -> object:
    if isinstance(action, Play):
        return await testbench.play(action.frames, action.mac_errors)
    if isinstance(action, ReadRegister):
        return await testbench.registers.read(action.address)
    await testbench.registers.write(action.address, action.value)
    return None
