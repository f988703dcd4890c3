#include "shared/c_calls.hpp"

#include <algorithm>
#include <cstring>
#include <exception>

namespace afflux::shared {
namespace {

static_assert(AFFLUX_BARRIER == static_cast<int>(Collective::Barrier));
static_assert(AFFLUX_BYTES == static_cast<int>(Dtype::Bytes));
static_assert(AFFLUX_PRODUCT == static_cast<int>(Op::Product));

// Numbers of no enumerator become ones that `Group::begin` refuses, rather than others by being
// cut.
template <typename Enum>
Enum narrow(std::int32_t number) {
    return static_cast<Enum>(number < 0 || number > 255 ? 255 : number);
}

Request request_of(const afflux_request& request) {
    Request made;
    made.what = narrow<Collective>(request.collective);
    made.inputs = {request.inputs, request.inputs ? request.input_count : 0};
    made.outputs = {request.outputs, request.outputs ? request.output_count : 0};
    made.count = request.count;
    made.dtype = narrow<Dtype>(request.dtype);
    made.op = reduces(made.what) ? narrow<Op>(request.reduction) : Op::Sum;
    made.root = request.root;
    made.fingerprint = request.fingerprint;
    made.history = request.history;
    return made;
}

std::int32_t refuse(afflux_outcome* outcome, afflux_status status, const char* text) {
    const std::size_t length = std::min(std::strlen(text), sizeof(outcome->text) - 1);
    std::memcpy(outcome->text, text, length);
    outcome->text[length] = '\0';
    return status;
}

// Calls work(group), and makes what it throws a status and a text.
template <typename Work>
std::int32_t guarded(afflux_group* handle, afflux_outcome* outcome, const Work& work) noexcept {
    try {
        return work(*handle->open());
    } catch (const Disagreement& error) {
        return refuse(outcome, AFFLUX_DISAGREEMENT, error.what());
    } catch (const Failed& error) {
        return refuse(outcome, AFFLUX_FAILED, error.what());
    } catch (const std::exception& error) {
        return refuse(outcome, AFFLUX_INVALID, error.what());
    }
}

std::int32_t begin(afflux_group* handle, const afflux_request* request, afflux_outcome* outcome) {
    outcome->operation = 0;
    return guarded(handle, outcome, [&](Group& group) {
        outcome->operation = group.begin(request_of(*request));
        return AFFLUX_NOT_YET;
    });
}

std::int32_t advance(afflux_group* handle, std::uint64_t operation, std::int64_t nanoseconds,
                     afflux_outcome* outcome) {
    outcome->operation = operation;
    return guarded(handle, outcome, [&](Group& group) {
        return group.advance(std::chrono::nanoseconds(nanoseconds), operation) ? AFFLUX_OVER
                                                                               : AFFLUX_NOT_YET;
    });
}

std::int32_t run(afflux_group* handle, const afflux_request* request, std::int64_t nanoseconds,
                 afflux_outcome* outcome) {
    outcome->operation = 0;
    return guarded(handle, outcome, [&](Group& group) {
        outcome->operation = group.begin(request_of(*request));
        return group.advance(std::chrono::nanoseconds(nanoseconds), outcome->operation)
                   ? AFFLUX_OVER
                   : AFFLUX_NOT_YET;
    });
}

std::uint64_t in_progress(afflux_group* handle) {
    const auto group = handle->group();
    return group ? group->in_progress() : 0;
}

}  // namespace

afflux_shared_calls calls_of(afflux_group* handle, int rank, int ranks) {
    return {AFFLUX_SHARED_CALLS_VERSION,
            sizeof(afflux_shared_calls),
            handle,
            rank,
            ranks,
            begin,
            advance,
            run,
            in_progress};
}

}  // namespace afflux::shared

std::shared_ptr<afflux::shared::Group> afflux_group::group() const {
    const std::scoped_lock lock(mutex_);
    return group_;
}

std::shared_ptr<afflux::shared::Group> afflux_group::open() const {
    auto group = this->group();
    if (!group) throw afflux::shared::Failed("the group is closed");
    return group;
}

void afflux_group::close() {
    std::shared_ptr<afflux::shared::Group> last;
    const std::scoped_lock lock(mutex_);
    last.swap(group_);
}
