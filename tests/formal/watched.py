"""Memories of which one word is real: what makes proofs at the engine's true sizes possible.

A property of one word that may be any word, chosen once and for all, is a property of each. So a
memory is replaced by the one word that is watched; reads of all others give anything. That allows
more than the real memory does: what is proved holds for the real one. `memory_model.py` proves
that the replacement allows all that the real one does.
"""

import importlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import Array, Elaboratable, Module, Mux, Shape, Signal, Value
from amaranth.lib import data
from amaranth.utils import bits_for

__all__ = ["CONTROL", "AnyMemory", "RegisterMemory", "WatchedMemory", "choice", "watching"]

CONTROL = ("afflux_hdl.engine.control", "afflux_hdl.engine.control_registers")
"""Modules with the memories of `Control`."""


class WatchedMemory(Elaboratable):
    """Stands for `amaranth.lib.memory.Memory`.

    Members:
        watched: Address of the real word; its driver must never change.
        content: That word.
    """

    def __init__(self, *, shape: object, depth: int, init: object = ()) -> None:
        del init
        self.depth = depth
        self._shape = shape
        self.watched = Signal(range(depth), name="watched")
        self.content = Signal(shape, name="content", reset_less=True)
        self._writes: list[SimpleNamespace] = []
        self._reads: list[tuple[SimpleNamespace, str, Sequence[SimpleNamespace]]] = []

    def _word(self, name: str) -> Signal:
        return Signal(self._shape, name=name)

    def write_port(self) -> SimpleNamespace:
        """Return a write port with `addr`, `data` and `en`."""
        port = SimpleNamespace(
            addr=Signal(range(self.depth)), data=self._word("write_data"), en=Signal()
        )
        self._writes.append(port)
        return port

    def read_port(
        self, *, domain: str = "sync", transparent_for: Sequence[SimpleNamespace] = ()
    ) -> SimpleNamespace:
        """Return a read port with `addr`, `data` and, if it has a clock, `en`."""
        port = SimpleNamespace(
            addr=Signal(range(self.depth)), data=self._word("read_data"), en=Signal(init=1)
        )
        self._reads.append((port, domain, transparent_for))
        return port

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for port in self._writes:
            with m.If(port.en & (port.addr == self.watched)):
                m.d.sync += self.content.eq(port.data)
        bits = Shape.cast(self._shape).width
        for port, domain, transparent_for in self._reads:
            hit = port.addr == self.watched
            if domain == "comb":
                # A word that is looked at for several cycles is the same until it is written.
                before, at, known = Signal(bits), Signal.like(port.addr), Signal()
                m.d.sync += [before.eq(_raw(port.data)), at.eq(port.addr), known.eq(1)]
                for write in self._writes:
                    with m.If(write.en & (write.addr == port.addr)):
                        m.d.sync += known.eq(0)
                other = Mux(known & (at == port.addr), before, AnySeq(bits))
                m.d.comb += _raw(port.data).eq(Mux(hit, _raw(self.content), other))
                continue
            with m.If(port.en):
                m.d.sync += _raw(port.data).eq(Mux(hit, _raw(self.content), AnySeq(bits)))
                for write in transparent_for:
                    with m.If(write.en & (write.addr == port.addr)):
                        m.d.sync += _raw(port.data).eq(_raw(write.data))
        return m


class AnyMemory(WatchedMemory):
    """Stands for a memory of whose words only is known what a harness requires of those read.

    Members:
        writes: Ports, each with `addr`, `data` and `en`.
        reads: Ports, each with `addr` and `data`.
    """

    @property
    def writes(self) -> list[SimpleNamespace]:
        return self._writes

    @property
    def reads(self) -> list[SimpleNamespace]:
        return [port for port, _, _ in self._reads]

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for port, domain, _ in self._reads:
            anything = AnySeq(Shape.cast(self._shape).width)
            if domain == "comb":
                m.d.comb += _raw(port.data).eq(anything)
            else:
                with m.If(port.en):
                    m.d.sync += _raw(port.data).eq(anything)
        return m


class RegisterMemory(WatchedMemory):
    """Stands for a small memory: all of its words are real, and can be looked at.

    Members:
        words: All words.
    """

    def __init__(self, *, shape: object, depth: int, init: object = ()) -> None:
        super().__init__(shape=shape, depth=depth, init=init)
        self.words = [self._word(f"word_{n}") for n in range(depth)]

    def elaborate(self, platform: object) -> Module:
        m = Module()
        words = Array(_raw(word) for word in self.words)
        for port in self._writes:
            with m.If(port.en):
                m.d.sync += words[port.addr].eq(_raw(port.data))
        for port, domain, transparent_for in self._reads:
            if domain == "comb":
                m.d.comb += _raw(port.data).eq(words[port.addr])
                continue
            with m.If(port.en):
                m.d.sync += _raw(port.data).eq(words[port.addr])
                for write in transparent_for:
                    with m.If(write.en & (write.addr == port.addr)):
                        m.d.sync += _raw(port.data).eq(_raw(write.data))
        return m


def choice(below: int) -> Value:
    """Return a number less than `below` that is chosen freely, once and for all."""
    number = AnyConst(max(1, bits_for(below - 1)))
    return number if below == 1 << len(number) else Mux(number < below, number, 0)


def _raw(word: object) -> Signal:
    return word.as_value() if isinstance(word, data.View) else word


@contextmanager
def watching(
    *modules: str, kind: type[WatchedMemory] = WatchedMemory
) -> Iterator[list[WatchedMemory]]:
    """While this is open, parts of the named modules that are elaborated get watched memories.

    Args:
        modules: Their names.
        kind: The stand-in for a memory.

    Yields:
        They, in the order in which they were made.
    """
    made: list[WatchedMemory] = []

    def make(**arguments: Any) -> WatchedMemory:
        made.append(kind(**arguments))
        return made[-1]

    with ExitStack() as stack:
        for name in modules:
            module = importlib.import_module(name)
            # Modules name either the class or the module that has it.
            if hasattr(module, "memory"):
                stack.enter_context(patch.object(module, "memory", SimpleNamespace(Memory=make)))
            else:
                stack.enter_context(patch.object(module, "Memory", make))
        yield made
