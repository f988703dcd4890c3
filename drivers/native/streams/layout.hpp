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
//     … by an aggregator   the tensor, its  all          all
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
    // For how many pieces the owner's results have memory, by turns; 0: for all.
    std::size_t ring = 0;
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
    // Where the memory of a piece of results is, among those of the part.
    std::size_t slot_of(std::size_t piece) const { return ring ? piece % ring : piece; }
    int sources_of(int rank) const {
        return sources.empty() ? 1 : sources[static_cast<std::size_t>(rank)];
    }
};

// Leaves of a layout with so many owners what one of several lanes carries.
Layout cut(const Layout& whole, int owners, int lane, int lanes);

// Of tensors of at least so many bytes, that of more than two ranks belongs to the aggregator.
// Smaller ones are summed sooner among the ranks, and two of these send each other no more than
// they would send an aggregator.
inline constexpr std::size_t kAggregated = 2 * kPieceBytes;
inline constexpr std::size_t kNoAggregator = ~std::size_t{0};

// The all-reduce of `bytes` bytes, whole blocks, of ranks that stand for several each. Sources are
// `apart` from the first one, `own`; the result goes to memory of its own. The others as below.
Layout layout_of_hosts(const std::byte* own, std::size_t apart, std::byte* result,
                       std::size_t bytes, const std::vector<int>& sources, std::size_t aggregated,
                       std::size_t one_hop);

// `aggregated`: an aggregator, as the member after the ranks, owns tensors of so many bytes or
// more. `one_hop`: as `most` of `takes_one_hop`.
Layout layout_of(const Call& call, int ranks, std::size_t aggregated, std::size_t one_hop);

// An aggregator's layout of an all-reduce of so many bytes, in memory for `ring` pieces.
// `sources` are empty if each rank stands for itself.
Layout layout_of_aggregator(std::size_t bytes, int ranks, const std::vector<int>& sources,
                            std::byte* results, std::size_t ring);

// How many of so many lanes carry a tensor: small ones gain nothing by several.
constexpr std::size_t lanes_for(std::size_t bytes, std::size_t lanes) {
    return bytes < 2 * kPieceBytes ? 1 : lanes;
}

// Whether each rank reduces the whole tensor, of which contributions have so many terms: if it then
// sends at most `most` bytes more, what a link carries while a message is on its way, and the
// tensor fits into a cache.
bool takes_one_hop(std::size_t bytes, int ranks, int terms, std::size_t most);

}  // namespace afflux::streams
