// Offers of several ranks for one tensor, lists of places and values: their form on the wire, and
// the largest of their sums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace afflux::selection {

// A message has the sizes of the tensor and of the list; for each 65,536 places of the tensor, how
// many offers are there; then the low 16 bits of all their places, two in a word; then their
// values. So an offer takes 6 bytes, and all messages of `count` offers are equally long: so many
// words.
std::size_t message_words(std::size_t elements, std::size_t count);

// Writes the message that offers `values`, which are the elements at `places`, ascending, of a
// tensor of so many elements.
void pack(std::span<const float> values, std::span<const std::int64_t> places, std::size_t elements,
          std::span<std::int32_t> message);

// Elements of the ranks' sum.
struct Sums {
    std::vector<std::int64_t> places;  // ascending
    std::vector<float> sums;
    // Offers are rounded to multiples of this power of two; 0 if all offers are zero.
    double quantum = 0;
};

// The quantum of offers of which the largest is `limit`, finite and more than zero: so large that
// a sum of these over the ranks has no more bits than a float.
double quantum_of(float limit, std::size_t ranks);

// Adds up the ranks' messages, and returns the `count` largest sums that are not zero; of equal
// ones the first. No sum has been rounded, so they are the same in whichever order they are made.
//
// Throws std::domain_error if an offer is infinite or NaN, std::overflow_error if a sum is beyond
// float, and std::invalid_argument if the messages are no such ones.
Sums largest_sums(std::span<const std::int32_t> messages, std::size_t ranks, std::size_t elements,
                  std::size_t count);

// Takes what a rank has offered, `values` at `places`, out of them where `taken` has the place as
// well; both ascend. The remainder of an offer after rounding to a quantum stays, exactly: it is
// less than a quantum, and a multiple of every power of two that divides the element.
void settle(std::span<float> values, std::span<const std::int64_t> places,
            std::span<const std::int64_t> taken, double quantum);

}  // namespace afflux::selection
