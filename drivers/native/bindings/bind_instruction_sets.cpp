// The loops over elements, for Python: reductions by number, and instruction sets.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arithmetic/instruction_set.hpp"
#include "arithmetic/types.hpp"
#include "bindings/parts.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace afflux::bindings {

void bind_instruction_sets(nb::module_& module) {
    nb::dict reductions;
    reductions["sum"] = static_cast<int>(arithmetic::Op::Sum);
    reductions["avg"] = static_cast<int>(arithmetic::Op::Avg);
    reductions["max"] = static_cast<int>(arithmetic::Op::Max);
    reductions["min"] = static_cast<int>(arithmetic::Op::Min);
    // The `reduction` of all of this module's functions.
    module.attr("REDUCTIONS") = reductions;
    module.def("instruction_sets", &arithmetic::instruction_sets,
               "Return the instruction sets with which this processor can sum, best last.");
    module.def("instruction_set", &arithmetic::instruction_set, "Return the one in use.");
    module.def("use_instruction_set", &arithmetic::use_instruction_set, "name"_a,
               "Use one of instruction_sets(), for tests; not while other threads sum.");
}

}  // namespace afflux::bindings
