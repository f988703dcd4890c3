// An order of blocks that looks random and that all ranks have alike.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace afflux::rows {

// A permutation of 0 … count - 1: a hash of as many bits as the count needs that maps no two
// numbers to one, applied until it gives a number that there is. Less than two steps on average.
class Shuffle {
  public:
    explicit Shuffle(std::size_t count)
        : count_(count),
          mask_(count < 2 ? 0 : (std::uint64_t{1} << std::bit_width(count - 1)) - 1),
          shift_(static_cast<unsigned>(std::bit_width(mask_) + 1) / 2) {}

    // Returns the place of a number, which is less than the count.
    std::size_t operator()(std::size_t number) const {
        if (mask_ == 0) return number;
        std::uint64_t hash = number;
        do {
            hash = hashed(hash);
        } while (hash >= count_);
        return static_cast<std::size_t>(hash);
    }

  private:
    // The finaliser of MurmurHash3 within fewer bits. Each step can be undone: an odd factor has an
    // inverse, and a number shifted by half its bits leaves the upper half as it was.
    std::uint64_t hashed(std::uint64_t hash) const {
        constexpr std::uint64_t kSeed = 0x9E3779B97F4A7C15;
        constexpr std::uint64_t kFirst = 0xFF51AFD7ED558CCD;
        constexpr std::uint64_t kSecond = 0xC4CEB9FE1A85EC53;
        hash = (hash + kSeed) & mask_;
        hash ^= hash >> shift_;
        hash = hash * kFirst & mask_;
        hash ^= hash >> shift_;
        hash = hash * kSecond & mask_;
        return hash ^ hash >> shift_;
    }

    std::size_t count_;
    std::uint64_t mask_;
    unsigned shift_;
};

}  // namespace afflux::rows
