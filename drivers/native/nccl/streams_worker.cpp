#include "nccl/streams_worker.hpp"

#include <limits>
#include <numeric>
#include <stdexcept>

namespace afflux::nccl {
namespace {

// Chunks of NCCL's come one after the other, so their bytes count, and not when the first is there.
constexpr std::size_t kAggregated = std::size_t{64} << 10;

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
                             std::size_t one_hop, std::string place)
    : place_(std::move(place)),
      mesh_(std::make_unique<streams::Mesh>(rank, std::vector<std::vector<int>>{sockets},
                                            numbers(nodes), 1, one_hop, streams::Mesh::Carriers{},
                                            kAggregated)) {
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
}

bool StreamsWorker::advance() {
    try {
        return mesh_->advance(std::chrono::nanoseconds::zero(), operation_);
    } catch (const collectives::Disagreement&) {
        throw std::runtime_error(
            "the nodes disagree: some node called another operation, type or count");
    } catch (const streams::AggregatorEnded& error) {
        throw AggregatorGone("the aggregator at " + place_ + " has ended: " + error.what());
    } catch (const collectives::Failed& error) {
        throw std::runtime_error(in_our_words(error.what()));
    }
}

double StreamsWorker::next_timer() const {
    return std::numeric_limits<double>::infinity();
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
