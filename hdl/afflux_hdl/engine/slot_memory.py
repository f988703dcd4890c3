"""Slot memory: words and blocks of all slots, two versions each, read by two stages at once.

::

    phase        0     1     0     1     0
    merge reads  0     1     2     3     4       beats of its blocks; bank = beat mod 2
    bank         even  odd   even  odd   even
    sends              0     1     2     3       beats of other blocks
    bank         odd   even  odd   even  odd

Each bank has one read port, which the merge stage and the transmit stage use in turn: both get a
beat in every cycle, with one copy of the data. Blocks are an even number of beats, and both stages
start packets only at their phase. At 512 bits the look-ahead words are one beat, in one bank: it is
the merge stage's at phase 1 and the transmit stage's at phase 0; with `ram_output_register`, where
both address it a cycle earlier, it is the other way round.

With each look-ahead word its residue is kept: 36 of 36 bits. A block's word has `Fixed.slot`.

Proved: `tests/formal/merge_memory.py`, `tests/formal/sending.py`. Tested:
`tests/sim/test_engine_numbers.py`.
"""

from collections.abc import Sequence

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from afflux_hdl.engine.lane_ram import LaneRam
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.lib.memory_ports import ReadPort, WritePort, connect_in_turn
from afflux_hdl.lib.ram import Ram

__all__ = ["SlotMemory"]


class SlotMemory(wiring.Component):
    """Two banks of blocks and one or two banks of words.

    Latency: data follow one cycle after their address; blocks two, with the output register of
    `ram_output_register`. Throughput: for each of blocks and words, a
    beat for the merge stage, a beat for the transmit stage, and a write, in each cycle.

    An address is that of a beat: {slot, version, lane, beat} of a block, {slot, version, beat} of
    words, the beat in the low bits. Data are a block's words as `slot_words` has them; of words a
    beat, and behind it their residues.

    Members:
        phase: Alternates from cycle to cycle. The merge stage reads beat n of a block in a cycle
            with phase = n mod 2, the transmit stage in one with the opposite phase. Words of one
            beat are read in the cycle before beat 0 of the blocks, or two before it.
        merge_block, merge_words: Read ports of the merge stage.
        send_block, send_words: Read ports of the transmit stage.
        write_block, write_words: Write ports, of the merge stage.
    """

    def __init__(self, parameters: Parameters) -> None:
        p = parameters
        self._parameters = p
        ports = {
            "block": (p.block_address_bits, p.slot_beat_bits),
            "words": (p.words_address_bits, p.checked_bits),
        }
        super().__init__(
            {
                "phase": In(1),
                **{f"merge_{name}": In(ReadPort(*shapes)) for name, shapes in ports.items()},
                **{f"send_{name}": In(ReadPort(*shapes)) for name, shapes in ports.items()},
                **{f"write_{name}": In(WritePort(*shapes)) for name, shapes in ports.items()},
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = self._parameters
        parity_read = Signal()
        m.d.sync += parity_read.eq(self.phase)

        def two_banks(name: str, banks: Sequence[Ram | LaneRam], registered: bool = False) -> None:
            """Add the banks of even and of odd beats of the blocks or words."""
            merge, send = getattr(self, f"merge_{name}"), getattr(self, f"send_{name}")
            write = getattr(self, f"write_{name}")
            for parity, ram in enumerate(banks):
                m.submodules[f"{name}_{parity}"] = ram
                m.d.comb += [
                    ram.write.enable.eq(write.enable & (write.address[0] == parity)),
                    ram.write.address.eq(write.address[1:]),
                    ram.write.data.eq(write.data),
                    ram.read.address.eq(
                        Mux(self.phase == parity, merge.address[1:], send.address[1:])
                    ),
                ]
            even, odd = (ram.read.data for ram in banks)
            parity_found = parity_read
            if registered:
                parity_found = Signal(name=f"parity_found_{name}")
                m.d.sync += parity_found.eq(parity_read)
            m.d.comb += [
                merge.data.eq(Mux(parity_found, odd, even)),
                send.data.eq(Mux(parity_found, even, odd)),
            ]

        # On narrow buses, so in small devices, powers of two fit into block RAMs that stand side by
        # side; with residues and flags among them, RAMs would stand one behind the other.
        beyond = p.slot_beat_bits - (1 << (p.slot_beat_bits.bit_length() - 1))
        apart = beyond if p.header_beats > 1 else 0
        blocks = [LaneRam(p, apart=apart) for _ in range(2)]
        two_banks("block", blocks, bool(p.ram_output_register))
        if p.header_beats > 1:
            halves = [
                Ram(width=p.checked_bits, address_bits=p.words_address_bits - 1) for _ in range(2)
            ]
            two_banks("words", halves)
        else:
            m.submodules.words = words = Ram(
                width=p.checked_bits, address_bits=p.words_address_bits
            )
            wiring.connect(m, wiring.flipped(self.write_words), words.write)
            turns = (self.send_words, self.merge_words)
            if p.ram_output_register:
                turns = (self.merge_words, self.send_words)
            connect_in_turn(m, self.phase, *turns, words.read)
        return m
