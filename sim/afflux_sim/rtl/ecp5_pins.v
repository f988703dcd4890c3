// The cells of an ECP5 that are between the RGMII pins and the fabric, for a simulator without
// delays: written from Lattice's FPGA-TN-02032. Delay lines are wires here, so pins must not change
// where their clock has an edge.

// One pin in, two bits out in each cycle: Q0 is of the rising edge, Q1 of the falling one behind it.
// Both come with the next rising edge.
module IDDRX1F (input D, input SCLK, input RST, output reg Q0, output reg Q1);
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
module ODDRX1F (input D0, input D1, input SCLK, input RST, output Q);
  reg first, second;
  initial {first, second} = 2'b00;
  always @(posedge SCLK) begin
    first <= D0 & ~RST;
    second <= D1 & ~RST;
  end
  assign Q = SCLK ? first : second;
endmodule

module DELAYG #(parameter DEL_MODE = "USER_DEFINED", parameter DEL_VALUE = 0) (input A, output Z);
  assign Z = A;
endmodule
