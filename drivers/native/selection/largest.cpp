#include "selection/largest.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

namespace afflux::selection {
namespace {

// Absolute values in the order of numbers, NaN last, as integers: never negative, and signed as
// every processor compares many of those at once.
using Magnitude = std::int32_t;

constexpr Magnitude kWithoutSign = 0x7FFFFFFF;
constexpr std::size_t kChunk = 64;
constexpr std::size_t kSamples = 1 << 15;
// Of the samples that are expected above the bound: so many standard deviations more are taken, so
// that too high a bound is rare.
constexpr double kDeviations = 4;

Magnitude magnitude_of(float element) {
    return std::bit_cast<Magnitude>(element) & kWithoutSign;
}

struct Candidate {
    Magnitude magnitude;
    std::int64_t place;
};

bool is_larger(const Candidate& one, const Candidate& other) {
    return one.magnitude != other.magnitude ? one.magnitude > other.magnitude
                                            : one.place < other.place;
}

// A bound that more than `count` elements are expected to reach.
Magnitude sampled_bound(std::span<const float> elements, std::size_t count) {
    const std::size_t step = elements.size() / kSamples;
    if (step < 2) return 0;
    std::vector<Magnitude> samples;
    samples.reserve(kSamples + 1);
    // Not every so many exactly: what has such a period would deceive.
    std::uint32_t random = 1;
    for (std::size_t first = 0; first + step <= elements.size(); first += step) {
        random = random * 1664525U + 1013904223U;
        samples.push_back(magnitude_of(elements[first + (random >> 8) % step]));
    }
    const double expected = static_cast<double>(samples.size()) * static_cast<double>(count) /
                            static_cast<double>(elements.size());
    const auto above = static_cast<std::size_t>(expected + kDeviations * std::sqrt(expected)) + 4;
    if (above >= samples.size()) return 0;
    std::nth_element(samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(above),
                     samples.end(), std::greater<>());
    return samples[above];
}

bool any_reaches(const float* elements, Magnitude bound) {
    Magnitude most = 0;
    for (std::size_t i = 0; i < kChunk; ++i) {
        const Magnitude magnitude = magnitude_of(elements[i]);
        most = magnitude > most ? magnitude : most;
    }
    return most >= bound;
}

// The `count` largest of the elements that reach the bound, or all of these if they are fewer.
std::vector<Candidate> reaching(std::span<const float> elements, std::size_t count,
                                Magnitude bound) {
    std::vector<Candidate> found;
    const std::size_t room = 2 * count + 4 * kChunk;
    found.reserve(room);
    const auto keep_largest = [&] {
        const auto last = found.begin() + static_cast<std::ptrdiff_t>(count);
        std::nth_element(found.begin(), last - 1, found.end(), is_larger);
        // What is as large and comes later would not be taken instead.
        bound = std::min((last - 1)->magnitude, kWithoutSign - 1) + 1;
        found.resize(count);
    };
    for (std::size_t first = 0; first < elements.size(); first += kChunk) {
        const std::size_t size = std::min(kChunk, elements.size() - first);
        if (size == kChunk && !any_reaches(elements.data() + first, bound)) continue;
        for (std::size_t i = first; i < first + size; ++i) {
            const Magnitude magnitude = magnitude_of(elements[i]);
            if (magnitude >= bound) {
                found.push_back({magnitude, static_cast<std::int64_t>(i)});
            }
        }
        if (found.size() + kChunk > room) keep_largest();
    }
    if (found.size() > count) keep_largest();
    return found;
}

}  // namespace

std::vector<std::int64_t> largest(std::span<const float> elements, std::size_t count) {
    const Magnitude bound = sampled_bound(elements, count);
    std::vector<Candidate> found = reaching(elements, count, bound);
    if (found.size() < count) found = reaching(elements, count, 0);
    std::vector<std::int64_t> places(found.size());
    std::transform(found.begin(), found.end(), places.begin(),
                   [](const Candidate& each) { return each.place; });
    std::sort(places.begin(), places.end());
    return places;
}

}  // namespace afflux::selection
