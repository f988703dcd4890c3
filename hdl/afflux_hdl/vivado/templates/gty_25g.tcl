# The transceiver: one channel of a GTY at 25.78125 Gbit/s from a reference of 156.25 MHz, with its
# PLL, its clocks and its reset controller inside. AMD's wizard is part of Vivado and needs no licence.

set rate 25.78125
set reference 156.25
# The PLL runs at half the rate, 82.5 times the reference: 82, and half of 2^24.
set fraction [expr {int(fmod($rate * 1000 / 2 / $reference, 1) * pow(2, 24))}]

create_ip -name gtwizard_ultrascale -vendor xilinx.com -library ip -module_name gty_25g
set_property CONFIG.preset {GTY-10GBASE-R} [get_ips gty_25g]
set_property -dict [list \
    CONFIG.TX_LINE_RATE $rate \
    CONFIG.TX_REFCLK_FREQUENCY $reference \
    CONFIG.TX_QPLL_FRACN_NUMERATOR $fraction \
    CONFIG.TX_USER_DATA_WIDTH {64} \
    CONFIG.TX_INT_DATA_WIDTH {64} \
    CONFIG.RX_LINE_RATE $rate \
    CONFIG.RX_REFCLK_FREQUENCY $reference \
    CONFIG.RX_QPLL_FRACN_NUMERATOR $fraction \
    CONFIG.RX_USER_DATA_WIDTH {64} \
    CONFIG.RX_INT_DATA_WIDTH {64} \
    CONFIG.RX_EQ_MODE {DFE} \
    CONFIG.ENABLE_OPTIONAL_PORTS {qpll0lock_out rxpolarity_in txpolarity_in} \
    CONFIG.LOCATE_COMMON {CORE} \
    CONFIG.LOCATE_RESET_CONTROLLER {CORE} \
    CONFIG.LOCATE_TX_USER_CLOCKING {CORE} \
    CONFIG.LOCATE_RX_USER_CLOCKING {CORE} \
    CONFIG.LOCATE_USER_DATA_WIDTH_SIZING {CORE} \
    CONFIG.FREERUN_FREQUENCY {125} \
    CONFIG.DISABLE_LOC_XDC {1} \
] [get_ips gty_25g]
