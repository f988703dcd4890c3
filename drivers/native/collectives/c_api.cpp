#include "collectives/c_api.hpp"

#include <chrono>
#include <exception>

namespace afflux::collectives {
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

}  // namespace

// Calls work(group), and makes what it throws a status and a text.
template <typename Work>
std::int32_t Calls::guarded(afflux_outcome& outcome, const Work& work) noexcept {
    try {
        return work(*open());
    } catch (const Disagreement& error) {
        return refuse(outcome, AFFLUX_DISAGREEMENT, error.what());
    } catch (const Failed& error) {
        return refuse(outcome, AFFLUX_FAILED, error.what());
    } catch (const std::exception& error) {
        return refuse(outcome, AFFLUX_INVALID, error.what());
    }
}

std::int32_t Calls::begin(const afflux_request& request, afflux_outcome& outcome) noexcept {
    return guarded(outcome, [&](Group& group) {
        outcome.operation = group.begin(request_of(request));
        return AFFLUX_NOT_YET;
    });
}

std::int32_t Calls::advance(std::uint64_t operation, std::int64_t nanoseconds,
                            afflux_outcome& outcome) noexcept {
    return guarded(outcome, [&](Group& group) {
        return group.advance(std::chrono::nanoseconds(nanoseconds), operation) ? AFFLUX_OVER
                                                                               : AFFLUX_NOT_YET;
    });
}

std::uint64_t Calls::in_progress() noexcept {
    const auto held = group();
    return held ? held->in_progress() : 0;
}

std::shared_ptr<Group> Calls::group() const {
    const std::scoped_lock lock(mutex_);
    return group_;
}

std::shared_ptr<Group> Calls::open() const {
    auto held = group();
    if (!held) throw Failed("the group is closed");
    return held;
}

void Calls::close() {
    std::shared_ptr<Group> last;
    const std::scoped_lock lock(mutex_);
    last.swap(group_);
}

}  // namespace afflux::collectives
