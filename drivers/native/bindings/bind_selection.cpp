// Selection of elements, for schemes that send only some.
#include <nanobind/stl/pair.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bindings/arrays.hpp"
#include "bindings/parts.hpp"
#include "selection/largest.hpp"
#include "selection/offers.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace afflux::bindings {
namespace {

template <typename Element>
using Flat = nb::ndarray<Element, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename Element>
using Returned = nb::ndarray<nb::numpy, Element, nb::ndim<1>>;

template <typename Element>
std::span<Element> span_of(const Flat<Element>& array) {
    return {array.data(), array.size()};
}

template <typename Element>
Returned<Element> returned(std::vector<Element> elements) {
    auto* held = new std::vector<Element>(std::move(elements));
    const nb::capsule owner(
        held, [](void* each) noexcept { delete static_cast<std::vector<Element>*>(each); });
    return Returned<Element>(held->data(), {held->size()}, owner);
}

void check_places(const Flat<const std::int64_t>& places, std::size_t elements) {
    // They ascend.
    if (places.size() == 0) return;
    const std::int64_t last = places(places.size() - 1);
    if (places(0) < 0 || last < 0 || static_cast<std::size_t>(last) >= elements) {
        throw nb::value_error("a place is outside the tensor");
    }
}

[[noreturn]] void raise_floating_point(const std::exception& error) {
    PyErr_SetString(PyExc_FloatingPointError, error.what());
    throw nb::python_error();
}

std::pair<Returned<std::int64_t>, std::int32_t> largest(const Flat<const float>& elements,
                                                        std::size_t count, std::int32_t guess) {
    if (count < 1 || count > elements.size()) throw nb::value_error("count is from 1 to all");
    std::vector<std::int64_t> places;
    {
        const nb::gil_scoped_release release;
        places = selection::largest(span_of(elements), count, &guess);
    }
    return {returned(std::move(places)), guess};
}

void pack(const Flat<const float>& values, const Flat<const std::int64_t>& places,
          std::size_t elements, const Flat<std::int32_t>& message) {
    check_places(places, elements);
    const nb::gil_scoped_release release;
    selection::pack(span_of(values), span_of(places), elements, span_of(message));
}

nb::tuple largest_sums(const Flat<const std::int32_t>& messages, std::size_t ranks,
                       std::size_t elements, std::size_t count) {
    selection::Sums sums;
    try {
        const nb::gil_scoped_release release;
        sums = selection::largest_sums(span_of(messages), ranks, elements, count);
    } catch (const std::domain_error& error) {
        raise_floating_point(error);
    } catch (const std::overflow_error& error) {
        raise_floating_point(error);
    }
    return nb::make_tuple(returned(std::move(sums.places)), returned(std::move(sums.sums)),
                          sums.quantum);
}

void settle(const Flat<float>& values, const Flat<const std::int64_t>& places,
            const Flat<const std::int64_t>& taken, double quantum) {
    if (values.size() != places.size()) throw nb::value_error("as many values as places");
    const nb::gil_scoped_release release;
    selection::settle(span_of(values), span_of(places), span_of(taken), quantum);
}

}  // namespace

void bind_selection(nb::module_& module) {
    module.def("largest", &largest, "elements"_a, "count"_a, "guess"_a,
               "Return the places of the largest absolute values, ascending, and the next guess.");
    module.def("message_words", &selection::message_words, "elements"_a, "count"_a,
               "Return how many words the message of so many offers has.");
    module.def("pack", &pack, "values"_a, "places"_a, "elements"_a, "message"_a,
               "Write the message that offers values at these places, which ascend.");
    module.def("largest_sums", &largest_sums, "messages"_a, "ranks"_a, "elements"_a, "count"_a,
               "Return places and values of the largest sums of offers, and the quantum.");
    module.def("settle", &settle, "values"_a, "places"_a, "taken"_a, "quantum"_a,
               "Take the own offers that all ranks take out of the own values.");
}

}  // namespace afflux::bindings
