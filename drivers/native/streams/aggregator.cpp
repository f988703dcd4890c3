#include "streams/aggregator.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <utility>

#include "collectives/errors.hpp"

namespace afflux::streams {
namespace {

// `stop` ends a wait.
constexpr std::chrono::seconds kLongWait{10};

std::vector<int> all_of(const std::vector<std::vector<int>>& sockets) {
    std::vector<int> all;
    for (const auto& lane : sockets) all.insert(all.end(), lane.begin(), lane.end());
    return all;
}

}  // namespace

Aggregator::Aggregator(const std::vector<std::vector<int>>& sockets,
                       const std::vector<int>& sources, const std::vector<int>& names)
    : sockets_(all_of(sockets)),
      ranks_(sources.size()),
      contributors_(std::accumulate(sources.begin(), sources.end(), 0)),
      lanes_(sockets.size()) {
    if (sockets.empty()) throw std::invalid_argument("no streams");
    if (ranks_ < 1 || ranks_ >= arithmetic::kMaxRanks || contributors_ > arithmetic::kMaxRanks)
        throw std::invalid_argument("too few ranks, or too many");
    if (std::ranges::any_of(sources, [](int each) { return each < 1; }))
        throw std::invalid_argument("a rank that stands for nobody");
    if (std::ranges::max(sources) > 1) sources_ = sources;
    if (names.size() != ranks_) throw std::invalid_argument("not as many names as ranks");
    for (std::size_t lane = 0; lane < sockets.size(); ++lane) {
        std::vector<int> members = sockets[lane];
        if (members.size() != ranks_) throw std::invalid_argument("not as many sockets as ranks");
        members.push_back(-1);
        lanes_[lane].carrier = std::make_unique<carriers::SocketLane>(members);
        lanes_[lane].exchange = std::make_unique<Exchange>(
            static_cast<int>(ranks_), *lanes_[lane].carrier, names,
            [this, lane](const Signature& signature, std::uint32_t operation) {
                begin(lane, signature, operation);
            });
        lanes_[lane].results.reset(new std::array<std::byte, kRing * kPieceBytes>);
    }
}

std::size_t Aggregator::bytes_of(const Signature& signature) const {
    if (!sources_.empty()) return std::size_t{signature.stripe} * kBlockBytes;
    return signature.count * size_of(signature.dtype);
}

void Aggregator::begin(std::size_t lane, const Signature& signature, std::uint32_t operation) {
    constexpr std::uint64_t kMost = std::numeric_limits<std::ptrdiff_t>::max() / 8;
    if (signature.what != Collective::AllReduce ||
        static_cast<std::size_t>(signature.dtype) >= kDtypes ||
        static_cast<std::size_t>(signature.op) >= kOps || signature.count > kMost)
        throw Failed("the aggregator got a call that it has no part in");
    Lane& own = lanes_[lane];
    auto& reduction = own.reductions[static_cast<std::size_t>(signature.dtype) * kOps +
                                     static_cast<std::size_t>(signature.op)];
    if (!reduction) reduction.emplace(contributors_, signature.dtype, signature.op);
    const std::size_t bytes = bytes_of(signature), used = lanes_for(bytes, lanes_.size());
    const auto ranks = static_cast<int>(ranks_);
    const Layout layout = layout_of_aggregator(bytes, ranks, sources_, own.results->data(), kRing);
    own.exchange->begin(cut(layout, ranks + 1, static_cast<int>(lane), static_cast<int>(used)),
                        &*reduction, nullptr, signature, operation);
    bytes_.fetch_add(own.exchange->own_bytes(), std::memory_order_relaxed);
}

std::string Aggregator::run() {
    std::vector<std::thread> others;
    for (std::size_t lane = 1; lane < lanes_.size(); ++lane)
        others.emplace_back([this, lane] { serve(lane); });
    serve(0);
    for (std::thread& each : others) each.join();
    const std::scoped_lock lock(failure_mutex_);
    return failure_;
}

// A lane that fails ends alone: another one may have to end an earlier operation. Its ranks end
// that. After `stop`, ranks that heard of it from one lane may end before another lane has seen it.
void Aggregator::serve(std::size_t lane) {
    std::string text = "the aggregator: it was stopped";
    try {
        serve_lane(lane);
        if (!stopping_) return;
    } catch (const std::exception& error) {
        if (!stopping_) {
            text = error.what();
            const std::scoped_lock lock(failure_mutex_);
            if (failure_.empty()) failure_ = text;
        }
    }
    // Nobody waits for a sum that does not come.
    lanes_[lane].exchange->send_failure(text);
    lanes_[lane].carrier->end();
}

void Aggregator::serve_lane(std::size_t lane) {
    Exchange& exchange = *lanes_[lane].exchange;
    Driver driver({{&exchange, lanes_[lane].carrier.get()}}, lanes_[lane].wake.fd(), waits_);
    driver.use(1);
    while (!stopping_) {
        bool moved = driver.progress();
        if (exchange.active() && exchange.over()) {
            exchange.end();
            if (lane == 0) operations_.fetch_add(1, std::memory_order_relaxed);
            moved = true;
        }
        // Ranks that disagree end without an operation.
        if (exchange.all_ended()) return;
        if (!moved) driver.wait(Clock::now() + kLongWait);
    }
}

void Aggregator::stop() {
    stopping_ = true;
    for (const Lane& each : lanes_) each.wake.signal();
}

}  // namespace afflux::streams
