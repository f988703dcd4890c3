// The elements that reach a bound, found at the speed of the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "selection/magnitude.hpp"

namespace afflux::selection {

// Elements of a tensor with their places, ascending.
struct Found {
    std::vector<Magnitude> magnitudes;
    std::vector<std::int64_t> places;

    std::size_t size() const { return places.size(); }
    void resize(std::size_t count) {
        magnitudes.resize(count);
        places.resize(count);
    }

    // Keeps the `count` largest, from 1 to all; of those that are equal to the least of them the
    // first ones. Returns the least magnitude that is kept.
    Magnitude keep_largest(std::size_t count);
};

// Elements that are looked at together; room for so many more is what a scan needs to go on.
constexpr std::size_t kScanChunk = 64;

// Adds the elements from place `first` on that reach the bound, until there are none, or there are
// more than `room` minus a chunk. Returns the place after the last one that was looked at.
std::size_t scan(std::span<const float> elements, std::size_t first, Magnitude bound,
                 std::size_t room, Found* found);

// For tests: scans without the processor's vector instructions, or with them again. Not to be
// called while other threads scan.
void scan_portably(bool portably);

}  // namespace afflux::selection
