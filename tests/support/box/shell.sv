// What the shell puts around a plugin of the box, as far as tests need it: the module box_250mhz with
// its ports, and the module that makes resets. Written from the facts in docs/boards.md; the real ones
// are in the shell's repository.

// A request is a single cycle of mod_rstn = 0. The reset is held for RESET_DURATION cycles; the module
// is done when it has ended. At power-up nothing is done until there has been a request.
module generic_reset #(
  parameter int NUM_INPUT_CLK = 1,
  parameter int RESET_DURATION = 100
) (
  input mod_rstn,
  output reg mod_rst_done,
  input [NUM_INPUT_CLK-1:0] clk,
  output [NUM_INPUT_CLK-1:0] rstn
);
  reg [15:0] left;
  reg holding;
  initial begin
    mod_rst_done = 0;
    left = 0;
    holding = 0;
  end
  assign rstn = {NUM_INPUT_CLK{!holding}};
  always @(posedge clk[0]) begin
    if (!mod_rstn) begin
      holding <= 1;
      left <= RESET_DURATION;
      mod_rst_done <= 0;
    end else if (holding && left != 0) begin
      left <= left - 1;
    end else if (holding) begin
      holding <= 0;
      mod_rst_done <= 1;
    end
  end
endmodule

module box_250mhz #(
  parameter int USE_PHYS_FUNC = 1,
  parameter int NUM_PHYS_FUNC = @FUNCTIONS@,
  parameter int NUM_QDMA = 1,
  parameter int NUM_CMAC_PORT = @PORTS@,
  localparam int P = NUM_PHYS_FUNC * NUM_QDMA,
  localparam int C = NUM_CMAC_PORT
) (
  input s_axil_awvalid, input [31:0] s_axil_awaddr, output s_axil_awready,
  input s_axil_wvalid, input [31:0] s_axil_wdata, output s_axil_wready,
  output s_axil_bvalid, output [1:0] s_axil_bresp, input s_axil_bready,
  input s_axil_arvalid, input [31:0] s_axil_araddr, output s_axil_arready,
  output s_axil_rvalid, output [31:0] s_axil_rdata, output [1:0] s_axil_rresp,
  input s_axil_rready,

  input [P-1:0] s_axis_qdma_h2c_tvalid, input [512*P-1:0] s_axis_qdma_h2c_tdata,
  input [64*P-1:0] s_axis_qdma_h2c_tkeep, input [P-1:0] s_axis_qdma_h2c_tlast,
  input [16*P-1:0] s_axis_qdma_h2c_tuser_size, input [16*P-1:0] s_axis_qdma_h2c_tuser_src,
  input [16*P-1:0] s_axis_qdma_h2c_tuser_dst, output [P-1:0] s_axis_qdma_h2c_tready,

  output [P-1:0] m_axis_qdma_c2h_tvalid, output [512*P-1:0] m_axis_qdma_c2h_tdata,
  output [64*P-1:0] m_axis_qdma_c2h_tkeep, output [P-1:0] m_axis_qdma_c2h_tlast,
  output [16*P-1:0] m_axis_qdma_c2h_tuser_size, output [16*P-1:0] m_axis_qdma_c2h_tuser_src,
  output [16*P-1:0] m_axis_qdma_c2h_tuser_dst, input [P-1:0] m_axis_qdma_c2h_tready,

  output [C-1:0] m_axis_adap_tx_250mhz_tvalid, output [512*C-1:0] m_axis_adap_tx_250mhz_tdata,
  output [64*C-1:0] m_axis_adap_tx_250mhz_tkeep, output [C-1:0] m_axis_adap_tx_250mhz_tlast,
  output [16*C-1:0] m_axis_adap_tx_250mhz_tuser_size,
  output [16*C-1:0] m_axis_adap_tx_250mhz_tuser_src,
  output [16*C-1:0] m_axis_adap_tx_250mhz_tuser_dst, input [C-1:0] m_axis_adap_tx_250mhz_tready,

  input [C-1:0] s_axis_adap_rx_250mhz_tvalid, input [512*C-1:0] s_axis_adap_rx_250mhz_tdata,
  input [64*C-1:0] s_axis_adap_rx_250mhz_tkeep, input [C-1:0] s_axis_adap_rx_250mhz_tlast,
  input [16*C-1:0] s_axis_adap_rx_250mhz_tuser_size,
  input [16*C-1:0] s_axis_adap_rx_250mhz_tuser_src,
  input [16*C-1:0] s_axis_adap_rx_250mhz_tuser_dst, output [C-1:0] s_axis_adap_rx_250mhz_tready,

  input [15:0] mod_rstn, output [15:0] mod_rst_done,
  input box_rstn, output box_rst_done,
  input axil_aclk, input axis_aclk
);
  wire internal_box_rstn;
  generic_reset #(.NUM_INPUT_CLK(1), .RESET_DURATION(100)) box_reset (
    .mod_rstn(box_rstn), .mod_rst_done(box_rst_done), .clk(axil_aclk), .rstn(internal_box_rstn)
  );
`include "box_250mhz_address_map_inst.vh"
`include "user_plugin_250mhz_inst.vh"
endmodule
