// The codec for tests, which compare it with the golden model function by function. Arrays are
// contiguous and in the storage of their type; bfloat16 is uint16.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <optional>
#include <string>

#include "bindings/arrays.hpp"
#include "bindings/parts.hpp"
#include "codec/classes.hpp"
#include "codec/exact.hpp"
#include "codec/instruction_set.hpp"
#include "codec/quantise.hpp"
#include "codec/reduce.hpp"
#include "codec/scan.hpp"
#include "codec/sortable.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace afflux::bindings {

namespace {

using codec::Dtype;
using codec::kBlock;
using codec::Numbers;
using codec::Op;

std::size_t whole_blocks(const Input& elements, Dtype dtype) {
    const std::size_t count = count_of(elements, dtype);
    if (count % kBlock) throw nb::value_error("elements are not whole blocks of 64");
    return count / kBlock;
}

void quantise(const Numbers& numbers, const Input& elements, const Input& exponents,
              const Output& out) {
    const std::size_t blocks = whole_blocks(elements, numbers.dtype);
    expect_bytes(exponents, blocks, "exponents");
    expect_bytes(out, 4 * kBlock * blocks, "out");
    codec::quantise(numbers, blocks, elements.data(),
                    static_cast<const std::uint8_t*>(exponents.data()),
                    static_cast<std::int32_t*>(out.data()));
}

void dequantise(const Numbers& numbers, const Input& sums, const Input& exponents,
                const Output& out) {
    const std::size_t blocks = whole_blocks(sums, Dtype::Int32);
    expect_bytes(exponents, blocks, "exponents");
    expect_bytes(out, codec::size_of(numbers.dtype) * kBlock * blocks, "out");
    codec::dequantise(numbers, blocks, static_cast<const std::int32_t*>(sums.data()),
                      static_cast<const std::uint8_t*>(exponents.data()), out.data());
}

void scan(int dtype, const Input& elements, const Output& exponents) {
    const std::size_t count = count_of(elements, dtype_of(dtype));
    expect_bytes(exponents, codec::blocks_of(count), "exponents");
    const nb::gil_scoped_release release;
    codec::scan(dtype_of(dtype), elements.data(), count,
                static_cast<std::uint8_t*>(exponents.data()));
}

void scan_copy(int dtype, const Input& elements, const Output& out, const Output& exponents) {
    const std::size_t count = count_of(elements, dtype_of(dtype));
    const std::size_t blocks = codec::blocks_of(count);
    expect_bytes(exponents, blocks, "exponents");
    expect_bytes(out, blocks * kBlock * codec::size_of(dtype_of(dtype)), "out");
    const nb::gil_scoped_release release;
    codec::scan_copy(dtype_of(dtype), elements.data(), count, out.data(),
                     static_cast<std::uint8_t*>(exponents.data()));
}

void scan_clear(int dtype, const Output& elements, const std::optional<Output>& out,
                const Output& exponents) {
    const std::size_t count = elements.nbytes() / codec::size_of(dtype_of(dtype));
    const std::size_t blocks = codec::blocks_of(count);
    expect_bytes(exponents, blocks, "exponents");
    if (out) expect_bytes(*out, blocks * kBlock * codec::size_of(dtype_of(dtype)), "out");
    const nb::gil_scoped_release release;
    codec::scan_clear(dtype_of(dtype), elements.data(), count, out ? out->data() : nullptr,
                      static_cast<std::uint8_t*>(exponents.data()));
}

void expect_sources(const Numbers& numbers, std::size_t sources) {
    if (sources < 1 || sources > static_cast<std::size_t>(numbers.ranks)) {
        throw nb::value_error(("an operation of " + std::to_string(numbers.ranks) +
                               " ranks cannot have " + std::to_string(sources) + " sources")
                                  .c_str());
    }
}

// Addresses of arrays, which must all have the same size.
template <typename Array, typename Pointer>
std::array<Pointer, codec::kMaxRanks> addresses(const std::vector<Array>& arrays,
                                                const char* name) {
    std::array<Pointer, codec::kMaxRanks> result{};
    for (std::size_t r = 0; r < arrays.size(); ++r) {
        expect_bytes(arrays[r], arrays[0].nbytes(), name);
        result[r] = static_cast<Pointer>(arrays[r].data());
    }
    return result;
}

void reduce(const Numbers& numbers, const std::vector<Input>& elements,
            const std::vector<Input>& exponents, const Output& out, const Output& present) {
    expect_sources(numbers, elements.size());
    if (exponents.size() != elements.size()) {
        throw nb::value_error(("elements of " + std::to_string(elements.size()) +
                               " sources, exponents of " + std::to_string(exponents.size()))
                                  .c_str());
    }
    const std::size_t blocks = whole_blocks(elements[0], numbers.dtype);
    expect_bytes(out, elements[0].nbytes(), "out");
    expect_bytes(exponents[0], blocks, "exponents");
    expect_bytes(present, blocks, "present");
    const auto from = addresses<Input, const void*>(elements, "elements");
    const auto bytes = addresses<Input, const std::uint8_t*>(exponents, "exponents");
    const nb::gil_scoped_release release;
    codec::reduce(numbers, blocks, static_cast<int>(elements.size()), from.data(), bytes.data(),
                  out.data(), static_cast<std::uint8_t*>(present.data()));
}

void reduce_in_place(const Numbers& numbers, const std::vector<Output>& elements) {
    expect_sources(numbers, elements.size());
    const auto at = addresses<Output, void*>(elements, "elements");
    const std::size_t count = elements[0].nbytes() / codec::size_of(numbers.dtype);
    const nb::gil_scoped_release release;
    codec::reduce_in_place(numbers, count, static_cast<int>(elements.size()), at.data());
}

void exact(const Numbers& numbers, const std::vector<Input>& elements, const Output& out) {
    expect_sources(numbers, elements.size());
    if (numbers.dtype == Dtype::Int32 || !codec::is_sum(numbers.op)) {
        throw nb::value_error("exact mode is for sums of floats");
    }
    expect_bytes(out, elements[0].nbytes(), "out");
    const auto from = addresses<Input, const void*>(elements, "elements");
    codec::exact(numbers, count_of(elements[0], numbers.dtype), static_cast<int>(elements.size()),
                 from.data(), out.data());
}

void class_counts(int dtype, const Input& elements, const Output& out) {
    const std::size_t count = count_of(elements, dtype_of(dtype));
    expect_bytes(out, 4 * count, "out");
    codec::class_counts(dtype_of(dtype), elements.data(), count,
                        static_cast<std::int32_t*>(out.data()));
}

void to_sortable(int dtype, int reduction, const Input& elements, const Output& sortable) {
    const std::size_t count = count_of(elements, dtype_of(dtype));
    expect_bytes(sortable, 4 * count, "sortable");
    codec::to_sortable(dtype_of(dtype), op_of(reduction), elements.data(), count,
                       static_cast<std::int32_t*>(sortable.data()));
}

void from_sortable(int dtype, const Input& sortable, const Output& out) {
    const std::size_t count = count_of(sortable, Dtype::Int32);
    expect_bytes(out, codec::size_of(dtype_of(dtype)) * count, "out");
    codec::from_sortable(dtype_of(dtype), static_cast<const std::int32_t*>(sortable.data()), count,
                         out.data());
}

void exact_encode(int dtype, const Input& elements, const Output& words) {
    const std::size_t count = count_of(elements, dtype_of(dtype));
    expect_bytes(words, 4 * wire::kExactWords * count, "words");
    codec::exact_encode(dtype_of(dtype), elements.data(), count,
                        static_cast<std::int32_t*>(words.data()));
}

}  // namespace

void bind_codec(nb::module_& module) {
    nb::dict reductions;
    reductions["sum"] = static_cast<int>(Op::Sum);
    reductions["avg"] = static_cast<int>(Op::Avg);
    reductions["max"] = static_cast<int>(Op::Max);
    reductions["min"] = static_cast<int>(Op::Min);
    // The `reduction` of all of this module's functions.
    module.attr("REDUCTIONS") = reductions;
    nb::class_<Numbers>(module, "Numbers",
                        "The constants of one operation; see docs/protocol.md 8.")
        .def(
            "__init__",
            [](Numbers* self, int ranks, int dtype, int reduction) {
                new (self) Numbers(ranks, dtype_of(dtype), op_of(reduction));
            },
            "ranks"_a, "dtype"_a, "reduction"_a)
        .def("quantise", &quantise, "elements"_a, "exponents"_a, "out"_a,
             "Write the integers of blocks, given the agreed exponents.")
        .def("dequantise", &dequantise, "sums"_a, "exponents"_a, "out"_a,
             "Write the elements of summed integers, given the same.")
        .def("reduce", &reduce, "elements"_a, "exponents"_a, "out"_a, "present"_a,
             "Reduce whole blocks of all sources, whose exponents are from `scan`.")
        .def("reduce_in_place", &reduce_in_place, "elements"_a,
             "Reduce, and write the result to every source.")
        .def("exact", &exact, "elements"_a, "out"_a, "Write sums of floats, rounded once.");
    module.def("scan", &scan, "dtype"_a, "elements"_a, "exponents"_a,
               "Write a byte for each block: 0 absent, 255 not finite, else its exponent.");
    module.def("scan_copy", &scan_copy, "dtype"_a, "elements"_a, "out"_a, "exponents"_a,
               "Do the same, and copy the present blocks.");
    module.def("scan_clear", &scan_clear, "dtype"_a, "elements"_a, "out"_a.none(), "exponents"_a,
               "Do either of these (`out` may be None), and make absent blocks +0.");
    module.def("class_counts", &class_counts, "dtype"_a, "elements"_a, "out"_a,
               "Write each element's part of the counts of NaN and infinities.");
    module.def("to_sortable", &to_sortable, "dtype"_a, "reduction"_a, "elements"_a, "sortable"_a,
               "Write integers in the order of the elements.");
    module.def("from_sortable", &from_sortable, "dtype"_a, "sortable"_a, "out"_a,
               "Write the elements of such integers.");
    module.def("exact_encode", &exact_encode, "dtype"_a, "elements"_a, "words"_a,
               "Write 12 limbs and a class count for each element.");
    module.def(
        "is_exact",
        [](int dtype, int reduction, std::size_t count) {
            return codec::is_exact(dtype_of(dtype), op_of(reduction), count);
        },
        "dtype"_a, "reduction"_a, "count"_a,
        "Return whether so many elements are summed in exact mode.");
    module.def(
        "codec_instruction_sets", &codec::instruction_sets,
        "Return the instruction sets with which this processor can run the codec, best last.");
    module.def("codec_instruction_set", &codec::instruction_set, "Return the one in use.");
    module.def(
        "use_codec_instruction_set", &codec::use_instruction_set, "name"_a,
        "Use one of codec_instruction_sets(), for tests; not while other threads use the codec.");
}

}  // namespace afflux::bindings
