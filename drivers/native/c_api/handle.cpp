#include "c_api/handle.hpp"

#include <algorithm>
#include <cstring>

namespace {

std::int32_t begin(afflux_group* group, const afflux_request* request, afflux_outcome* outcome) {
    outcome->operation = 0;
    return group->begin(*request, *outcome);
}

std::int32_t advance(afflux_group* group, std::uint64_t operation, std::int64_t nanoseconds,
                     afflux_outcome* outcome) {
    outcome->operation = operation;
    return group->advance(operation, nanoseconds, *outcome);
}

std::int32_t run(afflux_group* group, const afflux_request* request, std::int64_t nanoseconds,
                 afflux_outcome* outcome) {
    const std::int32_t status = begin(group, request, outcome);
    if (status != AFFLUX_NOT_YET) return status;
    return group->advance(outcome->operation, nanoseconds, *outcome);
}

std::uint64_t in_progress(afflux_group* group) {
    return group->in_progress();
}

}  // namespace

afflux_group::afflux_group(int rank, int ranks)
    : calls_{
          AFFLUX_CALLS_VERSION, sizeof(afflux_calls), this, rank, ranks, ::begin, ::advance, ::run,
          ::in_progress} {}

std::int32_t afflux_group::refuse(afflux_outcome& outcome, afflux_status status, const char* text) {
    const std::size_t length = std::min(std::strlen(text), sizeof(outcome.text) - 1);
    std::memcpy(outcome.text, text, length);
    outcome.text[length] = '\0';
    return status;
}
