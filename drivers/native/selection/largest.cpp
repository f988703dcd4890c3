#include "selection/largest.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "selection/sample.hpp"
#include "selection/scan.hpp"

namespace afflux::selection {
namespace {

// The least of the largest times this is the next guess: what it takes in too much costs less than
// a second pass over the tensor.
constexpr float kGuess = 0.95F;

// Few are kept in more room, so that they need not be looked through often.
constexpr std::size_t kLeastRoom = 4096;

// The `count` largest of the elements that reach the bound, or all of these if they are fewer.
Found reaching(std::span<const float> elements, std::size_t count, Magnitude bound) {
    Found found;
    const std::size_t room =
        std::min(std::max(2 * count, kLeastRoom), elements.size()) + 2 * kScanChunk;
    std::size_t first = 0;
    while (first < elements.size()) {
        first = scan(elements, first, bound, room, &found);
        if (first == elements.size()) break;
        const Magnitude least = found.keep_largest(count);
        // A later element of the same size would not be taken instead.
        bound = std::min(least, kLargestMagnitude - 1) + 1;
    }
    if (found.size() > count) found.keep_largest(count);
    return found;
}

}  // namespace

std::vector<std::int64_t> largest(std::span<const float> elements, std::size_t count,
                                  Magnitude* guess) {
    const Magnitude guessed = guess == nullptr ? 0 : *guess;
    Found found;
    if (guessed > 0) found = reaching(elements, count, guessed);
    if (found.size() < count) found = reaching(elements, count, sampled_bound(elements, count));
    if (found.size() < count) found = reaching(elements, count, 0);
    if (guess != nullptr) {
        const auto least = std::min_element(found.magnitudes.begin(), found.magnitudes.end());
        *guess = magnitude_of(std::bit_cast<float>(*least) * kGuess);
    }
    return std::move(found.places);
}

}  // namespace afflux::selection
