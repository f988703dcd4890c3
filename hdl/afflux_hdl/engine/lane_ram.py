"""Lane RAM: a bank of blocks, with room for the lanes that are built, and not for a power of two.

::

    lanes 0 to 3 ─► Ram ─┐
                         ├─► read
    lane 4 ───────► Ram ─┘

Tested: `tests/sim/test_engine_sums.py`.
"""

from amaranth.hdl import Cat, Module, Mux, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.engine.slot_words import delayed
from afflux_hdl.lib.memory_ports import ReadPort, WritePort
from afflux_hdl.lib.ram import Ram

__all__ = ["LaneRam"]

WHOLE_BITS = 11
"""Bits of the address of a memory that is in one piece."""


class LaneRam(wiring.Component):
    """Every other beat of all blocks, in a memory for each power of two in the number of lanes.

    Latency, throughput, and reads of what is written: as of `Ram`.

    Args:
        parameters: Of the engine.
        apart: As of `Ram`, of memories with more than 2,048 words: smaller ones are block RAMs of
            9, 18 or 36 bits side by side, which have room for these bits too.

    Members:
        write: Write port. An address is {slot, version, lane, half the beat}.
        read: Read port. Of a lane that is not built, data are undefined.
    """

    def __init__(self, parameters: Parameters, *, apart: int) -> None:
        p = parameters
        self._parameters, self._apart = p, apart
        shapes = p.block_address_bits - 1, p.slot_beat_bits
        super().__init__({"write": In(WritePort(*shapes)), "read": In(ReadPort(*shapes))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = self._parameters
        found: Value | None = None
        first = 0
        for bits in reversed(range(p.lanes.bit_length())):
            if not p.lanes >> bits & 1:
                continue
            (write_group, write_place), (read_group, read_place) = (
                self._split(address, bits) for address in (self.write.address, self.read.address)
            )
            m.submodules[f"from_{first}"] = ram = Ram(
                width=p.slot_beat_bits,
                address_bits=len(read_place),
                apart=self._apart if len(read_place) > WHOLE_BITS else 0,
                output_register=bool(p.ram_output_register),
            )
            m.d.comb += [
                ram.write.enable.eq(self.write.enable & (write_group == first >> bits)),
                ram.write.address.eq(write_place),
                ram.write.data.eq(self.write.data),
                ram.read.address.eq(read_place),
            ]
            if found is None:
                found = ram.read.data
            else:
                is_found = delayed(m, read_group == first >> bits, 1 + p.ram_output_register)
                found = Mux(is_found, ram.read.data, found)
            first += 1 << bits
        assert found is not None
        m.d.comb += self.read.data.eq(found)
        return m

    def _split(self, address: Value, bits: int) -> tuple[Value, Value]:
        """Return the number of a lane's group of 2**`bits` lanes, and the place in its memory."""
        lane = self._parameters.beat_bits - 1
        behind = lane + self._parameters.lane_bits
        return address[lane + bits : behind], Cat(address[: lane + bits], address[behind:])
