// Selection of elements, for schemes that send only some.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "bindings/arrays.hpp"
#include "bindings/parts.hpp"
#include "selection/largest.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace afflux::bindings {
namespace {

using Elements = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Places = nb::ndarray<nb::numpy, std::int64_t, nb::ndim<1>>;

Places largest(const Elements& elements, std::size_t count) {
    if (count < 1 || count > elements.size()) throw nb::value_error("count is from 1 to all");
    auto* found = [&] {
        const nb::gil_scoped_release release;
        return new std::vector<std::int64_t>(
            selection::largest({elements.data(), elements.size()}, count));
    }();
    const nb::capsule owner(
        found, [](void* held) noexcept { delete static_cast<std::vector<std::int64_t>*>(held); });
    return Places(found->data(), {found->size()}, owner);
}

}  // namespace

void bind_selection(nb::module_& module) {
    module.def("largest", &largest, "elements"_a, "count"_a,
               "Return the places of the largest absolute values, ascending.");
}

}  // namespace afflux::bindings
