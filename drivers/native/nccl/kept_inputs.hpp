// The contributions of a node to those operations of a job that others may still lack.
//
// Nobody ends an operation before all have called it, so nobody lacks more than the one before the
// last that is over anywhere: the present one and that before it are enough.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "nccl/job_worker.hpp"

namespace afflux::nccl {

class KeptInputs {
  public:
    // Keeps the input of the job's operation of this number, which it has in its elements.
    void keep(std::uint64_t operation, const Reduction& reduction) {
        Kept& kept = kept_[operation % kept_.size()];
        const auto* const first = static_cast<const std::byte*>(reduction.elements);
        kept.elements.assign(first, first + reduction.count * arithmetic::size_of(reduction.dtype));
        kept.reduction = reduction;
        kept.reduction.elements = kept.elements.data();
    }

    // Puts it back to where it was.
    void restore(std::uint64_t operation, void* elements) const {
        const Kept& kept = kept_[operation % kept_.size()];
        std::memcpy(elements, kept.elements.data(), kept.elements.size());
    }

    // The reduction of what is kept, in place.
    const Reduction& reduction(std::uint64_t operation) const {
        return kept_[operation % kept_.size()].reduction;
    }

  private:
    struct Kept {
        std::vector<std::byte> elements;
        Reduction reduction;
    };
    std::array<Kept, 2> kept_{};
};

}  // namespace afflux::nccl
