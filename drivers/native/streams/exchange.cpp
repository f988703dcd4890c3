#include "streams/exchange.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "streams/piece.hpp"

namespace afflux::streams {

Exchange::Exchange(int rank, carriers::LaneCarrier& carrier, std::vector<int> names,
                   Begin begin_by_call)
    : carrier_(carrier),
      rank_(rank),
      ranks_(static_cast<int>(names.size())),
      members_(static_cast<int>(carrier.members())),
      names_(std::move(names)),
      begin_by_call_(std::move(begin_by_call)),
      flags_(kPieceBlocks) {
    for (int r = 0; r < members_; ++r)
        peers_.push_back(
            r == rank ? nullptr
                      : std::make_unique<Peer>(*carrier.stream(static_cast<std::size_t>(r))));
}

void Exchange::begin(const Layout& layout, const Reduction* reduction, const Terms* terms,
                     const Signature& signature, std::uint64_t operation) {
    active_ = true;
    operation_ = static_cast<std::uint32_t>(operation);
    own_signature_ = signature;
    layout_ = layout;
    reduction_ = reduction;
    terms_ = terms;
    scanned_ = reduction_ && reduction_->scanned();
    calls_ = 0;
    disagreed_ = false;
    for (const auto& each : peers_) {
        if (!each) continue;
        each->in.look_again();
        each->called = false;
        each->call_queued = each->call_sent = is_aggregator();
        each->contributions = each->results = 0;
        each->contributions_queued = each->contributions_sent = 0;
        each->results_queued = each->results_sent = 0;
    }
    if (members_ > ranks_ && !is_aggregator()) {
        // It calls nothing, and hears of what it has a part in.
        Peer& aggregator = peer(ranks_);
        aggregator.called = true;
        aggregator.call_queued = !contributions_to(ranks_);
        aggregator.signature = signature;
    }
    reduced_ = 0;
    const std::size_t blocks = blocks_in(own().bytes);
    present_.assign(layout_.ring ? std::min(blocks, layout_.ring * layout_.piece_blocks) : blocks,
                    1);
    // Without contributions, or with the own alone, an owner's part is a result already.
    const Ranks others = layout_.contributing & ~(Ranks{1} << rank_);
    if (!others && !reduction_) reduced_ = layout_.pieces(own());
    missing_.store(0, std::memory_order_relaxed);
}

void Exchange::end() {
    active_ = false;
    layout_ = {};
}

Results Exchange::results() const {
    if (members_ == ranks_ || is_aggregator()) return {};
    return {part(ranks_), layout_.piece_bytes(), peer(ranks_).results};
}

std::size_t Exchange::contributions_from(int rank) const {
    return contributes(rank) ? layout_.pieces(own()) : 0;
}

std::size_t Exchange::results_from(int rank) const {
    return has(layout_.receiving, rank_) ? layout_.pieces(part(rank)) : 0;
}

std::size_t Exchange::contributions_to(int rank) const {
    return contributes(rank_) ? layout_.pieces(part(rank)) : 0;
}

std::size_t Exchange::results_to(int rank) const {
    return has(layout_.receiving, rank) ? layout_.pieces(own()) : 0;
}

// An aggregator need not hear of a disagreement.
bool Exchange::calls_sent() const {
    return std::all_of(peers_.begin(), peers_.begin() + ranks_,
                       [](const auto& each) { return !each || each->call_sent; });
}

bool Exchange::all_ended() const {
    return std::ranges::all_of(peers_, [](const auto& each) { return !each || each->in.ended(); });
}

bool Exchange::over() const {
    if (disagreed_ || calls_ != callers() || reduced_ != layout_.pieces(own())) return false;
    for (int r = 0; r < members_; ++r) {
        if (r == rank_) continue;
        const Peer& each = peer(r);
        if (!each.call_queued || !each.out.empty() || each.results != results_from(r) ||
            each.contributions_queued != contributions_to(r) ||
            each.results_queued != results_to(r))
            return false;
    }
    return true;
}

bool Exchange::wants_input(int rank) const {
    const Peer& from = peer(rank);
    return !from.in.ended() && !(from.in.has_head() && is_ahead(from));
}

bool Exchange::wants_output(int rank) const {
    return !peer(rank).out.empty();
}

bool Exchange::progress() {
    bool moved = false;
    if (carrier_.progress())
        for (const auto& each : peers_) {
            if (!each) continue;
            each->in.look_again();
            each->out.look_again();
        }
    Ranks absent = 0, behind = 0;
    for (int r = 0; r < members_; ++r) {
        if (r == rank_) continue;
        moved |= send(r);
        moved |= receive(r);
        const Peer& each = peer(r);
        if (!each.called)
            absent |= Ranks{1} << r;
        else if (each.contributions != contributions_from(r) || each.results != results_from(r))
            behind |= Ranks{1} << r;
    }
    // After all have been read: a rank that has given up because of another one may have ended
    // without saying so.
    for (int r = 0; r < members_; ++r)
        if (r != rank_) look_for_end(r);
    moved |= reduce();
    // Ranks that have called may be waiting for those that have not.
    missing_.store(absent ? absent : behind, std::memory_order_relaxed);
    return moved;
}

// A peer may end when it has got and sent all that belongs to the operation.
void Exchange::look_for_end(int rank) {
    const Peer& each = peer(rank);
    if (!each.in.ended() && each.out.error().empty()) return;
    ended_.fetch_or(Ranks{1} << rank, std::memory_order_relaxed);
    if (!active_) return;
    const bool waits_for_it = !each.called || each.contributions != contributions_from(rank) ||
                              each.results != results_from(rank) || !each.out.error().empty();
    if (!waits_for_it || (disagreed_ && each.called)) return;
    // The kernel tells an error once, such as that the peer's host does not answer: what is read
    // after a send that has failed looks like an end in peace.
    const std::string& why = each.out.error().empty() ? each.in.end() : each.out.error();
    const std::string text = name(rank) + ": " + why;
    if (rank == ranks_) throw AggregatorEnded(text);
    throw Failed(text);
}

bool Exchange::reduce() {
    if (disagreed_ || reduced_ == layout_.pieces(own())) return false;
    bool moved = false;
    for (; reduced_ < layout_.pieces(own()); ++reduced_, moved = true) {
        for (int r = 0; r < ranks_; ++r) {
            if (r == rank_) continue;
            if (contributes(r) && peer(r).contributions <= reduced_) return moved;
            if (layout_.in_place && peer(r).contributions_sent <= reduced_) return moved;
            // Else the memory of the result had another one that is on its way.
            if (layout_.ring && peer(r).results_sent + layout_.ring <= reduced_)
                broken(r, "contributions too far ahead of its results");
        }
        if (!is_direct()) reduce_piece(reduced_);
    }
    return moved;
}

void Exchange::reduce_piece(std::size_t piece) {
    const std::size_t bytes = layout_.bytes_of(own(), piece), blocks = blocks_in(bytes);
    const std::size_t whole = bytes / kBlockBytes, rest = bytes % kBlockBytes;
    const std::byte* const mine =
        contributes(rank_) ? own().contribution + piece * layout_.piece_bytes() : nullptr;
    std::byte* const out = result_at(own(), piece);
    std::uint8_t* const some = present_at(piece);
    Elements elements;
    Flags present;
    // In order of the ranks that are stood for: all own ones, and what stands for those of others.
    std::uint64_t firsts = 0;
    std::size_t count = 0;
    for (int r = 0; r < ranks_; ++r) {
        if (!contributes(r)) continue;
        const auto terms = static_cast<std::size_t>(layout_.sources_of(r));
        Landing* const landed =
            r == rank_ ? own_terms(mine, blocks) : peer(r).landings[piece % kPiecesAhead].get();
        firsts |= (landed ? 1 : ~std::uint64_t{0} >> (64 - terms)) << count;
        for (std::size_t k = 0; k < terms; ++k, ++count) {
            const std::byte* const source = mine + k * layout_.apart;
            std::uint8_t* const flags = &flags_[k * blocks];
            if (landed) {
                elements[count] = landed->elements.data() + k * layout_.piece_bytes();
                present[count] = &landed->present[k * blocks];
                continue;
            }
            if (scanned_)
                find_present(source, bytes, flags);
            else
                std::memset(flags, 1, blocks);
            elements[count] = source;
            present[count] = flags;
        }
    }
    if (of_hosts()) {
        reduction_->reduce_terms(blocks, elements.data(), present.data(), firsts, out, some);
    } else if (!mine) {
        reduction_->reduce(blocks, elements.data(), present.data(), out, some);
    } else {
        reduction_->reduce(whole, elements.data(), present.data(), out, some);
        if (rest) reduce_last(whole, rest, mine, elements, present, out, some);
    }
    if (mine && out != mine) clear_absent(some, bytes, out);
    for (int r = 0; r < ranks_; ++r)
        if (r != rank_ && contributes(r))
            pool_.give_back(std::move(peer(r).landings[piece % kPiecesAhead]));
}

// The terms of the own sources, where not they themselves are reduced.
Landing* Exchange::own_terms(const std::byte* from, std::size_t blocks) {
    if (!terms_ || !terms_->rounded()) return nullptr;
    if (!own_) own_ = pool_.take();
    make_terms(from, blocks, *own_);
    return own_.get();
}

void Exchange::make_terms(const std::byte* from, std::size_t blocks, Landing& to) const {
    std::array<const std::byte*, arithmetic::kMaxRanks> sources;
    for (int s = 0; s < layout_.sources_of(rank_); ++s)
        sources[static_cast<std::size_t>(s)] = from + static_cast<std::size_t>(s) * layout_.apart;
    terms_->make(blocks, sources.data(), scanned_, to.elements.data(), layout_.piece_bytes(),
                 to.present.data());
}

// Reduces the last block of a tensor, of `rest` bytes: the own one is not to be read beyond its
// end.
void Exchange::reduce_last(std::size_t whole, std::size_t rest, const std::byte* mine,
                           Elements& elements, Flags& present, std::byte* out,
                           std::uint8_t* some) const {
    alignas(64) std::array<std::byte, kBlockBytes> last{}, sum;
    const std::size_t at = whole * kBlockBytes;
    std::memcpy(last.data(), mine + at, rest);
    for (int r = 0; r < ranks_; ++r) {
        const auto i = static_cast<std::size_t>(r);
        elements[i] = r == rank_ ? last.data() : static_cast<const std::byte*>(elements[i]) + at;
        present[i] += whole;
    }
    reduction_->reduce(1, elements.data(), present.data(), sum.data(), some + whole);
    if (some[whole]) std::memcpy(out + at, sum.data(), rest);
}

}  // namespace afflux::streams
