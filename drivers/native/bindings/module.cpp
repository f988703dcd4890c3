// The extension module afflux_drivers._native, of which each file in this folder binds one part.
#include <nanobind/nanobind.h>

#include "bindings/parts.hpp"

NB_MODULE(_native, module) {
    // When the interpreter ends, torch's own threads and objects may still refer to ours, which
    // then end with the process. A report of that on standard error would be noise for users.
    nanobind::set_leak_warnings(false);
    module.doc() = "The C++ behind afflux_drivers.";
    using namespace afflux::bindings;
    bind_instruction_sets(module);
    bind_columns(module);
    bind_costs(module);
    bind_narrow(module);
    bind_registers(module);
    bind_rows(module);
    bind_selection(module);
    bind_group(module);
    bind_shared(module);
    bind_streams(module);
    bind_hosts(module);
    bind_sums(module);
    bind_turn(module);
    bind_exit(module);
    bind_engine(module);
    bind_aggregator(module);
    bind_carriers(module);
    bind_errors(module);
    bind_session(module);
    bind_dialogues(module);
    bind_loop(module);
}
