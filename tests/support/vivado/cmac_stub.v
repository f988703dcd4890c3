// What AMD's core generator makes with the settings of cmac_100g.tcl: the ports that the top connects.
// Enough to elaborate, not to run.

module cmac_100g(
    input wire gt_ref_clk_p, input wire gt_ref_clk_n,
    input wire [3:0] gt_rxp_in, input wire [3:0] gt_rxn_in,
    output wire [3:0] gt_txp_out, output wire [3:0] gt_txn_out, input wire [11:0] gt_loopback_in,
    input wire init_clk, input wire sys_reset, output wire gt_txusrclk2, input wire rx_clk,
    output wire usr_rx_reset, output wire usr_tx_reset,
    input wire core_rx_reset, input wire core_tx_reset, input wire core_drp_reset,
    input wire gtwiz_reset_tx_datapath, input wire gtwiz_reset_rx_datapath,
    output wire [511:0] rx_axis_tdata, output wire [63:0] rx_axis_tkeep, output wire rx_axis_tvalid,
    output wire rx_axis_tlast, output wire rx_axis_tuser,
    input wire [511:0] tx_axis_tdata, input wire [63:0] tx_axis_tkeep, input wire tx_axis_tvalid,
    output wire tx_axis_tready, input wire tx_axis_tlast, input wire tx_axis_tuser,
    output wire tx_ovfout, output wire tx_unfout, input wire [55:0] tx_preamblein,
    output wire stat_rx_aligned, input wire ctl_rx_enable, input wire ctl_rx_force_resync,
    input wire ctl_rx_test_pattern, input wire ctl_tx_enable, input wire ctl_tx_test_pattern,
    input wire ctl_tx_send_idle, input wire ctl_tx_send_lfi, input wire ctl_tx_send_rfi,
    input wire ctl_rx_rsfec_enable, input wire ctl_rx_rsfec_enable_correction,
    input wire ctl_rx_rsfec_enable_indication, input wire ctl_tx_rsfec_enable,
    input wire ctl_rsfec_ieee_error_indication_mode,
    input wire drp_clk, input wire [9:0] drp_addr, input wire [15:0] drp_di, input wire drp_en,
    input wire drp_we
);
    wire unused = &{
        gt_ref_clk_n, gt_rxn_in, gt_loopback_in, init_clk, rx_clk, core_rx_reset, core_tx_reset,
        core_drp_reset, gtwiz_reset_tx_datapath, gtwiz_reset_rx_datapath, tx_preamblein, ctl_rx_enable,
        ctl_rx_force_resync, ctl_rx_test_pattern, ctl_tx_test_pattern, ctl_tx_send_idle,
        ctl_tx_send_lfi, ctl_tx_send_rfi, ctl_rx_rsfec_enable, ctl_rx_rsfec_enable_correction,
        ctl_rx_rsfec_enable_indication, ctl_tx_rsfec_enable, ctl_rsfec_ieee_error_indication_mode,
        drp_clk, drp_addr, drp_di, drp_en, drp_we
    };
    assign gt_txusrclk2 = gt_ref_clk_p;
    assign {usr_rx_reset, usr_tx_reset} = {2{sys_reset}};
    assign {rx_axis_tdata, rx_axis_tkeep, rx_axis_tvalid} = {tx_axis_tdata, tx_axis_tkeep, tx_axis_tvalid};
    assign {rx_axis_tlast, rx_axis_tuser, tx_axis_tready} = {tx_axis_tlast, tx_axis_tuser, ctl_tx_enable};
    assign {gt_txp_out, gt_txn_out} = {gt_rxp_in, ~gt_rxp_in};
    assign {tx_ovfout, tx_unfout, stat_rx_aligned} = {2'b0, ~sys_reset & (unused | 1'b1)};
endmodule
