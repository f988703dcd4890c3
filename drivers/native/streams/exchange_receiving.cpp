// Messages that come.
#include <cstring>
#include <span>
#include <string>

#include "collectives/errors.hpp"
#include "streams/exchange.hpp"
#include "streams/piece.hpp"

namespace afflux::streams {
namespace {

// Messages of one peer in a row, so that none keeps the others waiting.
constexpr int kBurst = 8;

}  // namespace

std::string Exchange::name(int rank) const {
    if (rank == ranks_) return "the aggregator";
    return "rank " + std::to_string(names_[static_cast<std::size_t>(rank)]);
}

void Exchange::broken(int rank, const char* what) const {
    throw Failed(name(rank) + " sent " + what);
}

// Whether the message whose head is here has to wait.
bool Exchange::is_ahead(const Peer& from) const {
    const Head& head = from.in.head();
    // A peer that fails in the next one has done its part of this one.
    if (head.kind == Kind::Failure)
        return active_ && static_cast<std::int32_t>(head.operation - operation_) > 0;
    if (!active_ && begin_by_call_) return head.kind != Kind::Call;
    if (!active_ || head.operation != operation_) return true;
    if (head.kind != Kind::Contribution || disagreed_ || is_direct()) return false;
    return head.piece >= reduced_ + kPiecesAhead;
}

bool Exchange::receive(int rank) {
    Peer& from = peer(rank);
    bool moved = false;
    for (int messages = 0; messages < kBurst;) {
        if (!from.in.has_head()) {
            if (from.in.ended() || !from.in.read()) return moved;
            moved = true;
        } else if (!from.in.part_is_here()) {
            if (from.in.ended() || !from.in.read()) return moved;
            moved = true;
        } else if (from.bitmap_is_next) {
            from.bitmap_is_next = false;
            place_blocks(rank);
        } else if (!from.placed) {
            if (!place(rank)) return moved;
            from.placed = true;
        } else {
            from.placed = false;
            arrived(rank);
            from.in.next();
            moved = true;
            ++messages;
        }
    }
    return moved;
}

// Finds the place of a payload. Returns false if it has to wait.
bool Exchange::place(int rank) {
    Peer& from = peer(rank);
    if (is_ahead(from)) {
        const std::uint32_t ahead = from.in.head().operation - operation_;
        // An aggregator is not called for each.
        const bool over = is_aggregator() ? static_cast<std::int32_t>(ahead) < 0 : ahead > 1;
        if (active_ && over) broken(rank, "a message of an operation that is over");
        return false;
    }
    const Head& head = from.in.head();
    switch (head.kind) {
        case Kind::Call:
            if (head.payload != sizeof(Signature) || (active_ && from.called))
                broken(rank, "no valid call");
            from.in.place(&from.signature, sizeof(Signature));
            return true;
        case Kind::Failure:
            if (head.payload > kFailureBytes || head.payload < sizeof(Ranks))
                broken(rank, "no valid reason");
            from.in.place(from.failure.data(), head.payload);
            return true;
        case Kind::Contribution:
        case Kind::Result:
            break;
        default:
            broken(rank, "a message of no known kind");
    }
    if (head.payload > kPieceBytes + kBitmapBytes) broken(rank, "too long a piece");
    if (!from.called) broken(rank, "a piece in front of its call");
    if (disagreed_) {
        from.in.skip(head.payload);
        return true;
    }
    const bool result = head.kind == Kind::Result;
    if (head.piece != (result ? from.results : from.contributions) ||
        head.piece >= (result ? results_from(rank) : contributions_from(rank)))
        broken(rank, "a piece that does not come next");
    const bool terms = !result && of_hosts();
    if (head.packed >
        (terms && reduction_->packs_terms() && layout_.sources_of(rank) > 1 && head.bitmaps))
        broken(rank, "packed blocks that a piece cannot have");
    if (!head.bitmaps) {
        place_blocks(rank);
        return true;
    }
    if (head.bitmaps > (terms ? layout_.sources_of(rank) : scanned_ ? 1 : 0))
        broken(rank, "more bitmaps than a piece has");
    const std::size_t bytes = layout_.bytes_of(result ? part(rank) : own(), head.piece);
    const std::size_t count = std::size_t{head.bitmaps} + head.packed;
    const std::size_t bitmaps = count * ((blocks_in(bytes) + 7) / 8);
    if (head.payload < bitmaps) broken(rank, "a piece without its bitmap");
    from.in.place(from.bitmap.data(), bitmaps);
    from.bitmap_is_next = true;
    return true;
}

// Where the present piece waits to be reduced, or to be there as a whole; null if it goes to its
// place at once.
Landing* Exchange::landing(int rank) {
    Peer& from = peer(rank);
    const Head& head = from.in.head();
    const bool result = head.kind == Kind::Result;
    if ((result && !(keeps_results_ && rank == ranks_)) || is_direct()) return nullptr;
    auto& one = from.landings[result ? landing_of_result(head.piece, results_from(rank))
                                     : head.piece % kPiecesAhead];
    if (!one) one = pool_.take();
    return one.get();
}

void Exchange::place_blocks(int rank) {
    Peer& from = peer(rank);
    const Head& head = from.in.head();
    const Part& whose = head.kind == Kind::Result ? part(rank) : own();
    const std::size_t bytes = layout_.bytes_of(whose, head.piece), blocks = blocks_in(bytes);
    Landing* const waits = landing(rank);
    std::byte* const to =
        waits ? waits->elements.data() : whose.result + head.piece * layout_.piece_bytes();
    std::uint8_t* const flags = waits ? waits->present.data() : flags_.data();
    // Terms that do not travel are none.
    const auto terms = static_cast<std::size_t>(waits ? layout_.sources_of(rank) : 1);
    std::memset(flags, 0, terms * blocks);
    // A short last block of a contribution is reduced as a whole one.
    if (waits && bytes % kBlockBytes) std::memset(to + bytes, 0, blocks * kBlockBytes - bytes);
    if (!head.bitmaps) {
        if (head.payload != bytes) broken(rank, "a piece of another length");
        std::memset(flags, 1, blocks);
        from.in.place(to, bytes);
        return;
    }
    std::array<iovec, kPieceBlocks / 2 + arithmetic::kMaxRanks + 1> runs;
    std::size_t count = 0;
    for (std::size_t k = 0; k < head.bitmaps; ++k) {
        const std::byte* const bitmap = from.bitmap.data() + k * ((blocks + 7) / 8);
        for (std::size_t b = 0; b < blocks; ++b)
            flags[k * blocks + b] = static_cast<std::uint8_t>(bitmap[b / 8] >> (b % 8)) & 1;
        for_present(flags + k * blocks, bytes, [&](std::size_t at, std::size_t run) {
            runs[count++] = {to + k * layout_.piece_bytes() + at, run};
        });
    }
    if (head.packed) {
        const std::size_t packed = place_packed(rank, *waits, blocks);
        if (packed) runs[count++] = {waits->packed.data(), packed * kPackedBytes};
    }
    from.in.place({runs.data(), count});
    if (from.in.unplaced()) broken(rank, "a piece of another length");
    // Blocks of a result that do not travel are zeros at all ranks: here too, if it is in place.
    if (!waits && of_hosts()) clear_absent(flags, bytes, to);
}

// Notes which blocks come packed, and returns how many do.
std::size_t Exchange::place_packed(int rank, Landing& waits, std::size_t blocks) {
    Peer& from = peer(rank);
    const std::byte* const bitmap =
        from.bitmap.data() + from.in.head().bitmaps * ((blocks + 7) / 8);
    std::size_t count = 0;
    for (std::size_t b = 0; b < blocks; ++b) {
        const auto packed = static_cast<std::uint8_t>(bitmap[b / 8] >> (b % 8)) & 1;
        waits.is_packed[b] = static_cast<std::uint8_t>(packed);
        count += packed;
        for (int k = 0; packed && k < layout_.sources_of(rank); ++k)
            if (waits.present[static_cast<std::size_t>(k) * blocks + b])
                broken(rank, "a packed block that has come otherwise, too");
    }
    return count;
}

void Exchange::unpack(int rank, Landing& waits, std::size_t blocks) const {
    const std::byte* from = waits.packed.data();
    for (std::size_t b = 0; b < blocks; ++b) {
        if (!waits.is_packed[b]) continue;
        std::byte* const first = waits.elements.data() + b * kBlockBytes;
        if (!unpack_terms(from, first, first + layout_.piece_bytes()))
            broken(rank, "a packed block with no valid exponent");
        waits.present[b] = waits.present[blocks + b] = 1;
        from += kPackedBytes;
    }
}

// Puts a piece of results where the contribution is.
void Exchange::put_in_place(int rank) {
    const std::size_t piece = peer(rank).in.head().piece;
    const Landing& landed = kept_result(piece, results_from(rank));
    std::byte* const to = part(rank).result + piece * layout_.piece_bytes();
    for_present(landed.present.data(), layout_.bytes_of(part(rank), piece),
                [&](std::size_t at, std::size_t bytes) {
                    std::memcpy(to + at, landed.elements.data() + at, bytes);
                });
}

void Exchange::arrived(int rank) {
    Peer& from = peer(rank);
    switch (from.in.head().kind) {
        case Kind::Call:
            if (!active_) begin_by_call_(from.signature, from.in.head().operation);
            from.called = true;
            ++calls_;
            disagreed_ = disagreed_ || !(from.signature == own_signature_);
            break;
        case Kind::Contribution:
            if (const Head& head = from.in.head(); head.packed && !disagreed_)
                unpack(rank, *from.landings[head.piece % kPiecesAhead],
                       blocks_in(layout_.bytes_of(own(), head.piece)));
            ++from.contributions;
            break;
        case Kind::Result:
            if (!disagreed_ && landing(rank)) put_in_place(rank);
            ++from.results;
            break;
        case Kind::Failure: {
            Ranks ended;
            std::memcpy(&ended, from.failure.data(), sizeof ended);
            ended_.fetch_or(ended, std::memory_order_relaxed);
            const std::string text(
                reinterpret_cast<const char*>(from.failure.data()) + sizeof ended,
                from.in.head().payload - sizeof ended);
            if (rank == ranks_ && !ended) throw AggregatorEnded(text);
            throw Failed(text);
        }
    }
}

}  // namespace afflux::streams
