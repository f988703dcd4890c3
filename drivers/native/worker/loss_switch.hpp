// Loses packets for tests: decides for each packet, in each direction, whether it gets lost.
#pragma once

#include <cstdint>
#include <random>

namespace afflux::worker {

class LossSwitch {
  public:
    // Loses this share, 0 to below 1. Seed and rank fix all decisions. The directions draw from
    // generators of their own, so that the fate of the n-th packet sent does not depend on what
    // has been received.
    LossSwitch(double share, std::uint64_t seed, std::uint64_t rank)
        : share_(share), outward_(generator(seed, rank, 0)), inward_(generator(seed, rank, 1)) {}

    bool loses_outward() { return loses(outward_); }
    bool loses_inward() { return loses(inward_); }

  private:
    using Generator = std::mt19937_64;

    static Generator generator(std::uint64_t seed, std::uint64_t rank, std::uint32_t direction) {
        std::seed_seq mixed{static_cast<std::uint32_t>(seed),
                            static_cast<std::uint32_t>(seed >> 32),
                            static_cast<std::uint32_t>(rank), direction};
        return Generator(mixed);
    }

    bool loses(Generator& generator) const {
        // The 53 bits that a double holds: the same on every platform.
        return static_cast<double>(generator() >> 11) * 0x1p-53 < share_;
    }

    double share_;
    Generator outward_;
    Generator inward_;
};

}  // namespace afflux::worker
