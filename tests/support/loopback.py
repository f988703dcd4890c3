"""The least that has the engine's ports, as Verilog: what enters leaves, in the same cycle.

The binding is tried with this, because its possible faults (to lose a beat, to ignore
back-pressure) are plain to see, and because it compiles in seconds. Unlike the engine, it can
stall.

Register 0 reads 0x4146; register 4 can be written and read; register 8 counts beats with rx_error.
Writes to register 12 are refused.
"""


def loopback(bus_bits: int) -> str:
    return f"""
module afflux_engine(
  input clk, input rst,
  input [{bus_bits - 1}:0] rx_data, input [{bus_bits // 8 - 1}:0] rx_keep,
  input rx_last, input rx_error, input rx_valid, output rx_ready,
  output [{bus_bits - 1}:0] tx_data, output [{bus_bits // 8 - 1}:0] tx_keep,
  output tx_last, output tx_error, output tx_valid, input tx_ready,
  input [11:0] reg_address, input [31:0] reg_write_data, input reg_write,
  output reg [31:0] reg_read_data, output reg reg_refused, output idle);
  assign tx_data = rx_data;
  assign tx_keep = rx_keep;
  assign tx_last = rx_last;
  assign tx_error = 0;
  assign tx_valid = rx_valid;
  assign rx_ready = tx_ready;
  assign idle = !rx_valid;
  reg [31:0] scratch, errors;
  always @(posedge clk) begin
    if (rx_valid & rx_ready & rx_error) errors <= errors + 1;
    if (reg_write & reg_address == 4) scratch <= reg_write_data;
    reg_refused <= reg_write & reg_address == 12;
    case (reg_address)
      0: reg_read_data <= 32'h4146;
      4: reg_read_data <= scratch;
      8: reg_read_data <= errors;
      default: reg_read_data <= 0;
    endcase
    if (rst) begin scratch <= 0; errors <= 0; end
  end
endmodule
"""


def never_idle(bus_bits: int) -> str:
    """Return a loopback that claims to hold something for ever."""
    return loopback(bus_bits).replace("assign idle = !rx_valid", "assign idle = 0")


def broken_keep(bus_bits: int) -> str:
    """Return a loopback whose output stream leaves the first byte of each beat out."""
    return loopback(bus_bits).replace("tx_keep = rx_keep", "tx_keep = rx_keep & ~1")
