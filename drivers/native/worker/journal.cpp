#include "worker/journal.hpp"

#include <algorithm>
#include <cstring>

namespace afflux::worker {

void Journal::begin(void* result, std::size_t bytes) {
    result_ = result;
    bytes_ = bytes;
    running_ = true;
    heard_ = false;
    taken_.assign(bytes / wire::kBlockBytes + (bytes % wire::kBlockBytes != 0), 0);
}

void Journal::heard() {
    if (heard_) return;
    heard_ = true;
    kept_.clear();
    contents_.clear();
}

void Journal::take_all() {
    std::fill(taken_.begin(), taken_.end(), std::uint8_t{1});
}

void Journal::keep(std::size_t block) {
    const std::size_t at = block * wire::kBlockBytes;
    const std::size_t place = contents_.size();
    kept_.push_back(block);
    contents_.resize(place + wire::kBlockBytes);
    std::memcpy(contents_.data() + place, static_cast<const std::uint8_t*>(result_) + at,
                std::min(wire::kBlockBytes, bytes_ - at));
}

void Journal::keep_all() {
    for (std::size_t block = 0; block < taken_.size(); ++block) keep(block);
}

void Journal::keep_only(const std::size_t* blocks, std::size_t count) {
    kept_.clear();
    contents_.clear();
    for (std::size_t i = 0; i < count; ++i) {
        take(blocks[i]);
        keep(blocks[i]);
    }
}

void Journal::end() {
    running_ = false;
    result_ = nullptr;
    ++over_;
    taken_before_ = static_cast<std::size_t>(std::count(taken_.begin(), taken_.end(), 1));
}

}  // namespace afflux::worker
