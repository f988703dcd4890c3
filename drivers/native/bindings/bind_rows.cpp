// Sets of rows, for sums of sparse tensors.
#include <cstddef>
#include <cstdint>
#include <span>

#include "bindings/arrays.hpp"
#include "bindings/parts.hpp"
#include "rows/packing.hpp"
#include "rows/row_list.hpp"
#include "rows/row_set.hpp"
#include "rows/shuffle.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace afflux::bindings {
namespace {

using rows::RowSet;

template <typename Element>
using Numbers = nb::ndarray<const Element, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename Element>
using Room = nb::ndarray<Element, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename Element>
std::span<const Element> all_of(const Numbers<Element>& array) {
    return {array.data(), array.size()};
}

std::span<const std::byte> bytes_of(const Numbers<std::uint8_t>& array) {
    return std::as_bytes(all_of(array));
}

std::span<std::byte> room_of(const Room<std::uint8_t>& array) {
    return std::as_writable_bytes(std::span(array.data(), array.size()));
}

void check_bits(unsigned bits) {
    if (bits < 1 || bits > 31) throw nb::value_error("a field has 1 to 31 bits");
}

void check_words(std::size_t words, std::size_t rows, unsigned bits) {
    check_bits(bits);
    if (words != rows::count_words(rows, bits)) throw nb::value_error("as many words as needed");
}

void bind_lists(nb::module_& module) {
    module.def("list_words", &rows::list_words, "count"_a, "rows"_a,
               "Words of a list of so many of so many rows.");
    module.def(
        "put_list",
        [](const Numbers<std::int64_t>& numbers, std::size_t rows,
           const Room<std::uint32_t>& words) {
            const nb::gil_scoped_release release;
            rows::put_list(all_of(numbers), rows, {words.data(), words.size()});
        },
        "numbers"_a, "rows"_a, "words"_a, "Write a list into zeros.");
    module.def(
        "numbers_of_list",
        [](const Numbers<std::uint32_t>& words, std::size_t rows, const Room<std::int64_t>& out) {
            const nb::gil_scoped_release release;
            rows::numbers_of_list(all_of(words), rows, {out.data(), out.size()});
        },
        "words"_a, "rows"_a, "out"_a, "Write the numbers of a list.");
}

void bind_packing(nb::module_& module) {
    module.def(
        "shuffle",
        [](const Room<std::int64_t>& out) {
            const rows::Shuffle shuffle(out.size());
            for (std::size_t i = 0; i < out.size(); ++i) {
                out.data()[i] = static_cast<std::int64_t>(shuffle(i));
            }
        },
        "out"_a, "Write the place of each block.");
    module.def(
        "pack",
        [](const Numbers<std::uint8_t>& values, const Numbers<std::int64_t>& places,
           std::size_t row_bytes, std::size_t block_bytes, bool shuffled,
           const Room<std::uint8_t>& room) {
            const nb::gil_scoped_release release;
            rows::pack(bytes_of(values), all_of(places), {row_bytes, block_bytes, shuffled},
                       room_of(room));
        },
        "values"_a, "places"_a, "row_bytes"_a, "block_bytes"_a, "shuffled"_a, "room"_a,
        "Copy rows to their places.");
    module.def(
        "unshuffle",
        [](const Numbers<std::uint8_t>& room, std::size_t block_bytes,
           const Room<std::uint8_t>& out) {
            const nb::gil_scoped_release release;
            rows::unshuffle(bytes_of(room), block_bytes, room_of(out));
        },
        "room"_a, "block_bytes"_a, "out"_a, "Copy blocks to where they were before.");
}

}  // namespace

void bind_rows(nb::module_& module) {
    bind_lists(module);
    bind_packing(module);
    nb::class_<RowSet>(module, "RowSet", "A set of rows of a tensor.")
        .def(nb::init<std::size_t>(), "rows"_a)
        .def(
            "add_counts",
            [](RowSet& set, const Numbers<std::int32_t>& counts, std::size_t rows, unsigned bits) {
                check_words(counts.size(), rows, bits);
                const nb::gil_scoped_release release;
                set.add_counts(all_of(counts), bits);
            },
            "counts"_a, "rows"_a, "bits"_a, "Add the rows whose fields are not zero.")
        .def(
            "add_list",
            [](RowSet& set, const Numbers<std::uint32_t>& words, std::size_t count) {
                const nb::gil_scoped_release release;
                rows::add_list(all_of(words), count, set.rows(), set);
            },
            "words"_a, "count"_a, "Add the rows of a list.")
        .def("seal", &RowSet::seal, nb::call_guard<nb::gil_scoped_release>(), "Count the rows.")
        .def(
            "numbers",
            [](const RowSet& set, const Room<std::int64_t>& out) {
                const nb::gil_scoped_release release;
                set.numbers(out.data());
            },
            "out"_a, "Write the numbers of all rows, ascending.")
        .def(
            "positions",
            [](const RowSet& set, const Numbers<std::int64_t>& numbers,
               const Room<std::int64_t>& out) {
                if (out.size() != numbers.size()) throw nb::value_error("as many as numbers");
                const nb::gil_scoped_release release;
                set.positions(all_of(numbers), out.data());
            },
            "numbers"_a, "out"_a, "Write how many rows of the set are before each of these.");
    module.def(
        "count_words",
        [](std::size_t rows, unsigned bits) {
            check_bits(bits);
            return rows::count_words(rows, bits);
        },
        "rows"_a, "bits"_a, "Words of so many rows' counts.");
    module.def(
        "put_counts",
        [](const Numbers<std::int64_t>& numbers, std::size_t rows, unsigned bits,
           const Room<std::int32_t>& counts) {
            check_words(counts.size(), rows, bits);
            const nb::gil_scoped_release release;
            rows::put_counts(all_of(numbers), rows, bits, {counts.data(), counts.size()});
        },
        "numbers"_a, "rows"_a, "bits"_a, "counts"_a, "Write 1 into each row's field.");
}

}  // namespace afflux::bindings
