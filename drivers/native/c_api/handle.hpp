// The target of c_api.h's handle.
#pragma once

#include <cstdint>

#include "c_api.h"

struct afflux_group {
  public:
    virtual ~afflux_group() = default;
    afflux_group(const afflux_group&) = delete;
    afflux_group& operator=(const afflux_group&) = delete;

    const afflux_calls& calls() const { return calls_; }

    // As the functions in `calls`.
    virtual std::int32_t begin(const afflux_request& request, afflux_outcome& outcome) noexcept = 0;
    virtual std::int32_t advance(std::uint64_t operation, std::int64_t nanoseconds,
                                 afflux_outcome& outcome) noexcept = 0;
    virtual std::uint64_t in_progress() noexcept = 0;

  protected:
    afflux_group(int rank, int ranks);

    // Writes why, as much of it as there is room for; returns the status.
    static std::int32_t refuse(afflux_outcome& outcome, afflux_status status, const char* text);

  private:
    const afflux_calls calls_;
};
