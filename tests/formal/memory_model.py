"""Proof: the memories of `watched.py` allow all that Amaranth's own do."""

from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import Assert, Cover, Elaboratable, Module, Signal
from amaranth.lib import memory

from tests.formal.watched import WatchedMemory

__all__ = ["MemoryModelHarness"]

DEPTH, WIDTH = 4, 4


class MemoryModelHarness(Elaboratable):
    """A real memory and a watched one, of the same size, with the same at all inputs.

    Args:
        transparent: The read port sees what is written in the same cycle.
    """

    def __init__(self, *, transparent: bool) -> None:
        self._transparent = transparent

    def elaborate(self, platform: object) -> Module:
        m = Module()
        real = memory.Memory(shape=WIDTH, depth=DEPTH, init=[])
        model = WatchedMemory(shape=WIDTH, depth=DEPTH)
        m.submodules.real, m.submodules.model = real, model
        bits = len(model.watched)
        inputs = {
            "write": [Signal(bits), Signal(WIDTH), Signal()],
            "read": [Signal(bits), Signal()],
        }
        for signals in inputs.values():
            m.d.comb += [signal.eq(AnySeq(len(signal))) for signal in signals]
        m.d.comb += model.watched.eq(AnyConst(bits))
        outputs = []
        for each in (real, model):
            write = each.write_port()
            read = each.read_port(transparent_for=(write,) if self._transparent else ())
            address, word, enable = inputs["write"]
            m.d.comb += [write.addr.eq(address), write.data.eq(word), write.en.eq(enable)]
            address, enable = inputs["read"]
            m.d.comb += [read.addr.eq(address), read.en.eq(enable)]
            outputs.append(read.data)
        inside = real.read_port(domain="comb")
        m.d.comb += inside.addr.eq(model.watched)

        # Whether the latest read was of the watched word.
        known = Signal()
        address, enable = inputs["read"]
        with m.If(enable):
            m.d.sync += known.eq(address == model.watched)
        m.d.comb += [
            Assert(inside.data == model.content, "the word"),
            Assert(~known | (outputs[0] == outputs[1]), "what is read"),
            Cover(known & (outputs[0] == 5)),
        ]
        return m
