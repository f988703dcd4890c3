"""Block notes: what the engine keeps of the slots, but for their words and blocks.

The exponents that the words of a version agree on are those of the blocks of the next round. They
are noted with each block, as a result may be sent again when these words are no more.

One bit of them that flips is noticed. An exponent that is not right when it is asked for makes its
block one that is not summed, for all workers alike; a note that is not right spoils the frame.

Tested: `tests/sim/test_engine_sums.py`.
"""

from amaranth.hdl import Cat, Module, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.lib.memory_ports import ReadPort, WritePort
from afflux_hdl.lib.ram import Ram

__all__ = ["EXPONENT_BITS", "BlockNote", "BlockNotes", "Loss", "merge_note_ports", "note_port"]

EXPONENT_BITS = 9
"""Bits of an exponent with its parity."""

Loss = data.StructLayout({"lost": 1, "kept": 1})
"""Whether a contribution has lost a bit, so that its block is not summed; and the opposite."""

BlockNote = data.StructLayout({"exponent": EXPONENT_BITS, "loss": Loss})
"""A note of a block.

Members:
    exponent: E, with its parity above it: the number of ones is even.
    loss: Whether the block is summed.
"""


def _with_parity(exponent: Value) -> Value:
    return Cat(exponent, exponent.xor())


def note_port(parameters: Parameters) -> tuple[int, data.StructLayout]:
    """Return the shapes of a note's address, {slot, version, lane}, and of a note."""
    return parameters.block_address_bits - parameters.beat_bits, BlockNote


def _exponents_port(parameters: Parameters) -> tuple[int, int]:
    """Return the shapes of the address of a beat of words, and of their exponents."""
    return parameters.words_address_bits, parameters.words_per_beat * EXPONENT_BITS


def merge_note_ports(parameters: Parameters) -> dict[str, Out]:
    """Return the ports by which the merge stage reads and writes notes."""
    blocks, note = note_port(parameters)
    return {
        "read_exponents": Out(ReadPort(*_exponents_port(parameters))),
        "read_loss": Out(ReadPort(blocks, Loss)),
        "write_note": Out(WritePort(blocks, note)),
    }


class BlockNotes(wiring.Component):
    """Exponents of all slots' words, and notes of their blocks, two versions each.

    Latency: data follow one cycle after their address. Throughput: two reads of notes, one of
    exponents, and a write of each, in each cycle.

    Members:
        merge_exponents: Exponents of a beat of words, by its address in the slot memory.
        write_words: The words that merge writes to the slot memory.
        merge_loss: Whether a block has lost a bit, by {slot, version, lane}.
        send_note: A block's note.
        write_note: Sets it.
    """

    def __init__(self, parameters: Parameters) -> None:
        p = parameters
        self._parameters = p
        blocks, note = note_port(p)
        super().__init__(
            {
                "merge_exponents": In(ReadPort(*_exponents_port(p))),
                "write_words": In(WritePort(p.words_address_bits, p.checked_bits)),
                "merge_loss": In(ReadPort(blocks, Loss)),
                "send_note": In(ReadPort(blocks, note)),
                "write_note": In(WritePort(blocks, note)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = self._parameters
        address_bits, width = _exponents_port(p)
        exponents = Ram(width=width, address_bits=address_bits)
        blocks, _ = note_port(p)
        loss, notes = (Ram(width=shape.size, address_bits=blocks) for shape in (Loss, BlockNote))
        m.submodules.exponents, m.submodules.loss, m.submodules.notes = exponents, loss, notes
        wiring.connect(m, wiring.flipped(self.merge_exponents), exponents.read)
        words = self.write_words
        m.d.comb += [
            exponents.write.enable.eq(words.enable),
            exponents.write.address.eq(words.address),
            # A look-ahead word has the inverted exponent in its lowest bits.
            exponents.write.data.eq(
                Cat(_with_parity(~words.data[32 * n :][:8]) for n in range(p.words_per_beat))
            ),
            loss.read.address.eq(self.merge_loss.address),
            self.merge_loss.data.eq(loss.read.data),
            notes.read.address.eq(self.send_note.address),
            self.send_note.data.eq(notes.read.data),
        ]
        for ram, value in ((loss, self.write_note.data.loss), (notes, self.write_note.data)):
            m.d.comb += [
                ram.write.enable.eq(self.write_note.enable),
                ram.write.address.eq(self.write_note.address),
                ram.write.data.eq(value),
            ]
        return m
