# Makes the project and the bitstream. Generated; not run where it was generated.
#
#   vivado -mode batch -source build.tcl -tclargs MAC [JOBS]
#
# MAC is a checkout of verilog-ethernet at @mac_commit@ (README.md).
# JOBS is how many runs Vivado may start at once: 4. What comes of it: vivado/@top@.xpr, @top@.bit,
# reports/. It stops with an error if anything is missing, or if timing is not met.

if {$argc < 1 || $argc > 2} {
    error "usage: vivado -mode batch -source build.tcl -tclargs MAC \[JOBS\]"
}
set mac [file normalize [lindex $argv 0]]
set jobs [expr {$argc == 2 ? [lindex $argv 1] : 4}]
set here [file normalize [file dirname [info script]]]
set part @part@
set commit @mac_commit@

set sources {
@sources@}
set mac_sources {
@mac_files@}

# Everything must be there before hours are spent.
if {[llength [get_parts -quiet $part]] == 0} {
    error "this Vivado has no part $part: install Kintex UltraScale+ (the free edition has it)"
}
foreach name $mac_sources {
    if {![file exists $mac/$name]} { error "no $name in $mac: is it verilog-ethernet?" }
}
if {[catch {exec git -C $mac rev-parse HEAD} found]} {
    puts "WARNING: cannot ask git which commit $mac is of; it should be $commit"
} elseif {$found ne $commit} {
    error "$mac is at $found; the project was made for $commit: git -C $mac checkout $commit"
}

file mkdir $here/reports
create_project -force @top@ $here/vivado -part $part
foreach name $sources { add_files -norecurse $here/$name }
foreach name $mac_sources { add_files -norecurse $mac/$name }
set_property top @top@ [current_fileset]

source $here/ip/gty_25g.tcl
generate_target all [get_ips gty_25g]
create_ip_run [get_ips gty_25g]

add_files -fileset constrs_1 -norecurse $here/constraints/pins.xdc
# It looks for cells, so it comes last, and only when there are some.
add_files -fileset constrs_1 -norecurse $here/constraints/crossings.tcl
set_property USED_IN implementation [get_files crossings.tcl]
set_property PROCESSING_ORDER LATE [get_files crossings.tcl]
# The constraints name instances.
set_property STEPS.SYNTH_DESIGN.ARGS.FLATTEN_HIERARCHY rebuilt [get_runs synth_1]
set_property STEPS.PHYS_OPT_DESIGN.IS_ENABLED true [get_runs impl_1]

launch_runs impl_1 -to_step route_design -jobs $jobs
wait_on_run impl_1
if {[get_property PROGRESS [get_runs impl_1]] ne "100%"} {
    error "implementation failed: [get_property STATUS [get_runs impl_1]]"
}
open_run impl_1

report_timing_summary -max_paths 20 -file $here/reports/timing.rpt
report_utilization -hierarchical -hierarchical_depth 4 -file $here/reports/utilisation.rpt
report_clock_interaction -file $here/reports/clocks.rpt
report_cdc -details -file $here/reports/crossings.rpt
report_bus_skew -file $here/reports/bus_skew.rpt
report_drc -file $here/reports/drc.rpt

foreach {kind delay} {setup max hold min} {
    set paths [get_timing_paths -delay_type $delay -max_paths 1]
    set slack [get_property SLACK $paths]
    puts "worst $kind slack: $slack ns"
    if {$slack < 0} { error "timing is not met ($kind, $slack ns): see reports/timing.rpt" }
}

# The rings of the entropy source are loops of logic by intent. Nothing else may be one.
foreach net [get_nets -hierarchical -filter {NAME =~ noise/ring*link*}] {
    set_property ALLOW_COMBINATORIAL_LOOPS TRUE $net
}
write_bitstream -force $here/@top@.bit
puts "bitstream: $here/@top@.bit"
