// A group behind the interface of c_calls.h.
#pragma once

#include <memory>
#include <mutex>

#include "shared/c_calls.h"
#include "shared/group.hpp"

namespace afflux::shared {

afflux_shared_calls calls_of(afflux_group* handle, int rank, int ranks);

}  // namespace afflux::shared

// What the handle of c_calls.h points to. Closing lets go of the group; a thread that is inside
// keeps it until it leaves.
struct afflux_group {
  public:
    explicit afflux_group(std::shared_ptr<afflux::shared::Group> group)
        : group_(std::move(group)),
          calls_(afflux::shared::calls_of(this, group_->rank(), group_->ranks())) {}

    // Null if it is closed.
    std::shared_ptr<afflux::shared::Group> group() const;
    // Throws Failed if it is closed.
    std::shared_ptr<afflux::shared::Group> open() const;
    void close();
    const afflux_shared_calls& calls() const { return calls_; }

  private:
    mutable std::mutex mutex_;
    std::shared_ptr<afflux::shared::Group> group_;
    const afflux_shared_calls calls_;
};
