# The node with AMD's core for @board@, as a checkpoint to put into a board's own design. Generated; not
# run where it was generated.
#
#   vivado -mode batch -source build.tcl [-tclargs JOBS]
#
# It ends with vivado/afflux_cmac.xpr and afflux_cmac.dcp. In a design of yours, read_checkpoint that,
# or add the files that this script adds, and constrain as README.md says.

set here [file normalize [file dirname [info script]]]
set part @part@
set jobs [expr {$argc > 0 ? [lindex $argv 0] : 4}]
if {[llength [get_parts -quiet $part]] == 0} {
    error "this Vivado has no part $part: install its family"
}

create_project -force afflux_cmac $here/vivado -part $part
foreach name {
@sources@} {
    add_files -norecurse $here/$name
}
set_property top afflux_cmac [current_fileset]
source $here/ip/cmac_100g.tcl
generate_target all [get_ips cmac_100g]
create_ip_run [get_ips cmac_100g]
launch_runs [get_runs cmac_100g_synth_1] -jobs $jobs
wait_on_run [get_runs cmac_100g_synth_1]

synth_design -top afflux_cmac -part $part -mode out_of_context -flatten_hierarchy rebuilt
write_checkpoint -force $here/afflux_cmac.dcp
puts "checkpoint: $here/afflux_cmac.dcp"
