// The node behind AMD's CMAC: from the four lanes of a QSFP28 cage to a whole aggregator.
//
// afflux_port.v is generated, and simulated at its ports by CMAC's rules. This file connects it to
// cmac_100g, an instance of AMD's core that cmac_100g.tcl makes, and starts that as its guide (PG203)
// says. It has been elaborated with a stand-in for the core. No board has run it.
//
// What a board's own top adds: a free-running clock of 100 MHz, the node's clock of 250 MHz, a reset,
// and a bit of noise (afflux_entropy.v is one).

`resetall
`timescale 1ns / 1ps
`default_nettype none

module afflux_cmac (
    input  wire        clk_100mhz,
    input  wire        clk_250mhz,
    // May come at any time and without a clock.
    input  wire        rst,

    input  wire        gt_refclk_p,
    input  wire        gt_refclk_n,
    input  wire [3:0]  gt_rxp,
    input  wire [3:0]  gt_rxn,
    output wire [3:0]  gt_txp,
    output wire [3:0]  gt_txn,

    input  wire        entropy,
    output wire        configured,
    output wire        authenticated,
    output wire        fault,
    output wire        link,
    output wire        idle,
    // Frames that found no room before the node, and such as were too long on the way out.
    output wire [31:0] rx_dropped,
    output wire [31:0] tx_cut,
    // Must never rise: CMAC ran dry within a frame.
    output reg         tx_underflow
);

// One clock of CMAC serves both of its streams.
wire clk, usr_rx_reset, usr_tx_reset, aligned, underflow, overflow, paused;

wire [511:0] rx_tdata, tx_tdata;
wire [63:0] rx_tkeep, tx_tkeep;
wire rx_tvalid, rx_tlast, rx_tuser;
wire tx_tvalid, tx_tready, tx_tlast, tx_tuser;

// Start: receive, and tell the other end that nothing comes yet; send when all lanes are aligned.
(* ASYNC_REG = "TRUE" *) reg [1:0] aligned_stages = 0;
reg enable_tx = 0;

always @(posedge clk) begin
    aligned_stages <= {aligned_stages[0], aligned};
    enable_tx <= aligned_stages[1] & ~usr_tx_reset;
    tx_underflow <= ~usr_tx_reset & (tx_underflow | underflow | overflow | paused);
end

assign link = enable_tx;

cmac_100g cmac (
    .gt_ref_clk_p(gt_refclk_p),
    .gt_ref_clk_n(gt_refclk_n),
    .gt_rxp_in(gt_rxp),
    .gt_rxn_in(gt_rxn),
    .gt_txp_out(gt_txp),
    .gt_txn_out(gt_txn),
    .gt_loopback_in(12'd0),
    .init_clk(clk_100mhz),
    .sys_reset(rst),
    .gt_txusrclk2(clk),
    .rx_clk(clk),
    .usr_rx_reset(usr_rx_reset),
    .usr_tx_reset(usr_tx_reset),
    .core_rx_reset(1'b0),
    .core_tx_reset(1'b0),
    .core_drp_reset(1'b0),
    .gtwiz_reset_tx_datapath(1'b0),
    .gtwiz_reset_rx_datapath(1'b0),

    .rx_axis_tdata(rx_tdata),
    .rx_axis_tkeep(rx_tkeep),
    .rx_axis_tvalid(rx_tvalid),
    .rx_axis_tlast(rx_tlast),
    .rx_axis_tuser(rx_tuser),
    .tx_axis_tdata(tx_tdata),
    .tx_axis_tkeep(tx_tkeep),
    .tx_axis_tvalid(tx_tvalid),
    .tx_axis_tready(tx_tready),
    .tx_axis_tlast(tx_tlast),
    .tx_axis_tuser(tx_tuser),
    .tx_ovfout(overflow),
    .tx_unfout(underflow),
    .tx_preamblein(56'd0),

    .stat_rx_aligned(aligned),
    .ctl_rx_enable(1'b1),
    .ctl_rx_force_resync(1'b0),
    .ctl_rx_test_pattern(1'b0),
    .ctl_tx_enable(enable_tx),
    .ctl_tx_test_pattern(1'b0),
    .ctl_tx_send_idle(1'b0),
    .ctl_tx_send_lfi(1'b0),
    .ctl_tx_send_rfi(~enable_tx),

    // RS-FEC (clause 91), as 100GBASE-SR4 and -CR4 want it: corrected, and errors marked.
    .ctl_rx_rsfec_enable(1'b1),
    .ctl_rx_rsfec_enable_correction(1'b1),
    .ctl_rx_rsfec_enable_indication(1'b1),
    .ctl_tx_rsfec_enable(1'b1),
    .ctl_rsfec_ieee_error_indication_mode(1'b0),

    .drp_clk(1'b0),
    .drp_addr(10'd0),
    .drp_di(16'd0),
    .drp_en(1'b0),
    .drp_we(1'b0)
);

afflux_port port (
    .clk(clk_250mhz),
    .rst(rst),
    .mac_rx_clk(clk),
    .mac_rx_rst(usr_rx_reset),
    .mac_rx_tdata(rx_tdata),
    .mac_rx_tkeep(rx_tkeep),
    .mac_rx_tvalid(rx_tvalid),
    .mac_rx_tlast(rx_tlast),
    .mac_rx_tuser(rx_tuser),
    .mac_tx_clk(clk),
    // While it may not send, frames wait; after a while the node's link counts as down.
    .mac_tx_rst(~enable_tx),
    .mac_tx_tdata(tx_tdata),
    .mac_tx_tkeep(tx_tkeep),
    .mac_tx_tvalid(tx_tvalid),
    .mac_tx_tready(tx_tready),
    .mac_tx_tlast(tx_tlast),
    .mac_tx_tuser(tx_tuser),
    .entropy(entropy),
    .configured(configured),
    .authenticated(authenticated),
    .fault(fault),
    .rx_dropped(rx_dropped),
    .tx_cut(tx_cut),
    .tx_paused(paused),
    .idle(idle)
);

endmodule

`resetall
