// The AS02MC04 card as a stand-alone 25-Gbit/s aggregation appliance: pins, clocks, transceiver, MAC.
//
// What sums is afflux_port.v, which is generated and simulated at its ports. This file connects it to
//   * eth_mac_10g and eth_phy_10g of verilog-ethernet, which work at 25 Gbit/s with a 390.625-MHz clock,
//   * gty_25g, an instance of AMD's transceiver wizard that build.tcl makes,
//   * clocks, button and LEDs of the card.
// It has been elaborated beside the real MAC, with stand-ins for AMD's cells. No board has run it.

`resetall
`timescale 1ns / 1ps
`default_nettype none

module as02mc04 (
    input  wire       clk_100mhz_p,
    input  wire       clk_100mhz_n,
    input  wire       button_n,

    input  wire       sfp_mgt_refclk_p,
    input  wire       sfp_mgt_refclk_n,
    input  wire       sfp_rx_p,
    input  wire       sfp_rx_n,
    output wire       sfp_tx_p,
    output wire       sfp_tx_n,
    input  wire       sfp_npres,
    input  wire       sfp_tx_fault,
    input  wire       sfp_los,

    output wire [1:0] sfp_led,
    output wire [3:0] led,
    output wire       led_r,
    output wire       led_g,
    output wire       led_hb
);

// Clocks: 100 MHz x 12.5 = 1250 MHz; / 8 = 156.25 MHz for the node, / 10 = 125 MHz for the resets of
// the transceiver.
wire clk_100mhz, clk_feedback, clk_156mhz_raw, clk_125mhz_raw, clk, clk_125mhz, locked;

IBUFDS clk_100mhz_buffer (.I(clk_100mhz_p), .IB(clk_100mhz_n), .O(clk_100mhz));

MMCME4_BASE #(
    .CLKIN1_PERIOD(10.0),
    .DIVCLK_DIVIDE(1),
    .CLKFBOUT_MULT_F(12.5),
    .CLKOUT0_DIVIDE_F(8.0),
    .CLKOUT1_DIVIDE(10)
) mmcm (
    .CLKIN1(clk_100mhz),
    .CLKFBIN(clk_feedback),
    .CLKFBOUT(clk_feedback),
    .CLKFBOUTB(),
    .CLKOUT0(clk_156mhz_raw),
    .CLKOUT0B(),
    .CLKOUT1(clk_125mhz_raw),
    .CLKOUT1B(),
    .CLKOUT2(),
    .CLKOUT2B(),
    .CLKOUT3(),
    .CLKOUT3B(),
    .CLKOUT4(),
    .CLKOUT5(),
    .CLKOUT6(),
    .LOCKED(locked),
    .PWRDWN(1'b0),
    .RST(1'b0)
);

BUFG clk_156mhz_buffer (.I(clk_156mhz_raw), .O(clk));
BUFG clk_125mhz_buffer (.I(clk_125mhz_raw), .O(clk_125mhz));

// The button restarts the node, and the transceiver with it.
wire rst = ~locked | ~button_n;
wire gt_reset;
reset_sync gt_reset_sync (.clk(clk_125mhz), .rst(rst), .out(gt_reset));

// Transceiver.
wire refclk;
wire tx_clk, rx_clk, tx_done, rx_done, tx_rst, rx_rst;
wire [63:0] gt_tx_data, gt_rx_data;
wire [1:0] gt_tx_header;
wire [5:0] gt_rx_header;
wire gt_slip, gt_rx_restart;

IBUFDS_GTE4 refclk_buffer (
    .I(sfp_mgt_refclk_p),
    .IB(sfp_mgt_refclk_n),
    .CEB(1'b0),
    .O(refclk),
    .ODIV2()
);

gty_25g gty (
    .gtwiz_reset_clk_freerun_in(clk_125mhz),
    .gtwiz_reset_all_in(gt_reset),
    .gtpowergood_out(),
    .gtrefclk00_in(refclk),
    .qpll0lock_out(),
    .qpll0outclk_out(),
    .qpll0outrefclk_out(),
    .gtytxp_out(sfp_tx_p),
    .gtytxn_out(sfp_tx_n),
    .gtyrxp_in(sfp_rx_p),
    .gtyrxn_in(sfp_rx_n),
    .gtwiz_userclk_tx_reset_in(1'b0),
    .gtwiz_userclk_tx_srcclk_out(),
    .gtwiz_userclk_tx_usrclk_out(),
    .gtwiz_userclk_tx_usrclk2_out(tx_clk),
    .gtwiz_userclk_tx_active_out(),
    .gtwiz_reset_tx_pll_and_datapath_in(1'b0),
    .gtwiz_reset_tx_datapath_in(1'b0),
    .gtwiz_reset_tx_done_out(tx_done),
    .txpmaresetdone_out(),
    .txprgdivresetdone_out(),
    .txpolarity_in(1'b0),
    .gtwiz_userdata_tx_in(gt_tx_data),
    .txheader_in({4'b0, gt_tx_header}),
    .txsequence_in(7'b0),
    .gtwiz_userclk_rx_reset_in(1'b0),
    .gtwiz_userclk_rx_srcclk_out(),
    .gtwiz_userclk_rx_usrclk_out(),
    .gtwiz_userclk_rx_usrclk2_out(rx_clk),
    .gtwiz_userclk_rx_active_out(),
    .gtwiz_reset_rx_pll_and_datapath_in(1'b0),
    .gtwiz_reset_rx_datapath_in(gt_rx_restart),
    .gtwiz_reset_rx_cdr_stable_out(),
    .gtwiz_reset_rx_done_out(rx_done),
    .rxpmaresetdone_out(),
    .rxprgdivresetdone_out(),
    .rxpolarity_in(1'b0),
    .rxgearboxslip_in(gt_slip),
    .gtwiz_userdata_rx_out(gt_rx_data),
    .rxdatavalid_out(),
    .rxheader_out(gt_rx_header),
    .rxheadervalid_out(),
    .rxstartofseq_out()
);

reset_sync tx_reset_sync (.clk(tx_clk), .rst(~tx_done), .out(tx_rst));
reset_sync rx_reset_sync (.clk(rx_clk), .rst(~rx_done), .out(rx_rst));

// PCS and MAC: the foreign part.
wire [63:0] xgmii_txd, xgmii_rxd;
wire [7:0] xgmii_txc, xgmii_rxc;
wire rx_status;

eth_phy_10g #(
    .BIT_REVERSE(1),
    .TX_SERDES_PIPELINE(2),
    .RX_SERDES_PIPELINE(2),
    // In cycles of 2.56 ns.
    .COUNT_125US(48828)
) phy (
    .rx_clk(rx_clk),
    .rx_rst(rx_rst),
    .tx_clk(tx_clk),
    .tx_rst(tx_rst),
    .xgmii_txd(xgmii_txd),
    .xgmii_txc(xgmii_txc),
    .xgmii_rxd(xgmii_rxd),
    .xgmii_rxc(xgmii_rxc),
    .serdes_tx_data(gt_tx_data),
    .serdes_tx_hdr(gt_tx_header),
    .serdes_rx_data(gt_rx_data),
    .serdes_rx_hdr(gt_rx_header[1:0]),
    .serdes_rx_bitslip(gt_slip),
    .serdes_rx_reset_req(gt_rx_restart),
    .tx_bad_block(),
    .rx_error_count(),
    .rx_bad_block(),
    .rx_sequence_error(),
    .rx_block_lock(),
    .rx_high_ber(),
    .rx_status(rx_status),
    .cfg_tx_prbs31_enable(1'b0),
    .cfg_rx_prbs31_enable(1'b0)
);

wire [63:0] mac_rx_tdata, mac_tx_tdata;
wire [7:0] mac_rx_tkeep, mac_tx_tkeep;
wire mac_rx_tvalid, mac_rx_tlast, mac_rx_tuser;
wire mac_tx_tvalid, mac_tx_tready, mac_tx_tlast, mac_tx_tuser;

eth_mac_10g #(
    .ENABLE_PADDING(1),
    .ENABLE_DIC(1),
    .MIN_FRAME_LENGTH(64)
) mac (
    .rx_clk(rx_clk),
    .rx_rst(rx_rst),
    .tx_clk(tx_clk),
    .tx_rst(tx_rst),
    .tx_axis_tdata(mac_tx_tdata),
    .tx_axis_tkeep(mac_tx_tkeep),
    .tx_axis_tvalid(mac_tx_tvalid),
    .tx_axis_tready(mac_tx_tready),
    .tx_axis_tlast(mac_tx_tlast),
    .tx_axis_tuser(mac_tx_tuser),
    .rx_axis_tdata(mac_rx_tdata),
    .rx_axis_tkeep(mac_rx_tkeep),
    .rx_axis_tvalid(mac_rx_tvalid),
    .rx_axis_tlast(mac_rx_tlast),
    .rx_axis_tuser(mac_rx_tuser),
    .xgmii_rxd(xgmii_rxd),
    .xgmii_rxc(xgmii_rxc),
    .xgmii_txd(xgmii_txd),
    .xgmii_txc(xgmii_txc),
    .cfg_ifg(8'd12),
    .cfg_tx_enable(1'b1),
    .cfg_rx_enable(1'b1),
    // Time stamps and flow control are not built in: their inputs do nothing.
    .tx_ptp_ts(96'd0),
    .rx_ptp_ts(96'd0),
    .tx_axis_ptp_ts(),
    .tx_axis_ptp_ts_tag(),
    .tx_axis_ptp_ts_valid(),
    .tx_lfc_req(1'b0),
    .tx_lfc_resend(1'b0),
    .rx_lfc_en(1'b0),
    .rx_lfc_req(),
    .rx_lfc_ack(1'b0),
    .tx_pfc_req(8'd0),
    .tx_pfc_resend(1'b0),
    .rx_pfc_en(8'd0),
    .rx_pfc_req(),
    .rx_pfc_ack(8'd0),
    .tx_lfc_pause_en(1'b0),
    .tx_pause_req(1'b0),
    .tx_pause_ack(),
    .tx_start_packet(),
    .tx_error_underflow(),
    .rx_start_packet(),
    .rx_error_bad_frame(),
    .rx_error_bad_fcs(),
    .stat_tx_mcf(),
    .stat_rx_mcf(),
    .stat_tx_lfc_pkt(),
    .stat_tx_lfc_xon(),
    .stat_tx_lfc_xoff(),
    .stat_tx_lfc_paused(),
    .stat_tx_pfc_pkt(),
    .stat_tx_pfc_xon(),
    .stat_tx_pfc_xoff(),
    .stat_tx_pfc_paused(),
    .stat_rx_lfc_pkt(),
    .stat_rx_lfc_xon(),
    .stat_rx_lfc_xoff(),
    .stat_rx_lfc_paused(),
    .stat_rx_pfc_pkt(),
    .stat_rx_pfc_xon(),
    .stat_rx_pfc_xoff(),
    .stat_rx_pfc_paused(),
    .cfg_mcf_rx_eth_dst_mcast(48'd0),
    .cfg_mcf_rx_check_eth_dst_mcast(1'b0),
    .cfg_mcf_rx_eth_dst_ucast(48'd0),
    .cfg_mcf_rx_check_eth_dst_ucast(1'b0),
    .cfg_mcf_rx_eth_src(48'd0),
    .cfg_mcf_rx_check_eth_src(1'b0),
    .cfg_mcf_rx_eth_type(16'd0),
    .cfg_mcf_rx_opcode_lfc(16'd0),
    .cfg_mcf_rx_check_opcode_lfc(1'b0),
    .cfg_mcf_rx_opcode_pfc(16'd0),
    .cfg_mcf_rx_check_opcode_pfc(1'b0),
    .cfg_mcf_rx_forward(1'b0),
    .cfg_mcf_rx_enable(1'b0),
    .cfg_tx_lfc_eth_dst(48'd0),
    .cfg_tx_lfc_eth_src(48'd0),
    .cfg_tx_lfc_eth_type(16'd0),
    .cfg_tx_lfc_opcode(16'd0),
    .cfg_tx_lfc_en(1'b0),
    .cfg_tx_lfc_quanta(16'd0),
    .cfg_tx_lfc_refresh(16'd0),
    .cfg_tx_pfc_eth_dst(48'd0),
    .cfg_tx_pfc_eth_src(48'd0),
    .cfg_tx_pfc_eth_type(16'd0),
    .cfg_tx_pfc_opcode(16'd0),
    .cfg_tx_pfc_en(1'b0),
    .cfg_tx_pfc_quanta(128'd0),
    .cfg_tx_pfc_refresh(128'd0),
    .cfg_rx_lfc_opcode(16'd0),
    .cfg_rx_lfc_en(1'b0),
    .cfg_rx_pfc_opcode(16'd0),
    .cfg_rx_pfc_en(1'b0)
);

// The node, and the management in place of a host.
wire entropy, configured, authenticated, fault, tx_paused, idle;
wire [31:0] rx_dropped, tx_cut;

afflux_entropy noise (.clk(clk), .out(entropy));

afflux_port port (
    .clk(clk),
    .rst(rst),
    .mac_rx_clk(rx_clk),
    .mac_rx_rst(rx_rst),
    .mac_rx_tdata(mac_rx_tdata),
    .mac_rx_tkeep(mac_rx_tkeep),
    .mac_rx_tvalid(mac_rx_tvalid),
    .mac_rx_tlast(mac_rx_tlast),
    .mac_rx_tuser(mac_rx_tuser),
    .mac_tx_clk(tx_clk),
    .mac_tx_rst(tx_rst),
    .mac_tx_tdata(mac_tx_tdata),
    .mac_tx_tkeep(mac_tx_tkeep),
    .mac_tx_tvalid(mac_tx_tvalid),
    .mac_tx_tready(mac_tx_tready),
    .mac_tx_tlast(mac_tx_tlast),
    .mac_tx_tuser(mac_tx_tuser),
    .entropy(entropy),
    .configured(configured),
    .authenticated(authenticated),
    .fault(fault),
    .rx_dropped(rx_dropped),
    .tx_cut(tx_cut),
    .tx_paused(tx_paused),
    .idle(idle)
);

// LEDs. Bits of one counter give the times: 0.43 s at bit 26.
reg [26:0] time_ticks = 0;
reg [23:0] authentic_for = 0;
reg [23:0] busy_for = 0;
reg ran_dry = 0;

always @(posedge clk) begin
    time_ticks <= time_ticks + 1;
    authentic_for <= authenticated ? {24{1'b1}} : authentic_for - (authentic_for != 0);
    busy_for <= ~idle ? {24{1'b1}} : busy_for - (busy_for != 0);
end

always @(posedge tx_clk) ran_dry <= ran_dry | tx_paused;

assign led_hb = time_ticks[26];
assign sfp_led = {1'b0, rx_status};
assign led = {|rx_dropped | |tx_cut, authentic_for != 0, busy_for != 0, configured};
assign led_r = sfp_npres | sfp_los | sfp_tx_fault | fault | ran_dry;
assign led_g = rx_status & configured;

endmodule

// A reset that begins at once, with no clock or any, and ends in step with the clock.
module reset_sync (
    input  wire clk,
    input  wire rst,
    output wire out
);

(* ASYNC_REG = "TRUE", SHREG_EXTRACT = "NO" *) reg [3:0] stages = 4'b1111;

always @(posedge clk or posedge rst)
    if (rst) stages <= 4'b1111;
    else stages <= {stages[2:0], 1'b0};

assign out = stages[3];

endmodule

`resetall
