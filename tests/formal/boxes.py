"""The engine with some of its parts replaced by anything: a proof of the others in their places.

The engine's own wiring surrounds the remaining parts. A part that is replaced is a box: the same
ports, and nothing inside. Its outputs may do anything, except what the harness gives them or
requires of them. That allows more than the real part does, as long as what is required holds.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from amaranth.asserts import AnySeq
from amaranth.hdl import Const, Module, Value
from amaranth.lib.wiring import Component, Out

from afflux_hdl.engine import engine
from afflux_hdl.engine.engine import Engine
from afflux_hdl.engine.parameters import Parameters
from tests.formal.inside import Inside

__all__ = ["BoxedEngine"]


class BoxedEngine:
    """The engine, elaborated, with boxes in the places of some parts.

    Args:
        m: The harness: the engine becomes its submodule, at whose ports anything may happen.
        parameters: The engine's.
        kept: Names of the classes of the parts that are real.
        platform: Of the harness.

    Attributes:
        inside: What the engine has inside, and its real parts.
    """

    def __init__(
        self, m: Module, parameters: Parameters, kept: tuple[str, ...], platform: object
    ) -> None:
        self._m = m
        whole = Engine(parameters)
        with _boxes(kept):
            self.inside = Inside(whole, platform)
        m.submodules.engine = self.inside.fragment
        self.anything(whole, inputs=True)

    def __getitem__(self, name: str) -> Any:
        """Return a part, real or a box, by its name on the engine; or what a part has."""
        return self.inside[name]

    def anything(self, part: Component, *but: str, inputs: bool = False) -> None:
        """Let anything happen at a box's outputs, except at the named members.

        Args:
            part: The box.
            but: Members that the harness drives.
            inputs: Rather at its inputs: for the engine itself.
        """
        for path, member, value in part.signature.flatten(part):
            if (member.flow is Out) != inputs and path[0] not in but:
                signal = Value.cast(value)
                if not isinstance(signal, Const):
                    self._m.d.comb += signal.eq(AnySeq(len(signal)))


@contextmanager
def _boxes(kept: tuple[str, ...]) -> Iterator[None]:
    with ExitStack() as stack:
        for name, kind in vars(engine).copy().items():
            is_part = isinstance(kind, type) and issubclass(kind, Component)
            if is_part and name not in (*kept, "Engine", "Queue"):
                box = type(name, (kind,), {"elaborate": lambda self, platform: Module()})
                stack.enter_context(patch.object(engine, name, box))
        yield
