// Messages that leave.
#include <algorithm>
#include <cstring>
#include <span>

#include "streams/exchange.hpp"
#include "streams/piece.hpp"

namespace afflux::streams {
namespace {

void to_bitmap(const std::uint8_t* present, std::size_t blocks, std::byte* bitmap) {
    std::memset(bitmap, 0, (blocks + 7) / 8);
    for (std::size_t b = 0; b < blocks; ++b)
        bitmap[b / 8] |= static_cast<std::byte>((present[b] != 0) << (b % 8));
}

}  // namespace

bool Exchange::send(int rank) {
    Peer& to = peer(rank);
    bool moved = false;
    for (int batch = 0; batch < 2 && to.out.error().empty(); ++batch) {
        if (to.out.empty()) compose(rank);
        if (to.out.empty()) break;
        moved |= to.out.flush();
        // It is the first message of its batch.
        to.call_sent |= to.call_queued && (to.out.empty() || to.out.begun());
        if (!to.out.empty()) break;
        to.contributions_sent = to.contributions_queued;
        to.results_sent = to.results_queued;
        to.terms_used = 0;
    }
    return moved;
}

void Exchange::compose(int rank) {
    Peer& to = peer(rank);
    if (!active_) return;
    if (!to.call_queued) {
        const std::span<const Signature, 1> whole(&own_signature_, 1);
        to.out.add({0, operation_, 0, Kind::Call, 0, 0, 0}, std::as_bytes(whole), {});
        to.call_queued = true;
    }
    if (disagreed_) return;
    // Results first: others wait for them, and they let peers send more.
    while (to.results_queued < std::min(reduced_, results_to(rank))) {
        const std::size_t piece = to.results_queued;
        const Head head{0, operation_, static_cast<std::uint32_t>(piece), Kind::Result, 0, 0, 0};
        if (!add_piece(to, head, result_at(own(), piece), layout_.bytes_of(own(), piece),
                       scanned_ ? present_at(piece) : nullptr))
            return;
        ++to.results_queued;
    }
    const std::size_t last = contributions_to(rank);
    const bool answers = has(layout_.receiving, rank_);
    while (to.contributions_queued < last &&
           (!answers || to.contributions_queued < to.results + kPiecesAhead)) {
        if (!add_contribution(to, part(rank), to.contributions_queued)) return;
        ++to.contributions_queued;
    }
}

bool Exchange::add_contribution(Peer& to, const Part& part, std::size_t piece) {
    if (!to.out.takes(1)) return false;
    const std::size_t bytes = layout_.bytes_of(part, piece);
    const std::byte* const from = part.contribution + piece * layout_.piece_bytes();
    const Head head{0, operation_, static_cast<std::uint32_t>(piece), Kind::Contribution, 0, 0, 0};
    if (of_hosts()) return add_terms(to, head, from, bytes);
    if (!scanned_) return add_piece(to, head, from, bytes, nullptr);
    const std::size_t found = find_present(from, bytes, flags_.data());
    if (!add_piece(to, head, from, bytes, flags_.data())) return false;
    blocks_.add(found, blocks_in(bytes));
    return true;
}

// Adds what stands for all sources.
bool Exchange::add_terms(Peer& to, const Head& head, const std::byte* from, std::size_t bytes) {
    const auto count = static_cast<std::size_t>(layout_.sources_of(rank_));
    const std::size_t blocks = blocks_in(bytes);
    // As many runs as there can be.
    if (!to.out.takes(count * (blocks / 2 + 1))) return false;
    auto& room = to.terms[to.terms_used];
    if (!room) room = pool_.take();
    make_terms(from, blocks, *room);
    const std::size_t packed = reduction_->packs_terms() ? pack(blocks, *room) : 0;
    std::size_t terms = count;
    const auto has_any = [&](std::size_t k) {
        return std::memchr(&room->present[k * blocks], 1, blocks) != nullptr;
    };
    while (terms > 1 && !has_any(terms - 1)) --terms;
    add_piece(to, head, room->elements.data(), bytes, room->present.data(), terms, room.get(),
              packed);
    ++to.terms_used;
    blocks_.add(packed + static_cast<std::size_t>(
                             std::count(room->present.data(), room->present.data() + blocks, 1)),
                blocks);
    return true;
}

// Packs blocks of two terms; these count as absent then. Returns how many there are.
std::size_t Exchange::pack(std::size_t blocks, Landing& terms) const {
    std::size_t count = 0;
    const auto sources = static_cast<std::size_t>(layout_.sources_of(rank_));
    std::memset(terms.is_packed.data(), 0, blocks);
    if (sources < 2) return 0;
    std::uint8_t* const present = terms.present.data();
    for (std::size_t b = 0; b < blocks; ++b) {
        if (!present[b] || !present[blocks + b]) continue;
        if (sources > 2 && present[2 * blocks + b]) continue;
        const std::byte* const first = terms.elements.data() + b * kBlockBytes;
        if (!pack_terms(first, first + layout_.piece_bytes(),
                        terms.packed.data() + count * kPackedBytes))
            continue;
        terms.is_packed[b] = 1;
        present[b] = present[blocks + b] = 0;
        ++count;
    }
    return count;
}

// Adds a piece to the batch if there is room. `present`: its blocks that have to travel, of each
// term; null: all.
bool Exchange::add_piece(Peer& to, Head head, const std::byte* from, std::size_t bytes,
                         const std::uint8_t* present, std::size_t terms, const Landing* packed,
                         std::size_t packed_blocks) {
    const auto base = const_cast<std::byte*>(from);
    const std::size_t blocks = blocks_in(bytes);
    if (!present || (terms == 1 && !packed_blocks && !std::memchr(present, 0, blocks))) {
        const iovec whole{base, bytes};
        if (!to.out.takes(1)) return false;
        to.out.add(head, {}, {&whole, 1});
        bytes_sent_ += bytes;
        return true;
    }
    std::array<iovec, kPieceBlocks / 2 + arithmetic::kMaxRanks + 1> runs;
    std::array<std::byte, kBitmapBytes> bitmaps;
    const std::size_t bitmap = (blocks + 7) / 8;
    std::size_t count = 0;
    for (std::size_t k = 0; k < terms; ++k) {
        const std::uint8_t* const flags = present + k * blocks;
        for_present(flags, bytes, [&](std::size_t at, std::size_t run) {
            runs[count++] = {base + k * layout_.piece_bytes() + at, run};
            bytes_sent_ += run;
        });
        to_bitmap(flags, blocks, bitmaps.data() + k * bitmap);
    }
    std::size_t front = terms * bitmap;
    if (packed_blocks) {
        const std::size_t packed_bytes = packed_blocks * kPackedBytes;
        runs[count++] = {const_cast<std::byte*>(packed->packed.data()), packed_bytes};
        bytes_sent_ += packed_bytes;
        to_bitmap(packed->is_packed.data(), blocks, bitmaps.data() + front);
        front += bitmap;
        head.packed = 1;
    }
    if (!to.out.takes(count)) return false;
    head.bitmaps = static_cast<std::uint8_t>(terms);
    to.out.add(head, {bitmaps.data(), front}, {runs.data(), count});
    return true;
}

void Exchange::send_failure(const std::string& text) {
    const Ranks ended = this->ended();
    const std::size_t length = std::min(text.size(), kFailureBytes - sizeof ended);
    std::array<std::byte, kFailureBytes> payload;
    std::memcpy(payload.data(), &ended, sizeof ended);
    std::memcpy(payload.data() + sizeof ended, text.data(), length);
    // Peers may end the operation that is over here.
    const std::uint32_t operation = operation_ + (active_ ? 0 : 1);
    for (const auto& each : peers_) {
        if (!each || !each->out.empty() || !each->out.error().empty()) continue;
        each->out.add({0, operation, 0, Kind::Failure, 0, 0, 0},
                      {payload.data(), sizeof ended + length}, {});
        each->out.flush();
    }
}

}  // namespace afflux::streams
