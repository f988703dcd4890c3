// One operation after the other among ranks that have streams to each other.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "carriers/carrier.hpp"
#include "collectives/errors.hpp"
#include "collectives/terms.hpp"
#include "streams/incoming.hpp"
#include "streams/landing.hpp"
#include "streams/layout.hpp"
#include "streams/outgoing.hpp"
#include "streams/results.hpp"

namespace afflux::streams {

// The aggregator has ended; the ranks themselves are all there.
class AggregatorEnded : public Failed {
  public:
    using Failed::Failed;
};

// The calls of all ranks travel in front of their data, so an operation takes no round trip of its
// own, and no rank finishes one before it has compared all calls. Therefore a peer is at most one
// operation ahead: its next message waits in the kernel.
//
// A piece is reduced when all contributions to it have come, in order of the pieces; a result also
// tells that a contribution's memory is free again. A rank reads from a peer unless the next
// message is a contribution too far ahead. That waits for no stream: the owner then has the peer's
// contributions to earlier pieces, and reads those of all others.
class Exchange {
  public:
    // Called when an aggregator hears the first call of an operation, to begin it.
    using Begin = std::function<void(const Signature& signature, std::uint32_t operation)>;

    // The streams by member; they stay the caller's. `names`: the ranks' numbers in messages. A
    // member beyond the ranks is their aggregator: it owns parts, and neither calls nor
    // contributes. `begin_by_call`: of the aggregator itself.
    Exchange(int rank, carriers::LaneCarrier& carrier, std::vector<int> names,
             Begin begin_by_call = nullptr);

    // Lets results of the aggregator land apart, and keeps the last ones: ranks may go on without
    // it, and then need each contribution of which there is no result.
    void keep_results() { keeps_results_ = true; }
    // Of the aggregator's part in the operation that has begun.
    Results results() const;
    // A piece of them that is among the last `kPiecesAhead` of `pieces`; until the first result of
    // another operation comes.
    const Landing& kept_result(std::size_t piece, std::size_t pieces) const {
        return *peer(ranks_).landings[landing_of_result(piece, pieces)];
    }
    // Begins the operation `operation`, with this lane's part of the layout. `terms` makes those of
    // a rank that stands for several.
    void begin(const Layout& layout, const Reduction* reduction, const Terms* terms,
               const Signature& signature, std::uint64_t operation);
    // Does what can be done without waiting. Returns whether it was anything.
    // Throws Failed if a peer has ended or says that it has given up; if that is the aggregator
    // alone, AggregatorEnded.
    bool progress();
    bool over() const;
    // Whether ranks have called something else, and all calls are known.
    bool disagreed() const { return disagreed_ && calls_ == callers() && calls_sent(); }
    void end();
    bool active() const { return active_; }
    // Of the part that this member owns.
    std::size_t own_bytes() const { return own().bytes; }
    // Whether no peer sends anything more.
    bool all_ended() const;

    // Whether data from a peer would be read, or sent to it, if the kernel had them or room.
    bool wants_input(int rank) const;
    bool wants_output(int rank) const;
    // Bytes that complete what has begun to come from the rank, which sends them whatever happens.
    std::size_t expects(int rank) const { return peer(rank).in.missing(); }
    // The kernel may have them now, or room: it is asked again, which costs a call.
    void look_for_input(int rank) { peer(rank).in.look_again(); }
    void look_for_output(int rank) { peer(rank).out.look_again(); }

    // Tells each peer why this rank gives up, unless a message is on its way.
    void send_failure(const std::string& text);

    const Signature& signature(int rank) const { return peer(rank).signature; }
    // Members for whose data the operation waits; any thread.
    Ranks missing() const { return missing_.load(std::memory_order_relaxed); }
    Ranks ended() const { return ended_.load(std::memory_order_relaxed); }
    const BlockCounts& blocks() const { return blocks_; }
    std::uint64_t bytes_sent() const { return bytes_sent_; }

  private:
    struct Peer {
        explicit Peer(carriers::Stream& stream) : in(stream), out(stream) {}

        Incoming in;
        Outgoing out;
        bool called = false, call_queued = false, call_sent = false;
        bool placed = false;  // of the present message, its last part
        bool bitmap_is_next = false;
        Signature signature{};
        std::array<std::byte, kFailureBytes> failure;
        // Pieces: of the peer's contributions that are here, of its results that are here, and of
        // this rank's that are on their way or have left.
        std::size_t contributions = 0, results = 0;
        std::size_t contributions_queued = 0, contributions_sent = 0;
        std::size_t results_queued = 0, results_sent = 0;
        std::array<std::unique_ptr<Landing>, kPiecesAhead> landings;
        std::array<std::byte, kBitmapBytes> bitmap;
        // Terms on their way, and whether their blocks are there; of each message of a batch.
        std::array<std::unique_ptr<Landing>, Outgoing::kMessages> terms;
        std::size_t terms_used = 0;
    };

    // Members whose calls come.
    int callers() const { return is_aggregator() ? ranks_ : ranks_ - 1; }
    bool is_aggregator() const { return rank_ == ranks_; }
    bool contributes(int rank) const { return has(layout_.contributing, rank); }
    std::byte* result_at(const Part& part, std::size_t piece) const {
        return part.result + layout_.slot_of(piece) * layout_.piece_bytes();
    }
    std::uint8_t* present_at(std::size_t piece) {
        return &present_[layout_.slot_of(piece) * layout_.piece_blocks];
    }
    Peer& peer(int rank) const { return *peers_[static_cast<std::size_t>(rank)]; }
    const Part& part(int rank) const { return layout_.parts[static_cast<std::size_t>(rank)]; }
    const Part& own() const { return part(rank_); }
    bool calls_sent() const;
    // Pieces that a peer still has to send and to get.
    std::size_t contributions_from(int rank) const;
    std::size_t results_from(int rank) const;
    std::size_t contributions_to(int rank) const;
    std::size_t results_to(int rank) const;
    bool is_direct() const { return layout_.contributing && !reduction_; }
    bool of_hosts() const { return !layout_.sources.empty(); }

    bool send(int rank);
    void compose(int rank);
    bool add_contribution(Peer& to, const Part& part, std::size_t piece);
    bool add_terms(Peer& to, const Head& head, const std::byte* from, std::size_t bytes);
    std::size_t pack(std::size_t blocks, Landing& terms) const;
    bool add_piece(Peer& to, Head head, const std::byte* from, std::size_t bytes,
                   const std::uint8_t* present, std::size_t terms = 1,
                   const Landing* packed = nullptr, std::size_t packed_blocks = 0);
    bool receive(int rank);
    bool place(int rank);
    void place_blocks(int rank);
    std::size_t place_packed(int rank, Landing& waits, std::size_t blocks);
    void unpack(int rank, Landing& waits, std::size_t blocks) const;
    void arrived(int rank);
    void put_in_place(int rank);
    bool is_ahead(const Peer& from) const;
    Landing* landing(int rank);
    bool reduce();
    using Elements = std::array<const void*, arithmetic::kMaxRanks>;
    using Flags = std::array<const std::uint8_t*, arithmetic::kMaxRanks>;
    void reduce_piece(std::size_t piece);
    Landing* own_terms(const std::byte* from, std::size_t blocks);
    void make_terms(const std::byte* from, std::size_t blocks, Landing& to) const;
    void reduce_last(std::size_t whole, std::size_t rest, const std::byte* mine, Elements& elements,
                     Flags& present, std::byte* out, std::uint8_t* some) const;
    void look_for_end(int rank);
    std::string name(int rank) const;
    [[noreturn]] void broken(int rank, const char* what) const;

    carriers::LaneCarrier& carrier_;
    const int rank_, ranks_, members_;
    const std::vector<int> names_;
    const Begin begin_by_call_;
    std::vector<std::unique_ptr<Peer>> peers_;  // by member; the own one is null
    LandingPool pool_;
    std::unique_ptr<Landing> own_;  // terms of the own sources

    bool keeps_results_ = false;
    bool active_ = false;
    std::uint32_t operation_ = 0;
    Signature own_signature_{};
    Layout layout_;
    const Reduction* reduction_ = nullptr;
    const Terms* terms_ = nullptr;
    bool scanned_ = false;
    int calls_ = 0;
    bool disagreed_ = false;
    std::size_t reduced_ = 0;            // own pieces whose results are there
    std::vector<std::uint8_t> present_;  // blocks of the own part's results
    std::vector<std::uint8_t> flags_;    // of one piece
    BlockCounts blocks_;
    std::uint64_t bytes_sent_ = 0;
    std::atomic<Ranks> missing_{0}, ended_{0};
};

}  // namespace afflux::streams
