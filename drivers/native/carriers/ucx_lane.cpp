#include "carriers/ucx_lane.hpp"

#include <sched.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace afflux::carriers {
namespace {

using namespace std::chrono_literals;

// For what was sent to leave, when a member may not take it any more.
constexpr auto kFlush = 1s;
// For members to say that they have all; those that are in no operation need nothing, and do not.
constexpr auto kLinger = 1s;
// For UCX to let go of memory. It does within microseconds.
constexpr auto kDrop = 10s;
constexpr int kBurst = 64;

void check(const UcxLibrary& ucx, ucx::Status status, const char* what) {
    if (status != ucx::kOk)
        throw std::runtime_error(std::string("UCX cannot ") + what + ": " + ucx.text_of(status));
}

}  // namespace

UcxLane::UcxLane(std::shared_ptr<const UcxContext> context, const std::vector<int>& sockets)
    : context_(std::move(context)), ucx_(context_->library()) {
    ucx::WorkerParams params{};
    params.field_mask = params.kThreadMode;
    params.thread_mode = params.kSerialized;
    check(ucx_, ucx_.worker_create(context_->get(), &params, &worker_), "make a worker");
    const ucx::Status status = ucx_.worker_get_efd(worker_, &descriptor_);
    if (status != ucx::kOk) {
        ucx_.worker_destroy(worker_);
        check(ucx_, status, "be waited for");
    }
    for (const int socket : sockets)
        streams_.push_back(socket < 0 ? nullptr : std::make_unique<UcxStream>(ucx_, socket));
}

UcxLane::~UcxLane() {
    for (const auto& each : streams_)
        if (each) each->drop();
    progress_until(kDrop, [this] {
        return std::ranges::all_of(streams_,
                                   [](auto& each) { return !each || each->is_dropped(); });
    });
    if (flush_) ucx_.request_free(flush_);
    ucx_.worker_destroy(worker_);
}

std::vector<std::byte> UcxLane::address() const {
    void* address;
    std::size_t bytes;
    check(ucx_, ucx_.worker_get_address(worker_, &address, &bytes), "tell its address");
    const auto* const first = static_cast<const std::byte*>(address);
    std::vector<std::byte> copy(first, first + bytes);
    ucx_.worker_release_address(worker_, address);
    return copy;
}

void UcxLane::connect(std::size_t member, std::span<const std::byte> address) {
    check(ucx_, streams_[member]->connect(worker_, address.data()), "connect");
}

bool UcxLane::progress() {
    // Not for ever: what came is to be taken, too.
    int n = 0;
    while (n < kBurst && ucx_.worker_progress(worker_)) ++n;
    if (!end_waits()) return n != 0;
    // A member that has ended may have done so because of another one, whose end is the reason.
    for (const auto& each : streams_) {
        if (!each) continue;
        each->read_words();
        each->announce_end();
    }
    return true;
}

bool UcxLane::end_waits() const {
    return std::ranges::any_of(streams_,
                               [](const auto& each) { return each && each->end_waits(); });
}

template <typename Done>
bool UcxLane::progress_until(UcxStream::Clock::duration longest, const Done& done) {
    const auto start = UcxStream::Clock::now();
    while (!done()) {
        if (UcxStream::Clock::now() - start >= longest) return false;
        if (!ucx_.worker_progress(worker_)) ::sched_yield();
    }
    return true;
}

// UCX may have bytes that its transport has not taken, and sends them only while it is called.
bool UcxLane::flushed() {
    std::uint64_t sent = 0;
    for (const auto& each : streams_) sent += each ? each->sent() : 0;
    if (!flush_) {
        if (sent == flushed_) return true;
        const ucx::RequestParams params{};
        void* const given = ucx_.worker_flush_nbx(worker_, &params);
        flushed_ = sent;
        if (!ucx::is_request(given)) return true;
        flush_ = given;
        flush_began_ = UcxStream::Clock::now();
    }
    if (ucx_.request_check_status(flush_) != ucx::kInProgress) {
        ucx_.request_free(std::exchange(flush_, nullptr));
        return sent == flushed_;
    }
    // A member that has ended may have left bytes that it needs no more.
    const bool one_ended = std::ranges::any_of(
        streams_, [](const auto& each) { return each && each->connection_ended(); });
    return one_ended && UcxStream::Clock::now() - flush_began_ >= kFlush;
}

short UcxLane::events(std::size_t member, bool, bool) const {
    return streams_[member]->connection_ended() ? 0 : POLLIN;
}

bool UcxLane::arm() {
    // Its end makes the descriptor readable only if UCX was not called meanwhile.
    if (flush_) return false;
    if (ucx_.worker_progress(worker_) || end_waits()) return false;
    for (const auto& each : streams_)
        if (each && each->expects_more()) return false;
    return ucx_.worker_arm(worker_) == ucx::kOk;
}

void UcxLane::release() {
    const bool all = progress_until(kFlush, [this] {
        bool sending = false;
        for (const auto& each : streams_) sending |= each && each->is_sending();
        return !sending && flushed();
    });
    if (all) return;
    for (const auto& each : streams_)
        if (each && each->is_sending()) each->drop();
    progress_until(kDrop, [this] {
        return std::ranges::none_of(streams_,
                                    [](auto& each) { return each && each->is_sending(); });
    });
}

void UcxLane::end() {
    if (std::exchange(ended_, true)) return;
    release();
    for (const auto& each : streams_)
        if (each) each->send_last_word();
}

void UcxLane::close() {
    end();
    progress_until(kLinger, [this] {
        return std::ranges::all_of(streams_, [](auto& each) {
            if (!each) return true;
            each->read_words();
            return each->is_done();
        });
    });
}

}  // namespace afflux::carriers
