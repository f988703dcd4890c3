// Models of the ECP5 primitives that the boards instantiate, written from Lattice's descriptions
// (FPGA-TN-02032 for DDR registers and delays, FPGA-TN-02200 for clocks, FPGA-TN-02039 for set and
// reset). Only what is used is there: no clock enables, no dynamic delays.
//
// With AFFLUX_DELAYS defined (Verilator: --timing), delay lines delay by 25 ps a tap, and there are
// an oscillator and a PLL. Without, delay lines are wires, so pins must not change where their clock
// has an edge; that is enough for `afflux_rgmii`, whose clocks are pins.

`ifdef AFFLUX_DELAYS
`timescale 1ps / 1ps
`endif

// One pin in, two bits out in each cycle: Q0 is of the rising edge, Q1 of the falling one behind it.
// Both come with the next rising edge.
module IDDRX1F (
    input  D,
    input  SCLK,
    input  RST,
    output reg Q0,
    output reg Q1
);
  reg first, second;
  initial {Q0, Q1, first, second} = 4'b0000;
  always @(posedge SCLK) begin
    first <= D;
    Q0 <= first & ~RST;
    Q1 <= second & ~RST;
  end
  always @(negedge SCLK) second <= D;
endmodule

// Two bits in with each rising edge, one pin out: D0 while the clock is high, then D1.
module ODDRX1F (
    input  D0,
    input  D1,
    input  SCLK,
    input  RST,
    output Q
);
  reg first, second;
  initial {first, second} = 2'b00;
  always @(posedge SCLK) begin
    first  <= D0 & ~RST;
    second <= D1 & ~RST;
  end
  assign Q = SCLK ? first : second;
endmodule

module DELAYG #(
    parameter DEL_MODE  = "USER_DEFINED",
    parameter DEL_VALUE = 0
) (
    input  A,
    output Z
);
`ifdef AFFLUX_DELAYS
  assign #(DEL_VALUE * 25) Z = A;
`else
  assign Z = A;
`endif
endmodule

// A gate of a clock: the enable is taken while the clock is low.
module DCCA (
    input  CLKI,
    input  CE,
    output CLKO
);
  reg enabled;
  initial enabled = 1'b0;
  always @(negedge CLKI) enabled <= CE;
  assign CLKO = CLKI & enabled;
endmodule

module TRELLIS_FF #(
    parameter GSR = "ENABLED",
    parameter CEMUX = "CE",
    parameter CLKMUX = "CLK",
    parameter LSRMUX = "LSR",
    parameter REGSET = "RESET"
) (
    input  CLK,
    input  LSR,
    input  CE,
    input  DI,
    output reg Q
);
  initial Q = REGSET == "SET";
  always @(posedge CLK)
    if (LSR) Q <= REGSET == "SET";
    else if (CE || CEMUX == "1") Q <= DI;
endmodule

// The net that resets all registers. What it does is not modelled: in simulations of
// `afflux_rgmii` the pin `rst` takes its place.
module SGSR (
    input CLK,
    input GSR
);
endmodule

`ifdef AFFLUX_DELAYS
module OSCG #(
    parameter DIV = 128
) (
    output reg OSC
);
  initial OSC = 1'b0;
  always #(DIV * 1613) OSC = ~OSC;  // 310 MHz divided
endmodule

// The two outputs that are used, in phase; locked after 16 cycles of the input.
module EHXPLLL #(
    parameter CLKI_DIV = 1,
    parameter CLKFB_DIV = 1,
    parameter CLKOP_DIV = 1,
    parameter CLKOS_DIV = 1,
    parameter CLKOP_CPHASE = 0,
    parameter CLKOS_CPHASE = 0,
    parameter CLKOP_FPHASE = 0,
    parameter CLKOS_FPHASE = 0,
    parameter CLKOP_ENABLE = "ENABLED",
    parameter CLKOS_ENABLE = "DISABLED",
    parameter FEEDBK_PATH = "CLKOP",
    parameter PLLRST_ENA = "DISABLED",
    parameter INTFB_WAKE = "DISABLED",
    parameter STDBY_ENABLE = "DISABLED",
    parameter DPHASE_SOURCE = "DISABLED",
    parameter OUTDIVIDER_MUXA = "DIVA",
    parameter OUTDIVIDER_MUXB = "DIVB",
    parameter OUTDIVIDER_MUXC = "DIVC",
    parameter OUTDIVIDER_MUXD = "DIVD"
) (
    input CLKI,
    input CLKFB,
    input RST,
    input STDBY,
    input ENCLKOP,
    input PLLWAKESYNC,
    input PHASESEL0,
    input PHASESEL1,
    input PHASEDIR,
    input PHASESTEP,
    input PHASELOADREG,
    output reg CLKOP,
    output reg CLKOS,
    output reg LOCK
);
  time edge_ps, period_ps;
  integer edges;
  initial begin
    {CLKOP, CLKOS, LOCK} = 3'b000;
    edges = 0;
  end
  always @(posedge CLKI) begin
    period_ps = $time - edge_ps;
    edge_ps = $time;
    edges = edges + 1;
    if (edges == 16) LOCK = 1'b1;
  end
  wire running = edges > 2;
  always begin
    wait (running);
    #(period_ps * CLKI_DIV / (2 * CLKFB_DIV)) CLKOP = ~CLKOP;
  end
  always begin
    wait (running);
    #(period_ps * CLKI_DIV * CLKOS_DIV / (2 * CLKFB_DIV * CLKOP_DIV)) CLKOS = ~CLKOS;
  end
endmodule
`endif
