#include "streams/layout.hpp"

#include <algorithm>

namespace afflux::streams {
namespace {

// Larger tensors are in no cache: each of two ranks then had better sum a half, and let the other
// half land where it belongs, than sum all that comes. Both ways send as much.
constexpr std::size_t kOneHopBytes = std::size_t{8} << 20;
// Of what an aggregator sums, results begin to leave when so much of it has come, but for pieces of
// less than 16 KiB.
constexpr std::size_t kAggregatedPieces = 32;
constexpr std::size_t kLeastPieceBlocks = 64;
// A larger tensor is not sent N - 1 times by the root of a broadcast.
constexpr std::size_t kDirectBytes = std::size_t{64} << 10;

Ranks all_of(int ranks) {
    return ~Ranks{0} >> (64 - ranks);
}

// A share of the tensor for each rank, in whole blocks.
void share_out(std::byte* tensor, std::size_t bytes, int ranks, Layout& layout) {
    const std::size_t blocks = (bytes + kBlockBytes - 1) / kBlockBytes;
    for (int r = 0; r < ranks; ++r) {
        const Share share = share_of(blocks, r, ranks);
        const std::size_t first = share.first * kBlockBytes;
        std::byte* const here = tensor ? tensor + first : nullptr;
        layout.parts[static_cast<std::size_t>(r)] = {
            std::min(share.last * kBlockBytes, bytes) - std::min(first, bytes), here, here};
    }
}

void stand_for(const std::vector<int>& sources, Layout& layout) {
    layout.sources = sources;
    layout.piece_blocks = kPieceBlocks / static_cast<std::size_t>(std::ranges::max(sources));
}

void aggregate(const Part& part, int ranks, Layout& layout) {
    layout.parts[static_cast<std::size_t>(ranks)] = part;
    const std::size_t share = part.bytes / kBlockBytes / kAggregatedPieces;
    layout.piece_blocks = std::min(layout.piece_blocks, std::max(share, kLeastPieceBlocks));
}

}  // namespace

bool takes_one_hop(std::size_t bytes, int ranks, int terms, std::size_t most) {
    const auto n = static_cast<std::size_t>(ranks), each = static_cast<std::size_t>(terms);
    // One hop sends (N - 1) times each tensor's terms; two send (N - 1) / N of them, and of
    // results.
    const std::size_t more = each * n - each - 1;
    return n == 1 || (bytes <= kOneHopBytes && bytes / n * (n - 1) * more <= most);
}

Layout layout_of(const Call& call, int ranks, std::size_t aggregated, std::size_t one_hop) {
    Layout layout;
    const std::size_t bytes = call.bytes();
    switch (call.what) {
        case Collective::AllReduce:
            layout.contributing = all_of(ranks);
            if (takes_one_hop(bytes, ranks, 1, one_hop)) {
                for (int r = 0; r < ranks; ++r)
                    layout.parts[static_cast<std::size_t>(r)] = {bytes, call.tensor, call.tensor};
                layout.in_place = ranks > 1;
            } else if (ranks > 2 && bytes >= aggregated) {
                aggregate({bytes, call.tensor, call.tensor}, ranks, layout);
                layout.receiving = layout.contributing;
            } else {
                share_out(call.tensor, bytes, ranks, layout);
                layout.receiving = layout.contributing;
            }
            break;
        case Collective::ReduceScatter:
            layout.contributing = all_of(ranks);
            for (int r = 0; r < ranks; ++r)
                layout.parts[static_cast<std::size_t>(r)] = {
                    bytes, call.inputs[static_cast<std::size_t>(r)], call.tensor};
            break;
        case Collective::AllGather:
            layout.receiving = all_of(ranks);
            for (int r = 0; r < ranks; ++r)
                layout.parts[static_cast<std::size_t>(r)] = {
                    bytes, nullptr, call.outputs[static_cast<std::size_t>(r)]};
            break;
        case Collective::Broadcast:
            layout.receiving = all_of(ranks) & ~(Ranks{1} << call.root);
            if (bytes <= kDirectBytes || ranks <= 2) {
                layout.parts[static_cast<std::size_t>(call.root)] = {bytes, call.tensor,
                                                                     call.tensor};
            } else {
                share_out(call.tensor, bytes, ranks, layout);
                layout.contributing = Ranks{1} << call.root;
            }
            break;
        case Collective::Barrier:
            break;
    }
    return layout;
}

Layout layout_of_hosts(const std::byte* own, std::size_t apart, std::byte* result,
                       std::size_t bytes, const std::vector<int>& sources, std::size_t aggregated,
                       std::size_t one_hop) {
    Layout layout;
    const auto ranks = static_cast<int>(sources.size());
    stand_for(sources, layout);
    layout.apart = apart;
    layout.contributing = all_of(ranks);
    // Sums of several floats are two, as a rule.
    if (takes_one_hop(bytes, ranks, std::min(2, std::ranges::max(sources)), one_hop)) {
        for (int r = 0; r < ranks; ++r)
            layout.parts[static_cast<std::size_t>(r)] = {bytes, own, result};
        return layout;
    }
    layout.receiving = layout.contributing;
    if (ranks > 2 && bytes >= aggregated) {
        aggregate({bytes, own, result}, ranks, layout);
        return layout;
    }
    share_out(result, bytes, ranks, layout);
    for (int r = 0; r < ranks; ++r) {
        Part& part = layout.parts[static_cast<std::size_t>(r)];
        part.contribution = own + (part.result - result);
    }
    return layout;
}

Layout layout_of_aggregator(std::size_t bytes, int ranks, const std::vector<int>& sources,
                            std::byte* results, std::size_t ring) {
    Layout layout;
    if (!sources.empty()) stand_for(sources, layout);
    layout.contributing = layout.receiving = all_of(ranks);
    layout.ring = ring;
    aggregate({bytes, nullptr, results}, ranks, layout);
    return layout;
}

Layout cut(const Layout& whole, int owners, int lane, int lanes) {
    Layout layout = whole;
    if (lanes == 1) return layout;
    for (int r = 0; r < owners; ++r) {
        Part& part = layout.parts[static_cast<std::size_t>(r)];
        const std::size_t blocks = (part.bytes + kBlockBytes - 1) / kBlockBytes;
        const Share share = share_of(blocks, lane, lanes);
        const std::size_t first = std::min(share.first * kBlockBytes, part.bytes);
        part.bytes = std::min(share.last * kBlockBytes, part.bytes) - first;
        if (part.contribution) part.contribution += first;
        if (part.result && !layout.ring) part.result += first;
    }
    return layout;
}

}  // namespace afflux::streams
