#include "selection/largest.hpp"

#include <algorithm>

#include "selection/magnitude.hpp"
#include "selection/sample.hpp"

namespace afflux::selection {
namespace {

constexpr std::size_t kChunk = 64;

struct Candidate {
    Magnitude magnitude;
    std::int64_t place;
};

bool is_larger(const Candidate& one, const Candidate& other) {
    return one.magnitude != other.magnitude ? one.magnitude > other.magnitude
                                            : one.place < other.place;
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
        bound = std::min((last - 1)->magnitude, kLargestMagnitude - 1) + 1;
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
