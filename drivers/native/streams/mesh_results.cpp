// The results of its aggregator that a rank has.
#include <algorithm>
#include <cstring>

#include "streams/mesh.hpp"
#include "streams/piece.hpp"

namespace afflux::streams {

void Mesh::keep_results() {
    const std::scoped_lock lock(mutex_);
    keeps_results_ = true;
    for (const auto& lane : lanes_) lane->keep_results();
}

void Mesh::stop() {
    pause();
    broken_ = true;
}

void Mesh::leave_off() {
    const std::scoped_lock lock(mutex_);
    set_failure("the ranks go on without their aggregator");
    stop();
}

std::uint64_t Mesh::over() const {
    const std::scoped_lock lock(mutex_);
    return operation_;
}

// By lane; empty if the aggregator owns nothing of the operation in progress.
std::vector<Results> Mesh::results_now() const {
    std::vector<Results> all;
    std::size_t bytes = 0;
    for (std::size_t lane = 0; active_ && lane < used_; ++lane) {
        all.push_back(lanes_[lane]->results());
        bytes += all.back().part.bytes;
    }
    if (bytes == 0) all.clear();
    return all;
}

std::span<std::byte> Mesh::result() const {
    const std::scoped_lock lock(mutex_);
    if (results_now().empty()) return {};
    return {call_.tensor, call_.bytes()};
}

std::vector<std::uint8_t> Mesh::taken() const {
    const std::scoped_lock lock(mutex_);
    const std::vector<Results> all = results_now();
    std::vector<std::uint8_t> taken(all.empty() ? 0 : blocks_in(call_.bytes()), 0);
    for (const Results& each : all) {
        const auto first = static_cast<std::size_t>(each.part.result - call_.tensor) / kBlockBytes;
        const std::size_t bytes = std::min(each.pieces * each.piece_bytes, each.part.bytes);
        std::fill_n(&taken[first], blocks_in(bytes), std::uint8_t{1});
    }
    return taken;
}

std::size_t Mesh::taken_before() const {
    const std::scoped_lock lock(mutex_);
    return operation_ != 0 && kept_of_ == operation_ ? blocks_in(kept_bytes_) : 0;
}

KeptResults Mesh::kept() const {
    const std::scoped_lock lock(mutex_);
    KeptResults all;
    // Landings of an operation in progress are those of the one before until a result comes, and
    // then nobody lacks any of that.
    for (const Results& now : results_now())
        if (now.pieces) return all;
    if (operation_ == 0 || kept_of_ != operation_) return all;
    for (std::size_t lane = 0; lane < kept_.size(); ++lane) {
        const Results& each = kept_[lane];
        const auto begin = static_cast<std::size_t>(each.part.result - kept_from_);
        for (std::size_t piece = each.pieces - std::min(each.pieces, kPiecesAhead);
             piece < each.pieces; ++piece) {
            const Landing& landed = lanes_[lane]->kept_result(piece, each.pieces);
            const std::size_t at = piece * each.piece_bytes;
            const std::size_t bytes = std::min(each.part.bytes - at, each.piece_bytes);
            for (std::size_t b = 0; b < blocks_in(bytes); ++b)
                all.blocks.push_back((begin + at) / kBlockBytes + b);
            const std::size_t room = all.contents.size();
            all.contents.resize(room + blocks_in(bytes) * kBlockBytes, 0);
            // Blocks that have not come are zeros.
            for_present(landed.present.data(), bytes, [&](std::size_t from, std::size_t run) {
                std::memcpy(&all.contents[room + from], landed.elements.data() + from, run);
            });
        }
    }
    return all;
}

}  // namespace afflux::streams
