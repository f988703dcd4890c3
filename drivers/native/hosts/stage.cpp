#include "hosts/stage.hpp"

namespace afflux::hosts {

Stage::Stage(shared::Group* local, int index)
    : local_(local), index_(static_cast<std::size_t>(index)) {
    if (local_) {
        shared_ = local_->allocate(0, apart());
        base_ = shared_->slice(0);
    } else {
        alone_ = std::make_unique_for_overwrite<std::byte[]>(apart());
        base_ = alone_.get();
    }
}

Stage::~Stage() {
    // Others may still take a result out; the memory goes with the segment.
    if (shared_) local_->release(shared_, false);
}

}  // namespace afflux::hosts
