// A group behind the interface of c_api.h.
#pragma once

#include <memory>
#include <mutex>

#include "c_api/handle.hpp"
#include "collectives/group.hpp"

namespace afflux::collectives {

// Closing lets go of the group; a thread that is inside keeps it until it leaves.
class Calls final : public afflux_group {
  public:
    explicit Calls(std::shared_ptr<Group> group)
        : afflux_group(group->rank(), group->ranks()), group_(std::move(group)) {}

    std::int32_t begin(const afflux_request& request, afflux_outcome& outcome) noexcept override;
    std::int32_t advance(std::uint64_t operation, std::int64_t nanoseconds,
                         afflux_outcome& outcome) noexcept override;
    std::uint64_t in_progress() noexcept override;

    // Null if it is closed.
    std::shared_ptr<Group> group() const;
    // Throws Failed if it is closed.
    std::shared_ptr<Group> open() const;
    void close();

  private:
    template <typename Work>
    std::int32_t guarded(afflux_outcome& outcome, const Work& work) noexcept;

    mutable std::mutex mutex_;
    std::shared_ptr<Group> group_;
};

}  // namespace afflux::collectives
