# What the node behind CMAC takes and how fast it is on @board@: synthesis, placement and routing of
# afflux_port alone, out of context, without AMD's core. Generated; not run where it was generated.
#
#   vivado -mode batch -source ooc.tcl
#
# It ends with reports/ooc_*.rpt, and with an error if timing is not met.

set here [file normalize [file dirname [info script]]]
set part @part@
if {[llength [get_parts -quiet $part]] == 0} {
    error "this Vivado has no part $part: install its family"
}
file mkdir $here/reports

create_project -in_memory -part $part
read_verilog $here/rtl/afflux_port.v
synth_design -top afflux_port -part $part -mode out_of_context -flatten_hierarchy rebuilt

create_clock -name node -period 4.000 [get_ports clk]
create_clock -name cmac_rx -period 3.103 [get_ports mac_rx_clk]
create_clock -name cmac_tx -period 3.103 [get_ports mac_tx_clk]
# What is at the other ends of the ports is not here: half a cycle is left for it.
foreach {clock period ins outs} {
    cmac_rx 3.103 {mac_rx_t*} {}
    cmac_tx 3.103 {mac_tx_tready} {mac_tx_tdata* mac_tx_tkeep* mac_tx_tvalid mac_tx_tlast mac_tx_tuser}
} {
    set_input_delay -clock $clock [expr {$period / 2}] [get_ports $ins]
    if {[llength $outs]} {
        set_output_delay -clock $clock [expr {$period / 2}] [get_ports $outs]
    }
}
set_false_path -from [get_ports {rst mac_rx_rst mac_tx_rst entropy}]
set_false_path -to [get_ports {configured authenticated fault rx_dropped* tx_cut* tx_paused idle}]
source $here/constraints/crossings_ooc.tcl

opt_design
place_design
phys_opt_design
route_design

report_timing_summary -max_paths 20 -file $here/reports/ooc_timing.rpt
report_utilization -hierarchical -hierarchical_depth 4 -file $here/reports/ooc_utilisation.rpt
report_cdc -details -file $here/reports/ooc_crossings.rpt
report_bus_skew -file $here/reports/ooc_bus_skew.rpt
foreach {kind delay} {setup max hold min} {
    set slack [get_property SLACK [get_timing_paths -delay_type $delay -max_paths 1]]
    puts "worst $kind slack: $slack ns"
    if {$slack < 0} { error "timing is not met ($kind, $slack ns): see reports/ooc_timing.rpt" }
}
