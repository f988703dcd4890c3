"""Slot memory: words and blocks of all slots, two versions each, read by two stages at once.

::

    phase        0     1     0     1     0
    merge reads  0     1     2     3     4       beats of its blocks; bank = beat mod 2
    bank         even  odd   even  odd   even
    sends              0     1     2     3       beats of other blocks
    bank         odd   even  odd   even  odd

Each bank has one read port, taken in turn by the merge stage and the transmit stage: both get a
beat in every cycle, with one copy of the data. Blocks are an even number of beats, and both stages
start packets only at their phase. At 512 bits the look-ahead words are one beat: that one bank is
the merge stage's at phase 1 and the transmit stage's at phase 0.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.parameters import Parameters

__all__ = ["SlotMemory"]


class SlotMemory(wiring.Component):
    """Two banks of blocks and one or two banks of words.

    Latency: data follow one cycle after their address. Throughput: for each of blocks and words, a
    beat for the merge stage, a beat for the transmit stage, and a write, in each cycle.

    Addresses count beats: blocks {slot, version, lane, beat}, words {slot, version, beat}, the beat
    in the low bits.

    Members:
        phase: Alternates from cycle to cycle. Block beat n is the merge stage's to read in a cycle
            with phase = n mod 2, the transmit stage's in one with the opposite phase.
        merge_block, merge_words, send_block, send_words: Read addresses.
        merge_block_data, merge_words_data, send_block_data, send_words_data: One cycle later.
        write_block, write_block_address, write_block_data: Write, and likewise ``words``.
    """

    def __init__(self, parameters: Parameters) -> None:
        p = parameters
        self._parameters = p
        block = p.slot_bits + 1 + p.lane_bits + p.beat_bits
        words = p.slot_bits + 1 + (p.header_beats.bit_length() - 1)
        self._block_bits, self._words_bits = block, words
        super().__init__(
            {
                "phase": In(1),
                "merge_block": In(block),
                "merge_block_data": Out(p.bus_bits),
                "merge_words": In(words),
                "merge_words_data": Out(p.bus_bits),
                "send_block": In(block),
                "send_block_data": Out(p.bus_bits),
                "send_words": In(words),
                "send_words_data": Out(p.bus_bits),
                "write_block": In(1),
                "write_block_address": In(block),
                "write_block_data": In(p.bus_bits),
                "write_words": In(1),
                "write_words_address": In(words),
                "write_words_data": In(p.bus_bits),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = self._parameters
        banks = []
        for parity in range(2):
            bank = memory.Memory(shape=p.bus_bits, depth=1 << (self._block_bits - 1), init=[])
            m.submodules[f"blocks_{parity}"] = bank
            write, read = bank.write_port(), bank.read_port()
            m.d.comb += [
                write.en.eq(self.write_block & (self.write_block_address[0] == parity)),
                write.addr.eq(self.write_block_address[1:]),
                write.data.eq(self.write_block_data),
                read.addr.eq(Mux(self.phase == parity, self.merge_block[1:], self.send_block[1:])),
            ]
            banks.append(read.data)
        merged_parity = Signal()
        m.d.sync += merged_parity.eq(self.phase)
        m.d.comb += [
            self.merge_block_data.eq(Mux(merged_parity, banks[1], banks[0])),
            self.send_block_data.eq(Mux(merged_parity, banks[0], banks[1])),
        ]

        if p.header_beats == 1:
            m.submodules.words = bank = memory.Memory(
                shape=p.bus_bits, depth=1 << self._words_bits, init=[]
            )
            write, read = bank.write_port(), bank.read_port()
            m.d.comb += [
                write.en.eq(self.write_words),
                write.addr.eq(self.write_words_address),
                write.data.eq(self.write_words_data),
                read.addr.eq(Mux(self.phase, self.merge_words, self.send_words)),
                self.merge_words_data.eq(read.data),
                self.send_words_data.eq(read.data),
            ]
            return m

        banks = []
        for parity in range(2):
            bank = memory.Memory(shape=p.bus_bits, depth=1 << (self._words_bits - 1), init=[])
            m.submodules[f"words_{parity}"] = bank
            write, read = bank.write_port(), bank.read_port()
            m.d.comb += [
                write.en.eq(self.write_words & (self.write_words_address[0] == parity)),
                write.addr.eq(self.write_words_address[1:]),
                write.data.eq(self.write_words_data),
                read.addr.eq(Mux(self.phase == parity, self.merge_words[1:], self.send_words[1:])),
            ]
            banks.append(read.data)
        m.d.comb += [
            self.merge_words_data.eq(Mux(merged_parity, banks[1], banks[0])),
            self.send_words_data.eq(Mux(merged_parity, banks[0], banks[1])),
        ]
        return m
