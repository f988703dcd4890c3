#include "worker/operation.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>
#include <vector>

#include "worker/errors.hpp"

namespace afflux::worker {
namespace {

using packet::Header;

bool all_absent(const std::uint32_t* first, const std::uint32_t* last) {
    return std::all_of(first, last, [](std::uint32_t word) { return word == wire::kAbsent; });
}

// Losses of one packet too many for chance, though the probes for it are answered.
constexpr unsigned kVanishes = 30;

}  // namespace

std::size_t Operation::sharing(const Tensor& tensor, std::size_t lanes, std::size_t aggregators) {
    if (SideBySide::takes(tensor, lanes)) return 1;
    return worker::sharing(tensor.blocks(), lanes, aggregators);
}

Operation::Operation(Session& session, const Tensor& tensor, std::uint32_t fingerprint, Share share,
                     std::size_t slots, bool again)
    : session_(session),
      tensor_(tensor),
      fingerprint_(fingerprint),
      number_(static_cast<wire::Operation>(session.number)) {
    tensor_.partial_bits = session.job.partial_bits;
    // Blocks that come again are put in their places only when all of them are there.
    if (!again) tensor_.journal = session.journal.get();
    const std::size_t lanes = session.job.lanes;
    if (share.of > sharing(tensor, lanes, share.of)) {
        throw std::invalid_argument(std::to_string(share.of) +
                                    " aggregators cannot share the columns of " +
                                    std::to_string(tensor.count) + " elements");
    }
    if (SideBySide::takes(tensor, lanes)) {
        side_by_side_.emplace(tensor, session.job.rank, session.job.others);
        return;
    }
    if (!again && is_direct(tensor, lanes)) {
        direct_.emplace(tensor);
        return;
    }
    const Grid grid(tensor.blocks(), lanes, std::min(slots, session.job.slots), share);
    active_ = open_slots_ = grid.slots;
    columns_.emplace(tensor_, grid);
}

void Operation::open(double now, PacketSink& out) {
    for (std::size_t number = 0; number < active_; ++number) {
        Slot& slot = session_.slots[number];
        std::uint32_t* words = slot.packet.words();
        std::fill_n(words, wire::kLanesMax, wire::kAbsent);
        if (columns_) columns_->opening_words(number, words);
        unsigned present = 0;
        if (number == 0) {
            std::int32_t* blocks = slot.packet.blocks();
            std::fill_n(blocks, wire::kBlockElements, 0);
            blocks[session_.job.rank] = static_cast<std::int32_t>(fingerprint_);
            // The ranks of the host have compared their calls.
            for (std::uint64_t rest = session_.job.others; rest != 0; rest &= rest - 1)
                blocks[std::countr_zero(rest)] = static_cast<std::int32_t>(fingerprint_);
            present = 1;
            if (direct_) direct_->put(blocks + wire::kBlockElements);
            if (side_by_side_) side_by_side_->put(blocks + wire::kBlockElements);
            present |= carried();
        }
        send(slot, static_cast<wire::Present>(present), true, now, out);
    }
}

bool Operation::is_ours(const Header& header, std::size_t length) const {
    const JobRun& job = session_.job;
    const wire::Type type = header.type();
    const bool is_result = type == wire::Type::Result || type == wire::Type::Conflict;
    // All who hear the group know its key, so it is good for results to everyone alone.
    const bool to_us = job.has_group() && header.worker == wire::kEveryone
                           ? is_result && header.key == session_.group_key
                           : header.worker == job.worker && header.key == job.key;
    return to_us && header.job == job.number && packet::right_length(length, header.blocks());
}

void Operation::receive(packet::PacketBuffer& packet, std::size_t length, double now,
                        PacketSink& out) {
    Counts& counts = session_.counts;
    if (length < wire::kUdpPayloadMin) {
        ++counts.ignored;
        return;
    }
    const Header header = packet::load_header(packet.datagram());
    if (!is_ours(header, length)) {
        ++counts.ignored;
        return;
    }
    // A job that is no more is as good as an aggregator that is no more.
    if (header.version_type == packet::version_type(wire::Type::Refused)) {
        session_.refusal = packet.words()[0];
    } else {
        session_.refusal = 0;
        session_.heard_at = now;
        unanswered_since_ = kNever;
    }
    if (header.operation != number_ || header.slot >= active_) {
        ++counts.ignored;
        return;
    }
    Slot& slot = session_.slots[header.slot];
    if (header.round != slot.round || !slot.outstanding) {
        ++counts.ignored;
        return;
    }
    // Those that were kept back may be asked now.
    if (probe_pacing_.answered(session_.trip.timeout())) next_timer_ = now;
    if (header.version_type == packet::version_type(wire::Type::Result) &&
        header.opcode_dtype == result_opcode_dtype(slot)) {
        take_result(slot, header.present, packet, now, out);
    } else if (header.version_type == packet::version_type(wire::Type::Conflict)) {
        throw Disagreed(std::nullopt);
    } else if (header.version_type == packet::version_type(wire::Type::Missing) &&
               header.present == 0 && header.worker == session_.job.worker) {
        take_missing(slot, packet.words(), now, out);
    } else {
        ++counts.ignored;
    }
}

void Operation::expire(double now, PacketSink& out) {
    next_timer_ = kNever;
    due_.clear();
    probe_pacing_.start(now - session_.heard_at > session_.trip.overdue_after());
    for (std::size_t number = 0; number < active_; ++number) {
        Slot& slot = session_.slots[number];
        if (!slot.outstanding) continue;
        if (slot.probes_open > 0) probe_pacing_.note_open(slot.probed_at, now);
        if (due(slot) <= now) {
            due_.push_back(&slot);
        } else {
            next_timer_ = std::min(next_timer_, due(slot));
        }
    }
    if (due_.empty()) return;
    std::stable_sort(due_.begin(), due_.end(), [](const Slot* one, const Slot* other) {
        return one->sent_at < other->sent_at;
    });
    for (Slot* slot : due_) {
        if (!probe_pacing_.may_ask(now)) {
            next_timer_ = std::min(next_timer_, probe_pacing_.next(now));
            break;
        }
        ask(*slot, now, out);
    }
    release_least(now, out);
}

void Operation::ask(Slot& slot, double now, PacketSink& out) {
    RoundTrip& trip = session_.trip;
    if (!slot.asked) {
        if (slot.deadline <= now) trip.expired(slot.sent_at, now);
        slot.overtaken = trip.overdue(slot.sent_at) <= now;
    }
    slot.probed(now, trip.cap());
    next_timer_ = std::min(next_timer_, due(slot));
    ++session_.counts.probes;
    join_again(now, out);
    out.send(session_.probe(slot, opcode_dtype(slot)));
}

// When probes have had no answer for long: a translation on the way may have given this worker
// another address since it has joined, and the aggregator answers none but the one that it knows.
void Operation::join_again(double now, PacketSink& out) {
    if (unanswered_since_ == kNever) unanswered_since_ = now;
    if (now - unanswered_since_ < session_.trip.cap()) return;
    unanswered_since_ = now;
    out.send(session_.join());
}

// When to ask after a slot's packet.
double Operation::due(const Slot& slot) const {
    return slot.asked ? slot.deadline
                      : std::min(slot.deadline, session_.trip.overdue(slot.sent_at));
}

std::uint64_t Operation::missing_workers() const {
    std::uint64_t workers = 0;
    for (std::size_t number = 0; number < active_; ++number) {
        const Slot& slot = session_.slots[number];
        if (slot.outstanding) workers |= slot.missing;
    }
    return workers;
}

std::size_t Operation::vanishing() const {
    std::size_t bytes = 0;
    for (std::size_t number = 0; number < active_; ++number) {
        const Slot& slot = session_.slots[number];
        if (slot.outstanding && slot.lost >= kVanishes) bytes = std::max(bytes, slot.length);
    }
    return bytes;
}

bool Operation::waits_above() const {
    return std::any_of(session_.slots.begin(),
                       session_.slots.begin() + static_cast<std::ptrdiff_t>(active_),
                       [](const Slot& slot) { return slot.outstanding && slot.waits_above; });
}

void Operation::send(Slot& slot, wire::Present present, bool opening, double now, PacketSink& out) {
    const JobRun& job = session_.job;
    const Header header{
        .version_type = packet::version_type(wire::Type::Data),
        .opcode_dtype = opening ? tensor_.opening_opcode_dtype() : tensor_.opcode_dtype(),
        .job = job.number,
        .worker = job.worker,
        .slot = slot.number,
        .present = present,
        .round = slot.round,
        .key = job.key,
        .operation = number_,
    };
    packet::store_header(slot.packet.datagram(), header);
    session_.counts.blocks_sent += header.blocks();
    const std::size_t block_bytes = opening ? wire::kBlockBytes : tensor_.sent_block_bytes();
    slot.filled(packet::datagram_bytes(header.blocks(), block_bytes), opening);
    waiting_.emplace(slot.turn, slot.number);
    release(now, out);
}

void Operation::release(double now, PacketSink& out) {
    while (!waiting_.empty() && outstanding_ < session_.window.size()) {
        Slot& slot = session_.slots[waiting_.top().second];
        waiting_.pop();
        transmit(slot, now, out);
    }
}

void Operation::transmit(Slot& slot, double now, PacketSink& out) {
    ++outstanding_;
    const Octets datagram = slot.sent(now, session_.trip.timeout());
    // The timeout may have shrunk, so this timer need not be the last.
    next_timer_ = std::min(next_timer_, slot.deadline);
    out.send(datagram);
}

// Workers whose windows are full of packets that the others' windows keep back would wait for ever.
// The first packet that waits is let through if it comes before all that are outstanding: of the
// rounds that are not complete anywhere, the first one is then complete in the end.
void Operation::release_least(double now, PacketSink& out) {
    if (waiting_.empty()) return;
    const Waiting least = waiting_.top();
    for (std::size_t number = 0; number < active_; ++number) {
        const Slot& slot = session_.slots[number];
        if (slot.outstanding && Waiting(slot.turn, slot.number) < least) return;
    }
    waiting_.pop();
    transmit(session_.slots[least.second], now, out);
}

void Operation::take_result(Slot& slot, wire::Present present, packet::PacketBuffer& packet,
                            double now, PacketSink& out) {
    ++session_.counts.rounds;
    if (session_.journal) session_.journal->heard();
    if (!slot.asked) {
        take_sample(slot, now);
        session_.window.answered();
    } else if (slot.overtaken && slot.missing == 0) {
        session_.window.lost();
    }
    if (slot.opening) {
        opened(slot, present, packet.blocks());
    } else {
        columns_->take(slot.number, present, packet.blocks());
    }
    slot.outstanding = false;
    --outstanding_;
    ++slot.round;
    const std::uint32_t* words = packet.words();
    const std::uint32_t* end = words + wire::kLanesMax;
    if (all_absent(words, end)) {
        if (tensor_.journal != nullptr && columns_) columns_->keep(slot.number);
        if (--open_slots_ == 0) {
            ++session_.number;
            next_timer_ = kNever;
            done_ = true;
        }
        release(now, out);
        return;
    }
    if (!columns_ || !all_absent(words + session_.job.lanes, end)) {
        throw Misbehaved("slot " + std::to_string(slot.number) +
                         ": the result names blocks in lanes that are not in use");
    }
    const wire::Present sent =
        columns_->contribute(slot.number, words, slot.packet.words(), slot.packet.blocks());
    send(slot, sent, false, now, out);
}

void Operation::take_sample(const Slot& slot, double now) {
    RoundTrip& trip = session_.trip;
    if (slot.opening) {
        // The answer waits for the other ranks to call the operation at all.
        trip.sample_bound(slot.sent_at, now);
    } else {
        trip.sample(slot.sent_at, now);
        // Packets of other slots that were sent before this one may be overdue now.
        if (open_slots_ > 1) next_timer_ = std::min(next_timer_, now + trip.overdue_after());
    }
}

void Operation::opened(const Slot& slot, wire::Present present, const std::int32_t* blocks) {
    if (slot.number != 0) {
        if (present == 0) return;
        throw Misbehaved("blocks " + hexadecimal(present, 4) + " in the opening round of slot " +
                         std::to_string(slot.number));
    }
    check_fingerprints(present, blocks);
    const unsigned sent = 1U | carried();
    if (present != sent) {
        throw Misbehaved("lanes " + hexadecimal(present, 4) +
                         " are present in the opening result, " + hexadecimal(sent, 4) +
                         " were sent");
    }
    if (direct_) direct_->take(blocks + wire::kBlockElements);
    if (side_by_side_) side_by_side_->take(blocks + wire::kBlockElements);
    if (tensor_.journal != nullptr && (direct_ || side_by_side_)) {
        tensor_.journal->take_all();
        tensor_.journal->keep_all();
    }
}

// The lanes of the opening round that carry the tensor.
unsigned Operation::carried() const {
    if (direct_) return direct_->present();
    return side_by_side_ ? side_by_side_->present() : 0U;
}

std::vector<std::size_t> Operation::not_summed() const {
    if (!columns_) return {};
    std::vector<std::size_t> blocks = columns_->not_summed();
    std::sort(blocks.begin(), blocks.end());
    return blocks;
}

void Operation::check_fingerprints(wire::Present present, const std::int32_t* blocks) const {
    if ((present & 1) == 0)
        throw Misbehaved("the fingerprints are missing from the opening result");
    const unsigned ranks = session_.job.ranks;
    std::vector<std::uint32_t> found(blocks, blocks + ranks);
    if (std::all_of(found.begin(), found.end(),
                    [this](std::uint32_t value) { return value == fingerprint_; })) {
        return;
    }
    throw Disagreed(std::move(found));
}

void Operation::take_missing(Slot& slot, const std::uint32_t* words, double now, PacketSink& out) {
    RoundTrip& trip = session_.trip;
    const JobRun& job = session_.job;
    const std::uint64_t seen = std::uint64_t{words[1]} << 32 | words[0];
    const std::uint64_t everyone = ~std::uint64_t{0} >> (64 - job.workers);
    const bool own_lost = (seen >> job.worker & 1) == 0;
    // One probe, one answer: a round trip that waits for no other rank, unless rounds go further
    // up.
    if (slot.probes_open == 1 && seen != everyone) trip.sample_short(slot.probed_at, now);
    const double shortest = trip.timeout();
    if (own_lost) {
        ++slot.lost;
        session_.window.lost();
        // The contribution was lost; this rank cannot judge yet who else is missing.
        slot.answered(now, shortest);
    } else {
        slot.missing = ~seen & everyone;
        slot.waits_above = slot.missing == 0;
        // The aggregator is there, and others are late: ask ever more seldom, but not so seldom
        // that the loss of the result itself would cost much more than the wait had.
        slot.answered(now, std::min(std::max(shortest, (now - slot.sent_at) / 2), trip.cap()));
    }
    next_timer_ = std::min(next_timer_, slot.deadline);
    // A contribution that is there already makes an aggregator that waits for its parent send its
    // partial sum again.
    if (own_lost || slot.waits_above) {
        ++session_.counts.retransmissions;
        out.send_now(slot.again());
    }
}

}  // namespace afflux::worker
