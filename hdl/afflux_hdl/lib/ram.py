"""Large memory without initial content.

Amaranth gives every memory an initial value. UltraRAM has none, and writing out zeros for the
megabytes of a slot pool takes minutes. No word of these memories is used before it is written, so
in Verilog they are a module of their own, `afflux_ram`, without an initial value, from which tools
infer block or ultra RAM. In Amaranth's simulator they are ordinary memories.

Nothing relies on the outcome of a read of a word that is written in the same cycle, and the Verilog
says so (`no_rw_check`). Otherwise, where a device's memory does not promise the old word, Yosys
adds registers and a multiplexer.

Proved: `tests/formal/memory_model.py`, of what stands for it in proofs. Tested:
`tests/hdl/test_synthesis_yosys.py`, `tests/hdl/test_node_parts.py`.
"""

from amaranth.hdl import ClockSignal, Instance, Module
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In

from afflux_hdl.lib.memory_ports import ReadPort, WritePort

__all__ = ["RAM_VERILOG", "REGISTERED_RAM_VERILOG", "VERILOG", "Ram"]

VERILOG = "verilog"
"""The `platform` to elaborate for where `RAM_VERILOG` is part of the output."""

RAM_VERILOG = """
module afflux_ram #(
  parameter WIDTH = 1,
  parameter ADDRESS_BITS = 1
) (
  input clk,
  input write,
  input [ADDRESS_BITS-1:0] write_address,
  input [WIDTH-1:0] write_data,
  input [ADDRESS_BITS-1:0] read_address,
  output reg [WIDTH-1:0] read_data
);
  (* no_rw_check *) reg [WIDTH-1:0] content [0:(1 << ADDRESS_BITS) - 1];
  always @(posedge clk) begin
    if (write) content[write_address] <= write_data;
    read_data <= content[read_address];
  end
endmodule
"""

REGISTERED_RAM_VERILOG = """
module afflux_ram_registered #(
  parameter WIDTH = 1,
  parameter ADDRESS_BITS = 1
) (
  input clk,
  input write,
  input [ADDRESS_BITS-1:0] write_address,
  input [WIDTH-1:0] write_data,
  input [ADDRESS_BITS-1:0] read_address,
  output reg [WIDTH-1:0] read_data
);
  (* no_rw_check *) reg [WIDTH-1:0] content [0:(1 << ADDRESS_BITS) - 1];
  reg [WIDTH-1:0] found;
  always @(posedge clk) begin
    if (write) content[write_address] <= write_data;
    found <= content[read_address];
    read_data <= found;
  end
endmodule
"""
"""The same with the register that block and ultra RAMs have at their outputs."""


class Ram(wiring.Component):
    """A memory with one write port and one read port.

    Latency: data follow one cycle after their address, two with an output register. Throughput: a
    write and a read in each cycle. A read of an address that is written in the same cycle is
    undefined; in simulation it gives the old word.

    Args:
        width: Bits of a word.
        address_bits: Bits of an address; the memory has 2**address_bits words.
        apart: So many of a word's upper bits are in a memory of their own, for tools that fill
            block RAMs to the last bit, and pay with multiplexers behind them.
        output_register: With the register that such memories have at their outputs. Without it most
            of a fast clock's cycle has passed when a word comes out of an UltraRAM.

    Members:
        write: Write port.
        read: Read port.
    """

    def __init__(
        self, *, width: int, address_bits: int, apart: int = 0, output_register: bool = False
    ) -> None:
        self._output_register = output_register
        self._width = width
        self._address_bits = address_bits
        self._apart = apart
        super().__init__(
            {
                "write": In(WritePort(address_bits, width)),
                "read": In(ReadPort(address_bits, width)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        if platform == VERILOG:
            here = self._width - self._apart
            for name, bits in (("ram", slice(0, here)), ("apart", slice(here, self._width))):
                if bits.start == bits.stop:
                    continue
                m.submodules[name] = Instance(
                    "afflux_ram_registered" if self._output_register else "afflux_ram",
                    p_WIDTH=bits.stop - bits.start,
                    p_ADDRESS_BITS=self._address_bits,
                    i_clk=ClockSignal(),
                    i_write=self.write.enable,
                    i_write_address=self.write.address,
                    i_write_data=self.write.data[bits],
                    i_read_address=self.read.address,
                    o_read_data=self.read.data[bits],
                )
            return m
        m.submodules.content = content = memory.Memory(
            shape=self._width, depth=1 << self._address_bits, init=[]
        )
        write, read = content.write_port(), content.read_port()
        m.d.comb += [
            write.en.eq(self.write.enable),
            write.addr.eq(self.write.address),
            write.data.eq(self.write.data),
            read.addr.eq(self.read.address),
        ]
        if self._output_register:
            m.d.sync += self.read.data.eq(read.data)
        else:
            m.d.comb += self.read.data.eq(read.data)
        return m
