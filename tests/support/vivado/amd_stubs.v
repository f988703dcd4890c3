// Stand-ins for AMD's cells, as far as the projects' tops use them: enough to elaborate, not to run.

module IBUFDS(input wire I, input wire IB, output wire O);
    assign O = I & ~IB;
endmodule

module BUFG(input wire I, output wire O);
    assign O = I;
endmodule

module IBUFDS_GTE4(
    input wire I, input wire IB, input wire CEB, output wire O, output wire ODIV2
);
    assign O = I & ~IB & ~CEB;
    assign ODIV2 = O;
endmodule

module LUT1 #(parameter [1:0] INIT = 0) (input wire I0, output wire O);
    assign O = INIT[I0];
endmodule

module MMCME4_BASE #(
    parameter real CLKIN1_PERIOD = 0,
    parameter integer DIVCLK_DIVIDE = 1,
    parameter real CLKFBOUT_MULT_F = 5,
    parameter real CLKOUT0_DIVIDE_F = 1,
    parameter integer CLKOUT1_DIVIDE = 1
) (
    input wire CLKIN1, input wire CLKFBIN, input wire RST, input wire PWRDWN,
    output wire CLKFBOUT, output wire CLKFBOUTB,
    output wire CLKOUT0, output wire CLKOUT0B, output wire CLKOUT1, output wire CLKOUT1B,
    output wire CLKOUT2, output wire CLKOUT2B, output wire CLKOUT3, output wire CLKOUT3B,
    output wire CLKOUT4, output wire CLKOUT5, output wire CLKOUT6, output wire LOCKED
);
    assign {CLKFBOUT, CLKOUT0, CLKOUT1} = {3{CLKIN1}};
    assign {CLKFBOUTB, CLKOUT0B, CLKOUT1B} = {3{~CLKIN1}};
    assign {CLKOUT2, CLKOUT2B, CLKOUT3, CLKOUT3B, CLKOUT4, CLKOUT5, CLKOUT6} = 0;
    assign LOCKED = ~RST & ~PWRDWN & (CLKFBIN | 1'b1);
endmodule

// What AMD's wizard makes with the settings of gty_25g.tcl: the ports that the top connects.
module gty_25g(
    input wire gtwiz_reset_clk_freerun_in, input wire gtwiz_reset_all_in, output wire gtpowergood_out,
    input wire gtrefclk00_in,
    output wire qpll0lock_out, output wire qpll0outclk_out, output wire qpll0outrefclk_out,
    output wire gtytxp_out, output wire gtytxn_out, input wire gtyrxp_in, input wire gtyrxn_in,
    input wire gtwiz_userclk_tx_reset_in, output wire gtwiz_userclk_tx_srcclk_out,
    output wire gtwiz_userclk_tx_usrclk_out, output wire gtwiz_userclk_tx_usrclk2_out,
    output wire gtwiz_userclk_tx_active_out, input wire gtwiz_reset_tx_pll_and_datapath_in,
    input wire gtwiz_reset_tx_datapath_in, output wire gtwiz_reset_tx_done_out,
    output wire txpmaresetdone_out, output wire txprgdivresetdone_out, input wire txpolarity_in,
    input wire [63:0] gtwiz_userdata_tx_in, input wire [5:0] txheader_in, input wire [6:0] txsequence_in,
    input wire gtwiz_userclk_rx_reset_in, output wire gtwiz_userclk_rx_srcclk_out,
    output wire gtwiz_userclk_rx_usrclk_out, output wire gtwiz_userclk_rx_usrclk2_out,
    output wire gtwiz_userclk_rx_active_out, input wire gtwiz_reset_rx_pll_and_datapath_in,
    input wire gtwiz_reset_rx_datapath_in, output wire gtwiz_reset_rx_cdr_stable_out,
    output wire gtwiz_reset_rx_done_out, output wire rxpmaresetdone_out,
    output wire rxprgdivresetdone_out, input wire rxpolarity_in, input wire rxgearboxslip_in,
    output wire [63:0] gtwiz_userdata_rx_out, output wire [1:0] rxdatavalid_out,
    output wire [5:0] rxheader_out, output wire [1:0] rxheadervalid_out, output wire rxstartofseq_out
);
    assign gtwiz_userclk_tx_usrclk2_out = gtrefclk00_in;
    assign gtwiz_userclk_rx_usrclk2_out = gtrefclk00_in;
    assign gtwiz_reset_tx_done_out = ~gtwiz_reset_all_in;
    assign gtwiz_reset_rx_done_out = ~gtwiz_reset_all_in & ~gtwiz_reset_rx_datapath_in;
    assign gtwiz_userdata_rx_out = gtwiz_userdata_tx_in;
    assign rxheader_out = txheader_in;
    assign {gtytxp_out, gtytxn_out} = {^gtwiz_userdata_tx_in, ~^gtwiz_userdata_tx_in};
    assign rxdatavalid_out = {2{gtyrxp_in}};
    assign rxheadervalid_out = {2{gtyrxn_in}};
    assign {gtpowergood_out, gtwiz_userclk_tx_active_out, gtwiz_userclk_rx_active_out} = 3'b111;
    assign {qpll0lock_out, qpll0outclk_out, qpll0outrefclk_out} = {3{gtrefclk00_in}};
    assign {gtwiz_userclk_tx_srcclk_out, gtwiz_userclk_tx_usrclk_out} = {2{gtrefclk00_in}};
    assign {gtwiz_userclk_rx_srcclk_out, gtwiz_userclk_rx_usrclk_out} = {2{gtrefclk00_in}};
    assign {txpmaresetdone_out, txprgdivresetdone_out, rxpmaresetdone_out} = 3'b111;
    assign {rxprgdivresetdone_out, rxstartofseq_out} = 2'b10;
    assign gtwiz_reset_rx_cdr_stable_out = 1'b1;
endmodule
