# AMD's 100G Ethernet core for @board@, with its transceivers. It needs a licence, which AMD gives away
# ("UltraScale+ Integrated 100G Ethernet Subsystem"). Streams, no registers: pins control it.

create_ip -name cmac_usplus -vendor xilinx.com -library ip -module_name cmac_100g
set_property -dict [list \
    CONFIG.CMAC_CAUI4_MODE {1} \
    CONFIG.NUM_LANES {4x25} \
    CONFIG.GT_REF_CLK_FREQ {@refclk_mhz@} \
    CONFIG.GT_DRP_CLK {100.00} \
    CONFIG.USER_INTERFACE {AXIS} \
    CONFIG.ENABLE_AXI_INTERFACE {0} \
    CONFIG.INCLUDE_STATISTICS_COUNTERS {0} \
    CONFIG.INCLUDE_RS_FEC {1} \
    CONFIG.TX_FLOW_CONTROL {0} \
    CONFIG.RX_FLOW_CONTROL {0} \
    CONFIG.TX_FCS_INS_ENABLE {1} \
    CONFIG.RX_DELETE_FCS {1} \
    CONFIG.RX_MIN_PACKET_LEN {64} \
    CONFIG.RX_MAX_PACKET_LEN {9600} \
    CONFIG.ENABLE_PIPELINE_REG {1} \
    CONFIG.CMAC_CORE_SELECT {@core@} \
    CONFIG.GT_GROUP_SELECT {@first_lane@~@last_lane@} \
    CONFIG.LANE1_GT_LOC {@lane_one@} \
    CONFIG.LANE2_GT_LOC {@lane_two@} \
    CONFIG.LANE3_GT_LOC {@lane_three@} \
    CONFIG.LANE4_GT_LOC {@lane_four@} \
    CONFIG.LANE5_GT_LOC {NA} \
    CONFIG.LANE6_GT_LOC {NA} \
    CONFIG.LANE7_GT_LOC {NA} \
    CONFIG.LANE8_GT_LOC {NA} \
    CONFIG.LANE9_GT_LOC {NA} \
    CONFIG.LANE10_GT_LOC {NA} \
] [get_ips cmac_100g]
