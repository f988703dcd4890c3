// The owners of parts, for each collective, and their peers.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/call.hpp"
#include "streams/message.hpp"

namespace afflux::streams {

// A part has an owner. Ranks that contribute send theirs to him; he reduces them, and sends the
// result to ranks that want it.
struct Part {
    std::size_t bytes = 0;
    const std::byte* contribution = nullptr;  // of this rank
    std::byte* result = nullptr;              // where it goes at this rank
};

// Ranks as bits.
using Ranks = std::uint64_t;

constexpr bool has(Ranks ranks, int rank) {
    return ranks >> rank & 1;
}

//                          parts            contribute   get results
//     AllReduce            the tensor's     all          all
//     AllReduce, one hop   whole tensors    all          none: each has its own
//     ReduceScatter        the inputs       all          none
//     AllGather            the inputs       none         all
//     Broadcast            the root's       none         all but the root
//     Broadcast, large     the tensor's     the root     all but the root
//     Barrier              none
struct Layout {
    std::array<Part, arithmetic::kMaxRanks> parts;  // by owner
    Ranks contributing = 0;
    Ranks receiving = 0;
    // Whether a result overwrites what this rank contributes to others.
    bool in_place = false;
    std::size_t piece_blocks = kPieceBlocks;
    // Where each rank of the exchange stands for several ranks, which have their elements in memory
    // so far apart from each other, in whole blocks: how many each stands for. Empty if none does.
    std::vector<int> sources;
    std::size_t apart = 0;

    std::size_t piece_bytes() const { return piece_blocks * kBlockBytes; }
    std::size_t pieces(const Part& part) const {
        return (part.bytes + piece_bytes() - 1) / piece_bytes();
    }
    std::size_t bytes_of(const Part& part, std::size_t piece) const {
        return std::min(part.bytes - piece * piece_bytes(), piece_bytes());
    }
    int sources_of(int rank) const {
        return sources.empty() ? 1 : sources[static_cast<std::size_t>(rank)];
    }
};

// Leaves of a layout what one of several lanes carries.
Layout cut(const Layout& whole, int ranks, int lane, int lanes);

// The all-reduce of `bytes` bytes, whole blocks, of ranks that stand for several each. Sources are
// `apart` from the first one, `own`; the result goes to memory of its own.
Layout layout_of_hosts(const std::byte* own, std::size_t apart, std::byte* result,
                       std::size_t bytes, const std::vector<int>& sources);

Layout layout_of(const Call& call, int ranks);

// Whether each rank reduces the whole tensor, of which contributions have so many terms.
bool takes_one_hop(std::size_t bytes, int ranks, int terms);

}  // namespace afflux::streams
