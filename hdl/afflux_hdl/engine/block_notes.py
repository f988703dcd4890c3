"""Block notes: what an engine that sums numbers keeps of the slots, but for their words and blocks.

The exponents that the words of a version agree on are those of the blocks of the next round. They
are noted with each block, as a result may be sent again when these words are no more.

Tested: `tests/sim/test_engine_sums.py`.
"""

from amaranth.hdl import Module
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In

from afflux_hdl.contract import wire
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.lib.memory_ports import ReadPort, WritePort
from afflux_hdl.lib.ram import Ram

__all__ = ["EXPONENT_BITS", "BlockNote", "BlockNotes", "note_port"]

EXPONENT_BITS = 8

BlockNote = data.StructLayout({"exponent": EXPONENT_BITS, "lost": 1})
"""A note of a block.

Members:
    exponent: E.
    lost: A contribution has lost a bit, so the block is not summed.
"""


def note_port(parameters: Parameters) -> tuple[int, data.StructLayout]:
    """Return the shapes of a note's address, {slot, version, lane}, and of a note."""
    return parameters.block_address_bits - parameters.beat_bits, BlockNote


class BlockNotes(wiring.Component):
    """Exponents of all slots' words, and notes of their blocks, two versions each.

    Latency: data follow one cycle after their address. Throughput: two reads of notes, one of
    exponents, and a write of each, in each cycle.

    Members:
        merge_exponents, write_exponents: Exponents by {slot, version}, of all lanes.
        merge_lost: Whether a block has lost a bit, by {slot, version, lane}.
        send_note: A block's note.
        write_note: Sets it.
    """

    def __init__(self, parameters: Parameters) -> None:
        p = parameters
        self._versions, self._blocks = p.words_address_bits, p.block_address_bits - p.beat_bits
        exponents = wire.LANES_MAX * EXPONENT_BITS
        super().__init__(
            {
                "merge_exponents": In(ReadPort(self._versions, exponents)),
                "write_exponents": In(WritePort(self._versions, exponents)),
                "merge_lost": In(ReadPort(self._blocks, 1)),
                "send_note": In(ReadPort(self._blocks, BlockNote)),
                "write_note": In(WritePort(self._blocks, BlockNote)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        exponents = Ram(width=wire.LANES_MAX * EXPONENT_BITS, address_bits=self._versions)
        lost, notes = (Ram(width=width, address_bits=self._blocks) for width in (1, BlockNote.size))
        m.submodules.exponents, m.submodules.lost, m.submodules.notes = exponents, lost, notes
        wiring.connect(m, wiring.flipped(self.merge_exponents), exponents.read)
        wiring.connect(m, wiring.flipped(self.write_exponents), exponents.write)
        wiring.connect(m, wiring.flipped(self.merge_lost), lost.read)
        m.d.comb += [
            notes.read.address.eq(self.send_note.address),
            self.send_note.data.eq(notes.read.data),
        ]
        for ram, value in ((lost, self.write_note.data.lost), (notes, self.write_note.data)):
            m.d.comb += [
                ram.write.enable.eq(self.write_note.enable),
                ram.write.address.eq(self.write_note.address),
                ram.write.data.eq(value),
            ]
        return m
