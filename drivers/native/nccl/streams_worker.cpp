#include "nccl/streams_worker.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "control/line_socket.hpp"

namespace afflux::nccl {
namespace {

// Chunks of NCCL's come one after the other, so their bytes count, and not when the first is there.
constexpr std::size_t kAggregated = std::size_t{64} << 10;

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kLook = 0.1;  // seconds

std::vector<int> numbers(std::size_t nodes) {
    std::vector<int> all(nodes);
    std::iota(all.begin(), all.end(), 0);
    return all;
}

// A text of the mesh, or that of another node: its ranks are nodes here.
std::string in_our_words(std::string text) {
    constexpr std::string_view kRank = "rank ", kNode = "node ";
    // One that has ended is in front.
    const std::size_t end = text.find(": ");
    const bool ended = text.starts_with(kRank) && text.find(' ', kRank.size()) == end + 1;
    if (ended) text.replace(end, 2, " has gone: ");
    for (std::size_t at = 0; (at = text.find(kRank, at)) != text.npos;)
        text.replace(at, kRank.size(), kNode);
    return text;
}

}  // namespace

StreamsWorker::StreamsWorker(int rank, const std::vector<int>& sockets, std::size_t nodes,
                             std::size_t one_hop, std::string place, double peer_s)
    : place_(std::move(place)),
      peer_s_(peer_s),
      mesh_(std::make_unique<streams::Mesh>(rank, std::vector<std::vector<int>>{sockets},
                                            numbers(nodes), 1, one_hop, streams::Mesh::Carriers{},
                                            kAggregated)),
      next_look_(kNever),
      silent_since_(kNever) {
    if (!place_.empty()) mesh_->keep_results();
}

void StreamsWorker::begin(const Reduction& reduction) {
    void* const outputs[] = {reduction.elements};
    collectives::Request request;
    request.what = collectives::Collective::AllReduce;
    request.outputs = outputs;
    request.count = reduction.count;
    request.dtype = static_cast<collectives::Dtype>(reduction.dtype);
    request.op = static_cast<collectives::Op>(reduction.op);
    operation_ = mesh_->begin(request);
    if (!place_.empty()) next_look_ = control::monotonic_now() + kLook;
    silent_since_ = kNever;
}

bool StreamsWorker::advance() {
    try {
        const bool over = mesh_->advance(std::chrono::nanoseconds::zero(), operation_);
        if (!over) look_for_aggregator();
        return over;
    } catch (const collectives::Disagreement&) {
        throw std::runtime_error(
            "the nodes disagree: some node called another operation, type or count");
    } catch (const streams::AggregatorEnded& error) {
        throw AggregatorGone("the aggregator at " + place_ + " has ended: " + error.what());
    } catch (const collectives::Failed& error) {
        throw std::runtime_error(in_our_words(error.what()));
    }
}

// A host that vanishes ends no connection for a long time. One whose process is stopped still
// acknowledges, and is waited for.
void StreamsWorker::look_for_aggregator() {
    const double now = control::monotonic_now();
    if (now < next_look_) return;
    next_look_ = now + kLook;
    const std::string silence = mesh_->aggregators_silence();
    silent_since_ = silence.empty() ? kNever : std::min(silent_since_, now);
    if (now - silent_since_ >= peer_s_) {
        throw AggregatorGone("timed out: the aggregator at " + place_ + ": " + silence);
    }
}

double StreamsWorker::next_timer() const {
    return next_look_;
}

void StreamsWorker::watch(std::vector<pollfd>& polled) const {
    mesh_->watch(polled);
}

void StreamsWorker::leave_off() {
    statistics_ = statistics();
    mesh_->leave_off();
}

void StreamsWorker::close(const std::string& why) {
    if (!mesh_) return;
    statistics_ = statistics();
    if (!why.empty()) mesh_->fail(why);
    mesh_.reset();
}

std::string StreamsWorker::engine() const {
    return place_.empty() ? "mesh" : "streams";
}

std::string StreamsWorker::statistics() const {
    if (!mesh_) return statistics_;
    const streams::Statistics counts = mesh_->statistics();
    return std::to_string(counts.bytes_sent) + " bytes, " + std::to_string(counts.blocks_present) +
           " of " + std::to_string(counts.blocks_total) + " blocks sent";
}

}  // namespace afflux::nccl
