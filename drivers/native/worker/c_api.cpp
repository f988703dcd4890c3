#include "worker/c_api.hpp"

#include <algorithm>
#include <stdexcept>

#include "worker/errors.hpp"
#include "worker/fingerprint.hpp"

namespace afflux::worker {
namespace {

static_assert(AFFLUX_INT32 == static_cast<int>(arithmetic::Dtype::Int32));
static_assert(AFFLUX_BFLOAT16 == static_cast<int>(arithmetic::Dtype::Bfloat16));
static_assert(AFFLUX_SUM == static_cast<int>(arithmetic::Op::Sum));
static_assert(AFFLUX_MIN == static_cast<int>(arithmetic::Op::Min));

Tensor tensor_of(const afflux_request& request, unsigned ranks) {
    const bool one_output = request.output_count == 1 && request.outputs[0] != nullptr;
    if (request.collective != AFFLUX_ALL_REDUCE || request.input_count != 0 ||
        !(one_output || request.count == 0)) {
        throw std::invalid_argument("a worker all-reduces one tensor, in place");
    }
    if (request.dtype < 0 || request.dtype > AFFLUX_BFLOAT16 || request.reduction < 0 ||
        request.reduction > AFFLUX_MIN) {
        throw std::invalid_argument("a worker has no such dtype or reduction");
    }
    const auto dtype = static_cast<arithmetic::Dtype>(request.dtype);
    const auto op = static_cast<arithmetic::Op>(request.reduction);
    if (!arithmetic::is_defined(dtype, op)) {
        throw std::invalid_argument("the average of int32 is not defined");
    }
    void* const elements = one_output ? request.outputs[0] : nullptr;
    return {.dtype = dtype,
            .op = op,
            .ranks = static_cast<int>(ranks),
            .count = request.count,
            .elements = elements,
            .result = elements};
}

std::size_t least_slots(const std::vector<Session*>& sessions) {
    std::size_t slots = sessions.at(0)->job.slots;
    for (const Session* session : sessions) slots = std::min(slots, session->job.slots);
    return slots;
}

}  // namespace

Calls::Calls(UdpLoop& loop, std::vector<Line*> lines, std::vector<Session*> sessions)
    : afflux_group(static_cast<int>(sessions.at(0)->job.rank),
                   static_cast<int>(sessions.at(0)->job.ranks)),
      loop_(loop),
      lines_(std::move(lines)),
      sessions_(std::move(sessions)),
      slots_(least_slots(sessions_)) {
    if (lines_.size() != sessions_.size()) {
        throw std::invalid_argument("each line needs a session");
    }
}

std::uint64_t Calls::describe(const std::string& rest) {
    const std::scoped_lock alone(texts_mutex_);
    const auto [found, added] = descriptions_.try_emplace(rest, texts_.size());
    if (added) texts_.push_back(rest);
    return found->second;
}

std::uint32_t Calls::fingerprint_of(std::uint64_t number, std::uint64_t description) const {
    const std::scoped_lock alone(texts_mutex_);
    if (description >= texts_.size()) throw std::invalid_argument("no such call was described");
    return fingerprint(number, texts_[description]);
}

std::int32_t Calls::fail(afflux_outcome& outcome, afflux_status status, const char* text) {
    failure_ = std::current_exception();
    running_ = false;
    return refuse(outcome, status, text);
}

std::int32_t Calls::begin(const afflux_request& request, afflux_outcome& outcome) noexcept {
    const std::scoped_lock inside(mutex_);
    if (closed_ || failure_) return refuse(outcome, AFFLUX_FAILED, "the worker is closed");
    std::vector<std::unique_ptr<Operation>> parts;
    const std::uint64_t number = sessions_[0]->number;
    try {
        const bool idle = std::all_of(lines_.begin(), lines_.end(),
                                      [](const Line* line) { return line->idle(); });
        if (!idle) throw std::logic_error("another operation is in progress");
        const Tensor tensor = tensor_of(request, sessions_[0]->job.ranks);
        const std::uint32_t compared = fingerprint_of(number, request.fingerprint);
        const std::size_t lanes = sessions_[0]->job.lanes;
        const std::size_t of = Operation::sharing(tensor, lanes, lines_.size());
        for (std::size_t own = 0; own < of; ++own) {
            // The others miss the operation; all parts have the same number.
            sessions_[own]->number = number;
            parts.push_back(std::make_unique<Operation>(*sessions_[own], tensor, compared,
                                                        Share{own, of}, slots_));
        }
        tensor_ = tensor;
    } catch (const std::exception& error) {
        return refuse(outcome, AFFLUX_INVALID, error.what());
    }
    parts_ = std::move(parts);
    if (Journal* journal = sessions_[0]->journal.get())
        journal->begin(tensor_.result, tensor_.count * arithmetic::size_of(tensor_.dtype));
    number_ = number;
    running_ = true;
    outcome.operation = ++begun_;
    try {
        for (std::size_t own = 0; own < parts_.size(); ++own) lines_[own]->open(*parts_[own]);
    } catch (const std::exception& error) {
        return fail(outcome, AFFLUX_FAILED, error.what());
    }
    return AFFLUX_NOT_YET;
}

std::int32_t Calls::advance(std::uint64_t operation, std::int64_t nanoseconds,
                            afflux_outcome& outcome) noexcept {
    const std::scoped_lock inside(mutex_);
    if (operation > begun_) return refuse(outcome, AFFLUX_INVALID, "no such operation has begun");
    if (operation <= last_over_) return AFFLUX_OVER;
    if (closed_ || !running_) return refuse(outcome, AFFLUX_FAILED, "the worker is closed");
    const double until = monotonic_now() + 1e-9 * static_cast<double>(nanoseconds);
    try {
        do {
            loop_.run(until);
            if (!all_done()) return AFFLUX_NOT_YET;
        } while (bring_again());
    } catch (const Disagreed& error) {
        return fail(outcome, AFFLUX_DISAGREEMENT, error.what());
    } catch (const std::exception& error) {
        return fail(outcome, AFFLUX_FAILED, error.what());
    }
    running_ = false;
    if (Journal* journal = sessions_[0]->journal.get()) journal->end();
    last_over_ = begun_;
    ++over_;
    return AFFLUX_OVER;
}

// Begins to bring blocks that the aggregators could not sum, now that all parts are over. Returns
// whether there are any.
bool Calls::bring_again() {
    if (again_) {
        again_->finish();
        if (Journal* journal = sessions_[0]->journal.get())
            journal->keep_only(not_summed_.data(), again_->size());
        not_summed_.erase(not_summed_.begin(),
                          not_summed_.begin() + static_cast<std::ptrdiff_t>(again_->size()));
        again_.reset();
    } else {
        not_summed_.clear();
        for (const auto& part : parts_) {
            const std::vector<std::size_t> blocks = part->not_summed();
            not_summed_.insert(not_summed_.end(), blocks.begin(), blocks.end());
        }
        std::sort(not_summed_.begin(), not_summed_.end());
    }
    if (not_summed_.empty()) return false;
    Session& first = *sessions_[0];
    again_ = std::make_unique<Again>(tensor_, first.job.rank, first.job.others, not_summed_);
    number_ = first.number;
    parts_.clear();
    parts_.push_back(std::make_unique<Operation>(first, again_->on_wire(),
                                                 worker::fingerprint(number_, again_->text()),
                                                 Share{}, first.job.slots, true));
    lines_[0]->open(*parts_[0]);
    return true;
}

std::uint64_t Calls::in_progress() noexcept {
    const std::scoped_lock inside(mutex_);
    return running_ ? begun_ : 0;
}

std::vector<const Operation*> Calls::parts() const {
    std::vector<const Operation*> all;
    for (const auto& part : parts_) all.push_back(part.get());
    return all;
}

bool Calls::all_done() const {
    return std::all_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->done(); });
}

void Calls::raise_failure() const {
    if (failure_) std::rethrow_exception(failure_);
}

void Calls::close() {
    const std::scoped_lock inside(mutex_);
    closed_ = true;
    running_ = false;
}

}  // namespace afflux::worker
