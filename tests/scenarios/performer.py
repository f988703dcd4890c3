"""Performs a scenario's actions on the in-process simulation."""

from collections.abc import Iterator
from itertools import count
from typing import TypeVar

from afflux_hdl.contract.registers import WriteRefused
from afflux_sim.rtl.stimulus import BACK_TO_BACK, Stimulus
from tests.scenarios.director import Action, Actions, Play, ReadRegister
from tests.scenarios.golden_device import Engine

__all__ = ["paces", "perform"]

T = TypeVar("T")


def paces(ready_share: float, gap_share: float, seed: int) -> Iterator[Stimulus]:
    """One pace with a new seed for every play."""
    for number in count():
        yield Stimulus(ready_share=ready_share, gap_share=gap_share, seed=seed + number)


def perform(engine: Engine, actions: Actions[T], pace: Iterator[Stimulus] | None = None) -> T:
    """Run a scenario to its end, and return its result."""
    answer: object = None
    try:
        while True:
            answer = _perform_one(engine, actions.send(answer), pace)
    except StopIteration as end:
        result: T = end.value
        return result


def _perform_one(engine: Engine, action: Action, pace: Iterator[Stimulus] | None) -> object:
    if isinstance(action, Play):
        stimulus = next(pace) if pace else BACK_TO_BACK
        return engine.play(action.frames, stimulus, action.mac_errors)
    if isinstance(action, ReadRegister):
        return engine.read(action.address)
    try:
        engine.write(action.address, action.value)
        refused = False
    except WriteRefused:
        refused = True
    assert refused == action.refused, (
        f"write of {action.value:#x} to {action.address:#x}: {refused}"
    )
    return None
