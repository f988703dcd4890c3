// The functions that bind the parts of the library, for module.cpp.
#pragma once

#include <nanobind/nanobind.h>

namespace afflux::bindings {

void bind_aggregator(nanobind::module_& module);
void bind_carriers(nanobind::module_& module);
void bind_group(nanobind::module_& module);
void bind_hosts(nanobind::module_& module);
void bind_instruction_sets(nanobind::module_& module);
void bind_columns(nanobind::module_& module);
void bind_costs(nanobind::module_& module);
void bind_dialogues(nanobind::module_& module);
void bind_errors(nanobind::module_& module);
void bind_loop(nanobind::module_& module);
void bind_narrow(nanobind::module_& module);
void bind_registers(nanobind::module_& module);
void bind_rows(nanobind::module_& module);
void bind_selection(nanobind::module_& module);
void bind_session(nanobind::module_& module);
void bind_shared(nanobind::module_& module);
void bind_streams(nanobind::module_& module);
void bind_sums(nanobind::module_& module);
void bind_turn(nanobind::module_& module);
void bind_exit(nanobind::module_& module);
void bind_engine(nanobind::module_& module);

}  // namespace afflux::bindings
