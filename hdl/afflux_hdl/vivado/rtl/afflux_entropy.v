// A bit of noise in each cycle: eight rings of three inverters, sampled and added up modulo 2.
//
// The management draws its session numbers from it, many cycles for each bit. How well the rings of a
// certain chip run free of its clocks nobody has measured; the management says what happens if they
// do not (docs/management.md). Simulators cannot run the rings: there the management's pin is driven
// by the testbench.

`resetall
`timescale 1ns / 1ps
`default_nettype none

module afflux_entropy (
    input  wire clk,
    output wire out
);

(* ASYNC_REG = "TRUE", SHREG_EXTRACT = "NO" *) reg [7:0] sampled = 0, settled = 0;
reg mixed = 0;

genvar n;
generate
    for (n = 0; n < 8; n = n + 1) begin : ring
        (* DONT_TOUCH = "TRUE", ALLOW_COMBINATORIAL_LOOPS = "TRUE" *) wire [2:0] link;
        (* DONT_TOUCH = "TRUE" *) LUT1 #(.INIT(2'b01)) first (.I0(link[2]), .O(link[0]));
        (* DONT_TOUCH = "TRUE" *) LUT1 #(.INIT(2'b01)) second (.I0(link[0]), .O(link[1]));
        (* DONT_TOUCH = "TRUE" *) LUT1 #(.INIT(2'b01)) third (.I0(link[1]), .O(link[2]));
        always @(posedge clk) sampled[n] <= link[2];
    end
endgenerate

always @(posedge clk) begin
    settled <= sampled;
    mixed <= ^settled;
end

assign out = mixed;

endmodule

`resetall
