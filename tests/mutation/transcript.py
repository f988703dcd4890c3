"""What a check has asked of an engine and what it got, to be asked of mutants without the check.

A check spends nearly all its time on building frames and on the golden model. A mutant that answers
all that a passing check has asked as the engine has answered it passes that check too; so the check
itself has to run on a mutant only from its first other answer on, to say whether that is wrong: the
order of frames in a flood, for one, is the engine's to choose.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from afflux_hdl.contract.registers import address_of
from afflux_sim.rtl.stimulus import BACK_TO_BACK, Stimulus
from afflux_sim.rtl.verilated import VerilatedEngine

__all__ = ["Bounded", "Check", "Recorder", "Transcript"]

Check = Callable[[VerilatedEngine], object]


@dataclass(frozen=True)
class _Call:
    method: str
    arguments: tuple[Any, ...]
    answer: object
    cycles: int


@dataclass
class Transcript:
    """The calls of one check, in order.

    Attributes:
        longest: Cycles of the longest call.
        calls: The calls.
    """

    longest: int = 0
    calls: list[_Call] = field(default_factory=list)

    def first_difference(self, engine: VerilatedEngine) -> str | None:
        """Ask an engine the same; return where it answers otherwise, `None` if nowhere.

        Raises:
            SimulationError: If a call takes ten times as long as it did, or breaks a rule.
        """
        busy = address_of("job_busy")
        for number, call in enumerate(self.calls):
            arguments = call.arguments
            if call.method == "play":
                frames, stimulus, errors = arguments
                limit = 10 * call.cycles + 2000
                arguments = (frames, replace(stimulus, max_cycles=limit), errors)
            if getattr(engine, call.method)(*arguments) != call.answer:
                busy_read = call.method == "read" and arguments == (busy,)
                return f"call {number}, {'job_busy' if busy_read else call.method}"
        return None


class Recorder:
    """An engine that writes down what it is asked and what it answers.

    Args:
        engine: The engine itself.
    """

    def __init__(self, engine: VerilatedEngine) -> None:
        self._engine = engine
        self.transcript = Transcript()

    def play(
        self,
        frames: Sequence[bytes],
        stimulus: Stimulus = BACK_TO_BACK,
        mac_errors: Sequence[bool] | None = None,
    ) -> list[bytes]:
        return self._call("play", list(frames), stimulus, mac_errors)

    def run(self, cycles: int) -> list[bytes]:
        return self._call("run", cycles)

    def read(self, address: int) -> int:
        return self._call("read", address)

    def write(self, address: int, value: int) -> None:
        self._call("write", address, value)

    def reset(self) -> None:
        self._call("reset")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def _call(self, method: str, *arguments: Any) -> Any:
        before = self._engine.cycles
        answer = getattr(self._engine, method)(*arguments)
        cycles = self._engine.cycles - before
        # Checks may add to the list that they get.
        kept = list(answer) if isinstance(answer, list) else answer
        self.transcript.calls.append(_Call(method, arguments, kept, cycles))
        self.transcript.longest = max(self.transcript.longest, cycles)
        return answer


class Bounded:
    """An engine that is given up on after `limit` cycles of a play, not after millions.

    Args:
        engine: The engine itself.
        limit: Cycles.
    """

    def __init__(self, engine: VerilatedEngine, limit: int) -> None:
        self._engine = engine
        self._limit = limit

    def play(
        self,
        frames: Sequence[bytes],
        stimulus: Stimulus = BACK_TO_BACK,
        mac_errors: Sequence[bool] | None = None,
    ) -> list[bytes]:
        bounded = replace(stimulus, max_cycles=self._limit)
        return self._engine.play(frames, bounded, mac_errors)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)
