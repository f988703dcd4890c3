// Correctly rounded sums, for those that Gloo moves, and for tests, which compare them with
// rationals. Arrays are contiguous and in the storage of their type, or of integers as wide.
#include <nanobind/stl/vector.h>

#include <vector>

#include "bindings/arrays.hpp"
#include "bindings/parts.hpp"
#include "c_api.h"
#include "collectives/reduction.hpp"
#include "contract/wire.hpp"
#include "packet/partial_dtype.hpp"
#include "sums/block_scan.hpp"
#include "sums/environment.hpp"
#include "sums/exact_sums.hpp"
#include "sums/extreme.hpp"
#include "sums/sum_block.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace afflux::bindings {
namespace {

using sums::Dtype;
using sums::Sum;

Dtype float_of(int dtype) {
    if (dtype_of(dtype) == Dtype::Int32) throw nb::value_error("sums here are of floats");
    return dtype_of(dtype);
}

Sum sum_of(int dtype, int scale, bool all_present) {
    if (scale < 0 || scale > 30) throw nb::value_error("a scale is 0 to 30");
    return {float_of(dtype), scale, all_present};
}

void expect_ranks(std::size_t ranks) {
    if (ranks < 1) throw nb::value_error("a sum has an element at least");
}

template <typename Pointer, typename Array>
std::vector<Pointer> addresses(const std::vector<Array>& arrays, std::size_t bytes) {
    expect_ranks(arrays.size());
    std::vector<Pointer> found;
    for (const Array& array : arrays) {
        expect_bytes(array, bytes, "elements");
        found.push_back(array.data());
    }
    return found;
}

std::uint32_t exact_sum(int dtype, int scale, bool all_present,
                        const std::vector<std::uint32_t>& bits) {
    sums::ExactSum sum(sum_of(dtype, scale, all_present));
    for (const std::uint32_t each : bits) sum.add(each);
    return sum.rounded();
}

std::size_t exact_sums(int dtype, int scale, bool all_present, const std::vector<Input>& elements,
                       const Output& out) {
    const Sum sum = sum_of(dtype, scale, all_present);
    const std::size_t count = count_of(out, sum.dtype);
    const auto from = addresses<const void*>(elements, out.nbytes());
    const nb::gil_scoped_release release;
    return sums::exact_sums(sum, count, static_cast<int>(from.size()), from.data(), out.data());
}

std::size_t exact_sums_in_place(int dtype, int scale, bool all_present,
                                const std::vector<Output>& elements) {
    const Sum sum = sum_of(dtype, scale, all_present);
    expect_ranks(elements.size());
    const std::size_t count = count_of(elements[0], sum.dtype);
    const auto at = addresses<void*>(elements, elements[0].nbytes());
    const int ranks = static_cast<int>(at.size());
    const nb::gil_scoped_release release;
    return sums::exact_sums(sum, count, ranks, at.data(), ranks, at.data());
}

void reduce_in_order(int dtype, int reduction, const std::vector<Input>& elements,
                     const Output& out) {
    const auto from = addresses<const void*>(elements, out.nbytes());
    if (from.size() > arithmetic::kMaxRanks) throw nb::value_error("too many sources");
    if (out.nbytes() % wire::kBlockBytes) throw nb::value_error("they are not whole blocks");
    const collectives::Reduction made(static_cast<int>(from.size()),
                                      static_cast<collectives::Dtype>(dtype),
                                      static_cast<collectives::Op>(reduction));
    const std::size_t blocks = out.nbytes() / wire::kBlockBytes;
    const std::vector<std::uint8_t> all(blocks, 1);
    const std::vector<const std::uint8_t*> present(from.size(), all.data());
    std::vector<std::uint8_t> some(blocks);
    const nb::gil_scoped_release release;
    made.reduce(blocks, from.data(), present.data(), static_cast<std::byte*>(out.data()),
                some.data());
}

void divide_sums(int dtype, int ranks, const Output& elements) {
    expect_ranks(static_cast<std::size_t>(ranks));
    const std::size_t count = count_of(elements, float_of(dtype));
    const nb::gil_scoped_release release;
    sums::divide(float_of(dtype), ranks, count, elements.data());
}

// The function of `afflux_sums`.
void sum(std::int32_t dtype, std::int32_t reduction, std::uint64_t count, std::uint32_t ranks,
         const void* const* elements, void* out) {
    const auto type = static_cast<Dtype>(dtype);
    const int sources = static_cast<int>(ranks);
    const bool average = reduction == AFFLUX_AVG;
    const int scale = average ? sums::average_scale(sources) : 0;
    sums::exact_sums({type, scale, true}, count, sources, elements, out);
    if (average) sums::divide(type, sources, count, out);
}

nb::capsule sum_calls() {
    static const afflux_sums calls{AFFLUX_CALLS_VERSION, sizeof(afflux_sums), &sum};
    return nb::capsule(&calls, AFFLUX_SUMS);
}

void extreme(int dtype, bool greatest, const Output& own, const Input& arriving) {
    expect_bytes(own, wire::kBlockBytes, "own");
    expect_bytes(arriving, wire::kBlockBytes, "arriving");
    sums::extreme(float_of(dtype), greatest, own.data(), arriving.data());
}

void open_block(sums::SumBlock& self, int dtype, const Input& block) {
    expect_bytes(block, wire::kBlockBytes, "block");
    self.open(sums::Environment(), float_of(dtype), block.data());
}

bool add_block(sums::SumBlock& self, const Input& block) {
    expect_bytes(block, wire::kBlockBytes, "block");
    return self.add(sums::Environment(), block.data());
}

sums::Partial partial_of(int dtype, int bits, int exponent) {
    const Dtype numbers = float_of(dtype);
    const packet::PartialDtype* const known = packet::partial_dtype_of(numbers, bits);
    if (known == nullptr || known->bits != bits) throw nb::value_error("no such partial sums");
    if (exponent < 0 || exponent > 255) throw nb::value_error("an exponent is 0 to 255");
    return {numbers, bits, exponent};
}

void expect_partial(const sums::Partial& partial, std::size_t bytes) {
    const auto* const known = packet::partial_dtype_of(partial.dtype, partial.bits);
    if (bytes != known->block_bytes()) throw nb::value_error("the block has another length");
}

bool add_partial(sums::SumBlock& self, int dtype, int bits, int exponent, bool first,
                 const Input& block) {
    const sums::Partial from = partial_of(dtype, bits, exponent);
    expect_partial(from, block.nbytes());
    const sums::Environment environment;
    return first ? self.open(environment, from, block.data())
                 : self.add(environment, from, block.data());
}

void partial_block(const sums::SumBlock& self, int dtype, int bits, int exponent, bool all_present,
                   const Output& out) {
    const sums::Partial to = partial_of(dtype, bits, exponent);
    expect_partial(to, out.nbytes());
    self.partial(sums::Environment(), to, all_present, out.data());
}

void round_block(const sums::SumBlock& self, int scale, bool all_present, const Output& out) {
    expect_bytes(out, wire::kBlockBytes, "out");
    if (scale < 0 || scale > 6) throw nb::value_error("a scale is 0 to 6");
    self.round(sums::Environment(), scale, all_present, out.data());
}

nb::bytes scan_blocks(int dtype, const Input& elements) {
    const std::size_t blocks = elements.nbytes() / wire::kBlockBytes;
    expect_bytes(elements, blocks * wire::kBlockBytes, "whole blocks");
    std::vector<std::uint8_t> exponents(blocks);
    sums::scan_blocks(dtype_of(dtype), elements.data(), blocks, exponents.data());
    return nb::bytes(exponents.data(), exponents.size());
}

}  // namespace

void bind_sums(nb::module_& module) {
    module.def("exact_sum", &exact_sum, "dtype"_a, "scale"_a, "all_present"_a, "bits"_a,
               "Return the bits of the sum of elements, by integers.");
    module.def("exact_sums", &exact_sums, "dtype"_a, "scale"_a, "all_present"_a, "elements"_a,
               "out"_a, "Write the sums of all sources; return how many took integers.");
    module.def("exact_sums_in_place", &exact_sums_in_place, "dtype"_a, "scale"_a, "all_present"_a,
               "elements"_a, "Do the same, with the results in each source.");
    module.def(
        "reduce_in_order", &reduce_in_order, "dtype"_a, "reduction"_a, "elements"_a, "out"_a,
        "Reduce whole blocks of any type as groups do, in order of the sources; `out` may be\n"
        "one of them.");
    module.def("average_scale", &sums::average_scale, "ranks"_a,
               "Return the scale of sums that are to become averages.");
    module.def("divide_sums", &divide_sums, "dtype"_a, "ranks"_a, "elements"_a,
               "Make sums with this scale averages.");
    module.def("sum_calls", &sum_calls, "Return the capsule through which C++ sums (`c_api.h`).");
    module.def("extreme_blocks", &extreme, "dtype"_a, "greatest"_a, "own"_a, "arriving"_a,
               "Leave the greater or lesser elements of two blocks in the first.");
    nb::class_<sums::SumBlock>(module, "SumBlock",
                               "The sum of a block whose contributions come one at a time.")
        .def(nb::init<>())
        .def("open", &open_block, "dtype"_a, "block"_a, "Take the first contribution.")
        .def("add", &add_block, "block"_a, "Add a further one; return whether all is exact.")
        .def("add_partial", &add_partial, "dtype"_a, "bits"_a, "exponent"_a, "first"_a, "block"_a,
             "Take a contribution of partial sums; return whether all is exact.")
        .def("partial", &partial_block, "dtype"_a, "bits"_a, "exponent"_a, "all_present"_a, "out"_a,
             "Write the sums as partial ones.")
        .def("round", &round_block, "scale"_a, "all_present"_a, "out"_a,
             "Write the result, all bits set if it is not summed.");
    module.def("scan_blocks", &scan_blocks, "dtype"_a, "elements"_a,
               "Return the exponents of whole blocks of 256 bytes, 0 for those without a bit.");
}

}  // namespace afflux::bindings
