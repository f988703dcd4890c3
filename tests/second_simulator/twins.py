"""Two simulations of one design, driven alike: every answer and every cycle must be the same."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from afflux_sim.rtl.stimulus import BACK_TO_BACK, Stimulus
from afflux_sim.rtl.verilated import VerilatedEngine
from afflux_sim.rtl.verilated_model import SimulationError
from afflux_sim.rtl.verilated_node import AxiAnswer, NodePace, VerilatedNode

__all__ = ["Difference", "TwinNodes", "Twins"]


class Difference(AssertionError):
    """The two simulators do not agree."""


class _Pair:
    """Calls the same method of both, and compares what they return, and their pins so far.

    The pins are compared through the digest in the statistics, which depends on every output pin
    in every cycle: a beat that comes a cycle later is a difference, even if the frame is the same.

    Args:
        one: A model.
        other: The same design, simulated by something else.
    """

    def __init__(
        self, one: VerilatedEngine | VerilatedNode, other: VerilatedEngine | VerilatedNode
    ) -> None:
        self._one = one
        self._other = other
        self.calls = 0

    def both(self, method: str, *arguments: Any, **named: Any) -> Any:
        """Return the answer.

        Raises:
            Difference: If the answers differ, or anything at the pins.
            SimulationError: If both refuse the call, with the same words.
        """
        self.calls += 1
        answers = [_ask(model, method, arguments, named) for model in (self._one, self._other)]
        if answers[0] != answers[1]:
            raise Difference(f"call {self.calls}, {method}: {answers[0]!r} and {answers[1]!r}")
        pins = [model.statistics() for model in (self._one, self._other)]
        if pins[0] != pins[1]:
            raise Difference(f"call {self.calls}, {method}: pins differ, {pins[0]} and {pins[1]}")
        if isinstance(answers[0], _Refused):
            raise answers[0].kind(answers[0].words)
        return answers[0]


def _ask(
    model: VerilatedEngine | VerilatedNode,
    method: str,
    arguments: Sequence[Any],
    named: Mapping[str, Any],
) -> Any:
    try:
        return getattr(model, method)(*arguments, **named)
    except SimulationError as error:
        return _Refused(type(error), str(error))


@dataclass(frozen=True)
class _Refused:
    """An error instead of an answer, equal to another of the same kind with the same words."""

    kind: type[SimulationError]
    words: str


class Twins(_Pair):
    """Two engines behind the interface of one; checks of an engine take it as such."""

    def play(
        self,
        frames: Sequence[bytes],
        stimulus: Stimulus = BACK_TO_BACK,
        mac_errors: Sequence[bool] | None = None,
    ) -> list[bytes]:
        answer: list[bytes] = self.both("play", frames, stimulus, mac_errors)
        return answer

    def run(self, cycles: int) -> list[bytes]:
        answer: list[bytes] = self.both("run", cycles)
        return answer

    def read(self, address: int) -> int:
        value: int = self.both("read", address)
        return value

    def write(self, address: int, value: int) -> None:
        self.both("write", address, value)

    def reset(self) -> None:
        self.both("reset")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._one, name)


class TwinNodes(_Pair):
    """Two nodes behind the interface of one; checks of a node take it as such."""

    def play(
        self,
        from_network: Sequence[bytes],
        from_host: Sequence[bytes],
        drain: bool = True,
        *,
        network_errors: Sequence[bool] | None = None,
        host_errors: Sequence[bool] | None = None,
    ) -> tuple[list[bytes], list[bytes]]:
        marks = {"network_errors": network_errors, "host_errors": host_errors}
        answer: tuple[list[bytes], list[bytes]]
        answer = self.both("play", from_network, from_host, drain, **marks)
        return answer

    def pace(self, pace: NodePace) -> None:
        self.both("pace", pace)

    def access(self, **what: Any) -> AxiAnswer:
        answer: AxiAnswer = self.both("access", **what)
        return answer

    def read(self, address: int) -> int:
        value: int = self.both("read", address)
        return value

    def write(self, address: int, value: int) -> None:
        self.both("write", address, value)

    def reset(self) -> None:
        self.both("reset")
