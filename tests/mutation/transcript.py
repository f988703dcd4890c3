"""A check's requests to an engine and their results, for mutants without the check.

A check spends nearly all its time on building frames and on the golden model. A mutant that answers
all that a passing check has asked as the engine has answered it passes that check too; so the check
itself has to run on a mutant only from its first other answer on, to say whether that is wrong: the
order of frames in a flood, for one, is the engine's to choose.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from afflux_hdl.contract.registers import address_of
from afflux_sim.rtl.stimulus import BACK_TO_BACK, Stimulus
from afflux_sim.rtl.verilated import Statistics, VerilatedEngine
from afflux_sim.rtl.verilated_model import AccessRefused
from afflux_sim.rtl.verilated_node import NodeStatistics, VerilatedNode

__all__ = ["Bounded", "BoundedNode", "Check", "NodeRecorder", "Recorder", "Transcript"]

Check = Callable[[Any], object]
"""Of an engine, or of a node."""

_OF_NODES = ("play", "pace", "access", "read", "write", "reset", "statistics")
"""Methods of a node that are recorded."""


REFUSED = "refused"
"""Answer of a register that is not there, or that cannot be written now."""


@dataclass(frozen=True)
class _Call:
    method: str
    arguments: tuple[Any, ...]
    named: Mapping[str, Any]
    answer: object
    cycles: int

    def again(self, model: Any) -> object:
        """Ask the same of another model, with a limit of ten times the cycles that it took."""
        limit = 10 * self.cycles + 2000
        arguments, named = self.arguments, self.named
        if self.method == "play" and len(arguments) == 3 and isinstance(arguments[1], Stimulus):
            frames, stimulus, errors = arguments
            arguments = (frames, replace(stimulus, max_cycles=limit), errors)
        elif self.method == "play":
            named = {**named, "max_cycles": limit}
        try:
            return _kept(getattr(model, self.method)(*arguments, **named))
        except AccessRefused:
            return REFUSED


def _kept(answer: object) -> object:
    """Return what of an answer is compared.

    Of statistics it is the frames that were ended with an error: they are part of no other answer.
    """
    if isinstance(answer, Statistics | NodeStatistics):
        return {name: value for name, value in asdict(answer).items() if name.endswith("_cut")}
    # Checks may add to the list that they get.
    return list(answer) if isinstance(answer, list) else answer


@dataclass
class Transcript:
    """The calls of one check, in order.

    Attributes:
        longest: Cycles of the longest call.
        calls: The calls.
    """

    longest: int = 0
    calls: list[_Call] = field(default_factory=list)

    def record(
        self, model: Any, method: str, arguments: tuple[Any, ...], named: Mapping[str, Any]
    ) -> Any:
        """Ask the model, write it down, and return the answer."""
        before = model.cycles
        try:
            answer = getattr(model, method)(*arguments, **named)
        except AccessRefused:
            cycles = model.cycles - before
            self.calls.append(_Call(method, arguments, named, REFUSED, cycles))
            raise
        cycles = model.cycles - before
        self.calls.append(_Call(method, arguments, named, _kept(answer), cycles))
        self.longest = max(self.longest, cycles)
        return answer

    def first_difference(self, engine: VerilatedEngine | VerilatedNode) -> str | None:
        """Ask an engine, or a node, the same; return where it answers otherwise, `None` if nowhere.

        Raises:
            SimulationError: If a call takes ten times as long as it did, or breaks a rule.
        """
        busy = address_of("job_busy")
        for number, call in enumerate(self.calls):
            if call.again(engine) != call.answer:
                busy_read = call.method == "read" and call.arguments == (busy,)
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

    def statistics(self) -> Any:
        return self._call("statistics")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def _call(self, method: str, *arguments: Any) -> Any:
        return self.transcript.record(self._engine, method, arguments, {})


class NodeRecorder:
    """A node that writes down what it is asked and what it answers.

    Args:
        node: The node itself.
    """

    def __init__(self, node: VerilatedNode) -> None:
        self._node = node
        self.transcript = Transcript()

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._node, name)
        if name not in _OF_NODES:
            return value

        def recorded(*arguments: Any, **named: Any) -> Any:
            return self.transcript.record(self._node, name, arguments, named)

        return recorded


class BoundedNode:
    """A node that is given up on after `limit` cycles of a play.

    Args:
        node: The node itself.
        limit: Cycles.
    """

    def __init__(self, node: VerilatedNode, limit: int) -> None:
        self._node = node
        self._limit = limit

    def play(self, *arguments: Any, **named: Any) -> tuple[list[bytes], list[bytes]]:
        return self._node.play(*arguments, **named, max_cycles=self._limit)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)


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
