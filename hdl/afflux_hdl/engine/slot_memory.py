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
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.lib.ram import Ram

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
        write_block, write_block_address, write_block_data: Write, and likewise `words`.
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
        parity_read = Signal()
        m.d.sync += parity_read.eq(self.phase)

        def bank(name: str, address_bits: int) -> Ram:
            ram = Ram(width=p.bus_bits, address_bits=address_bits)
            m.submodules[name] = ram
            return ram

        def two_banks(name: str, address_bits: int) -> None:
            """Banks of even and of odd beats of the blocks or words."""
            read_merge, read_send = getattr(self, f"merge_{name}"), getattr(self, f"send_{name}")
            write = getattr(self, f"write_{name}")
            address = getattr(self, f"write_{name}_address")
            banks = [bank(f"{name}_{parity}", address_bits - 1) for parity in range(2)]
            for parity, ram in enumerate(banks):
                m.d.comb += [
                    ram.write.eq(write & (address[0] == parity)),
                    ram.write_address.eq(address[1:]),
                    ram.write_data.eq(getattr(self, f"write_{name}_data")),
                    ram.read_address.eq(Mux(self.phase == parity, read_merge[1:], read_send[1:])),
                ]
            even, odd = (ram.read_data for ram in banks)
            m.d.comb += [
                getattr(self, f"merge_{name}_data").eq(Mux(parity_read, odd, even)),
                getattr(self, f"send_{name}_data").eq(Mux(parity_read, even, odd)),
            ]

        two_banks("block", self._block_bits)
        if p.header_beats > 1:
            two_banks("words", self._words_bits)
        else:
            words = bank("words", self._words_bits)
            m.d.comb += [
                words.write.eq(self.write_words),
                words.write_address.eq(self.write_words_address),
                words.write_data.eq(self.write_words_data),
                words.read_address.eq(Mux(self.phase, self.merge_words, self.send_words)),
                self.merge_words_data.eq(words.read_data),
                self.send_words_data.eq(words.read_data),
            ]
        return m
