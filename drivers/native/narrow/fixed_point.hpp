// Elements as narrow integers, several of them in a word that an aggregator adds up.
//
// Elements are taken in groups, one for each 64 words. The ranks agree on the largest magnitude in
// each group, by a MAX of its float32 bits as int32, which have the order of the numbers. From that
// follows the group's quantum, a power of two, and each element becomes the nearest multiple of it.
// Field f of word w of a group is element 64 * f + w: so elements next to each other are fields of
// words next to each other, and a group of zeros is a block of zeros, which is not sent.
//
// Fields are signed, and so wide that no sum over the ranks leaves its field. So the sum of the
// words, modulo 2**32, has all sums of the fields in it, exactly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace afflux::narrow {

constexpr std::size_t kGroupWords = 64;
constexpr unsigned kMostFields = 8;

struct Form {
    unsigned fields;    // in a word, from 1 to kMostFields
    std::int32_t most;  // largest magnitude of a rank's integer, from 2 to 2**22 - 1

    std::size_t group_elements() const { return fields * kGroupWords; }
    std::size_t groups(std::size_t elements) const;
    std::size_t words(std::size_t elements) const;
};

// Writes for each group the float32 bits of its largest magnitude. If one is not finite they are
// those of infinity, or larger.
void magnitudes(std::span<const float> elements, const Form& form, std::span<std::int32_t> out);

// Writes the words of a rank's elements. The magnitudes are those of all ranks, and below 2**127:
// what is larger might become infinite by rounding.
void pack(std::span<const float> elements, std::span<const std::int32_t> magnitudes,
          const Form& form, std::span<std::int32_t> words);

// Writes the average that the ranks' words add up to, and subtracts from the own elements what
// `pack` has made of them, exactly: the rest is at most half a quantum. The sums may be the last
// words of the averages' memory.
void unpack(std::span<const std::int32_t> sums, std::span<const std::int32_t> magnitudes,
            const Form& form, int ranks, std::span<float> elements, std::span<float> averages);

}  // namespace afflux::narrow
