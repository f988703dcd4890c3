// The memory through which the ranks of a host hand pieces of a tensor to each other.
#pragma once

#include <cstddef>
#include <memory>

#include "shared/group.hpp"

namespace afflux::hosts {

// Pieces whose sum travels at a time. Larger ones wait longer for the ranks to put them in.
inline constexpr std::size_t kStageBytes = std::size_t{4} << 20;

// Two halves for the elements of each rank, and two for results: while one is in use by rails, the
// other is filled and emptied.
class Stage {
  public:
    // Collective among the ranks of the host. `local` is null for a rank that is alone.
    Stage(shared::Group* local, int index);
    ~Stage();
    Stage(const Stage&) = delete;
    Stage& operator=(const Stage&) = delete;

    // Where piece n of the elements of the host's first rank is; those of the others are `apart`.
    std::byte* first(std::size_t piece) const { return base_ + piece % 2 * kStageBytes; }
    std::byte* own(std::size_t piece) const { return first(piece) + index_ * apart(); }
    std::byte* result(std::size_t piece) const { return base_ + (2 + piece % 2) * kStageBytes; }
    static constexpr std::size_t apart() { return 4 * kStageBytes; }

  private:
    shared::Group* const local_;
    const std::size_t index_;
    std::shared_ptr<shared::Allocation> shared_;
    std::unique_ptr<std::byte[]> alone_;
    std::byte* base_;
};

}  // namespace afflux::hosts
