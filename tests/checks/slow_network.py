"""An engine whose network takes nothing, except while a job command waits for it."""

from afflux_hdl.contract.registers import address_of
from afflux_sim.rtl.stimulus import Stimulus
from afflux_sim.rtl.verilated import VerilatedEngine
from tests.scenarios.director import Action, Actions, Play, WriteRegister

__all__ = ["STUCK", "SlowNetwork"]

STUCK = Stimulus(ready_share=0.0, drain=False)
# Reads, of a cycle each, that find the engine busy with a command that waits for nothing.
LONGER_THAN_A_CREATE = 1000


class SlowNetwork:
    """Performs actions on an engine that may not send, but when a job command waits for it.

    Attributes:
        sent: The engine's frames.
    """

    def __init__(self, engine: VerilatedEngine) -> None:
        self._engine = engine
        self._busy_reads = 0
        self.sent: list[bytes] = []

    def perform(self, actions: Actions[None]) -> None:
        answer: object = None
        try:
            while True:
                answer = self._perform_one(actions.send(answer))
        except StopIteration:
            return

    def _perform_one(self, action: Action) -> object:
        engine = self._engine
        if isinstance(action, Play):
            self.sent += engine.play(action.frames, STUCK)
            return None
        if isinstance(action, WriteRegister):
            engine.write(action.address, action.value)
            return None
        value = engine.read(action.address)
        if action.address == address_of("job_busy"):
            self._busy_reads += value
            if self._busy_reads > LONGER_THAN_A_CREATE:
                self.sent += engine.run(10)
        return value
