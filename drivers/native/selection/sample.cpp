#include "selection/sample.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>

namespace afflux::selection {
namespace {

constexpr std::size_t kSamples = 1 << 15;
// Of the samples that are expected above the bound: so many standard deviations more are taken, so
// that too high a bound is rare.
constexpr double kDeviations = 4;

}  // namespace

std::vector<std::size_t> sampled_places(std::size_t elements) {
    const std::size_t step = elements / kSamples;
    std::vector<std::size_t> places;
    if (step < 2) return places;
    places.reserve(elements / step);
    // Not every so many exactly: what has such a period would deceive.
    std::uint32_t random = 1;
    for (std::size_t first = 0; first + step <= elements; first += step) {
        random = random * 1664525U + 1013904223U;
        places.push_back(first + (random >> 8) % step);
    }
    return places;
}

Magnitude sampled_bound(std::span<const float> elements, std::size_t count) {
    const std::vector<std::size_t> places = sampled_places(elements.size());
    std::vector<Magnitude> samples(places.size());
    std::transform(places.begin(), places.end(), samples.begin(),
                   [&](std::size_t place) { return magnitude_of(elements[place]); });
    const double expected = static_cast<double>(samples.size()) * static_cast<double>(count) /
                            static_cast<double>(elements.size());
    const auto above = static_cast<std::size_t>(expected + kDeviations * std::sqrt(expected)) + 4;
    if (above >= samples.size()) return 0;
    std::nth_element(samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(above),
                     samples.end(), std::greater<>());
    return samples[above];
}

}  // namespace afflux::selection
