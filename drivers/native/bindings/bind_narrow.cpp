// Elements as narrow integers, for schemes that send fewer bits of each.
#include <cstddef>
#include <cstdint>
#include <span>

#include "bindings/arrays.hpp"
#include "bindings/parts.hpp"
#include "narrow/fixed_point.hpp"
#include "narrow/halves.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace afflux::bindings {
namespace {

using narrow::Form;

template <typename Element>
using Given = nb::ndarray<const Element, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename Element>
using Room = nb::ndarray<Element, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

constexpr std::int32_t kLeastMost = 2;
constexpr std::int32_t kMostMost = (1 << 22) - 1;

template <typename Array>
auto all_of(const Array& array) {
    return std::span(array.data(), array.size());
}

void check(bool good, const char* text) {
    if (!good) throw nb::value_error(text);
}

Form form_of(unsigned fields, std::int32_t most) {
    check(fields >= 1 && fields <= narrow::kMostFields, "a word has 1 to 8 fields");
    check(most >= kLeastMost && most <= kMostMost, "integers have up to 22 bits");
    return {fields, most};
}

void check_groups(std::size_t groups, const Form& form, std::size_t elements) {
    check(groups == form.groups(elements), "as many magnitudes as groups");
}

void check_words(std::size_t words, const Form& form, std::size_t elements) {
    check(words == form.words(elements), "as many words as needed");
}

narrow::HalfType half_type(bool brain) {
    return brain ? narrow::HalfType::Bfloat16 : narrow::HalfType::Float16;
}

void bind_halves(nb::module_& module) {
    module.def(
        "narrow_to_halves",
        [](const Given<float>& elements, bool brain, float limit, const Room<std::uint16_t>& out) {
            check(out.size() == elements.size(), "as many halves as elements");
            const nb::gil_scoped_release release;
            return narrow::to_halves(all_of(elements), half_type(brain), limit, all_of(out));
        },
        "elements"_a, "brain"_a, "limit"_a, "out"_a,
        "Write elements rounded to 16 bits; return the bits of the largest magnitude.");
    module.def(
        "narrow_from_halves",
        [](const Given<std::uint16_t>& sums, bool brain, float limit, int ranks,
           const Room<float>& elements, const Room<float>& averages) {
            check(sums.size() == elements.size() && averages.size() == elements.size(),
                  "as many sums and averages as elements");
            check(ranks >= 1, "at least one rank");
            const nb::gil_scoped_release release;
            narrow::from_halves(all_of(sums), half_type(brain), limit, ranks, all_of(elements),
                                all_of(averages));
        },
        "sums"_a, "brain"_a, "limit"_a, "ranks"_a, "elements"_a, "averages"_a,
        "Write the average, and leave the remainder in the elements.");
}

}  // namespace

void bind_narrow(nb::module_& module) {
    bind_halves(module);
    module.def(
        "narrow_magnitudes",
        [](const Given<float>& elements, unsigned fields, std::int32_t most,
           const Room<std::int32_t>& out) {
            const Form form = form_of(fields, most);
            check_groups(out.size(), form, elements.size());
            const nb::gil_scoped_release release;
            narrow::magnitudes(all_of(elements), form, all_of(out));
        },
        "elements"_a, "fields"_a, "most"_a, "out"_a,
        "Write the largest magnitude of each group, as the bits of a float32.");
    module.def(
        "narrow_pack",
        [](const Given<float>& elements, const Given<std::int32_t>& magnitudes, unsigned fields,
           std::int32_t most, const Room<std::int32_t>& words) {
            const Form form = form_of(fields, most);
            check_groups(magnitudes.size(), form, elements.size());
            check_words(words.size(), form, elements.size());
            const nb::gil_scoped_release release;
            narrow::pack(all_of(elements), all_of(magnitudes), form, all_of(words));
        },
        "elements"_a, "magnitudes"_a, "fields"_a, "most"_a, "words"_a,
        "Write the words of a rank's elements.");
    module.def(
        "narrow_unpack",
        [](const Given<std::int32_t>& sums, const Given<std::int32_t>& magnitudes, unsigned fields,
           std::int32_t most, int ranks, const Room<float>& elements, const Room<float>& averages) {
            const Form form = form_of(fields, most);
            check_groups(magnitudes.size(), form, elements.size());
            check_words(sums.size(), form, elements.size());
            check(averages.size() == elements.size(), "as many averages as elements");
            check(ranks >= 1, "at least one rank");
            const nb::gil_scoped_release release;
            narrow::unpack(all_of(sums), all_of(magnitudes), form, ranks, all_of(elements),
                           all_of(averages));
        },
        "sums"_a, "magnitudes"_a, "fields"_a, "most"_a, "ranks"_a, "elements"_a, "averages"_a,
        "Write the average, and leave the remainder in the elements.");
}

}  // namespace afflux::bindings
