// Blocks of 256 bytes that need not move, because no bit of theirs is set. Their type does not
// matter, and -0 has a bit.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace afflux::collectives {

// Notes which blocks of `bytes` bytes have a bit set, the last one as if padded with zeros: 1 or 0
// for each. Returns how many have.
std::size_t find_present(const std::byte* from, std::size_t bytes, std::uint8_t* present);

// The same, and copies these blocks to the same place of `out`, which has whole blocks.
std::size_t copy_present(const std::byte* from, std::size_t bytes, std::byte* out,
                         std::uint8_t* present);

// The same as find_present, of whole blocks of which any source has a bit set.
void find_present_anywhere(int sources, const void* const* elements, std::size_t blocks,
                           std::uint8_t* present);

// Calls visit(first, last, present) for runs of blocks that are all present or all absent.
template <typename Visit>
void for_runs(const std::uint8_t* flags, std::size_t blocks, const Visit& visit) {
    for (std::size_t first = 0; first < blocks;) {
        const bool present = flags[first] != 0;
        std::size_t last = first + 1;
        while (last < blocks && (flags[last] != 0) == present) ++last;
        visit(first, last, present);
        first = last;
    }
}

// Calls visit(first, last, having) for runs of blocks that the same ranks have: bit r of `having`
// says whether rank r, of up to 64, does.
template <typename Visit>
void for_runs_of_ranks(int ranks, const std::uint8_t* const* present, std::size_t blocks,
                       const Visit& visit) {
    const std::uint64_t all = ~std::uint64_t{0} >> (64 - ranks);
    const auto has_all = [&](const std::uint8_t* flags) { return !std::memchr(flags, 0, blocks); };
    if (std::all_of(present, present + ranks, has_all)) {
        if (blocks) visit(0, blocks, all);
        return;
    }
    const auto having = [&](std::size_t block) {
        std::uint64_t mask = 0;
        for (int r = 0; r < ranks; ++r) mask |= std::uint64_t{present[r][block] != 0} << r;
        return mask;
    };
    std::uint64_t next = having(0);
    for (std::size_t block = 0; block < blocks;) {
        const std::uint64_t mask = next;
        const std::size_t first = block;
        do ++block;
        while (block < blocks && (next = having(block)) == mask);
        visit(first, block, mask);
    }
}

}  // namespace afflux::collectives
