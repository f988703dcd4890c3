#include "backend.hpp"

#include <unistd.h>

#include "dispatch.hpp"

namespace afflux {
namespace {

template <typename Calls>
const Calls* calls_in(const py::object& capsule, const char* name) {
    if (capsule.is_none()) return nullptr;
    const auto* calls = static_cast<const Calls*>(PyCapsule_GetPointer(capsule.ptr(), name));
    if (calls == nullptr) throw py::error_already_set();
    if (calls->version != AFFLUX_CALLS_VERSION || calls->size != sizeof(*calls))
        throw std::runtime_error("afflux: its parts are of different versions; build them again");
    return calls;
}

Way way_of(const std::string& name) {
    if (name == "native") return Way::Native;
    if (name == "gathered") return Way::Gathered;
    if (name == "scattered") return Way::Scattered;
    return name == "gloo" ? Way::Gloo : Way::Python;
}

}  // namespace

// Wakes the thread that takes operations over. A signal handler may raise in any line of Python's,
// and the thread must learn of the operation all the same; then `wake` is told who gives it up.
void wake_surely(const py::object& wake) {
    constexpr int kAttempts = 100;
    std::optional<py::error_already_set> first;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
        try {
            wake(first ? py::object(first->type().attr("__name__")) : py::str());
            break;
        } catch (py::error_already_set& raised) {
            if (!first) first.emplace(raised);
        }
    }
    if (first) throw py::error_already_set(*first);
}

AffluxBackend::AffluxBackend(int rank, int size, py::object core,
                             c10::intrusive_ptr<c10d::Backend> gloo, std::shared_ptr<Turn> turn,
                             py::object calls, py::object sums, bool only_gloo, py::object splitter,
                             py::object shrinker, std::shared_ptr<Completions> completions,
                             py::object timed_out)
    : Backend(rank, size),
      core_(core),
      splitter_(std::move(splitter)),
      shrinker_(std::move(shrinker)),
      capsule_(calls),
      may_block_(core.attr("may_block")),
      abandon_(core.attr("abandon")),
      timed_out_(std::move(timed_out)),
      gloo_(std::move(gloo)),
      turn_(std::move(turn)),
      calls_(calls_in<afflux_calls>(calls, AFFLUX_CALLS)),
      sums_(calls_in<afflux_sums>(sums, AFFLUX_SUMS)),
      only_gloo_(only_gloo),
      process_(getpid()),
      completions_(std::move(completions)) {}

c10::intrusive_ptr<c10d::Backend> AffluxBackend::gloo() const {
    {
        const std::scoped_lock lock(gloo_mutex_);
        if (gloo_) return gloo_;
    }
    with_python([&] { core_.get().attr("check")(); });
    throw std::runtime_error("the group has been destroyed");
}

bool AffluxBackend::may_go_now(const Asked& asked) const {
    // A request of an asynchronous call to Gloo alone is queued.
    return (calls_ != nullptr || (only_gloo_ && !asked.async)) && asked.simple &&
           !observed.load() && getpid() == process_;
}

std::shared_ptr<const Known> AffluxBackend::known(const Asked& asked) {
    if (auto found = known_.find(asked.kind)) return found;
    Known made;
    with_python([&] {
        const py::object python =
            core_.get().attr("known_call")(name_of(asked.kind.method), asked.arguments());
        made.python = PythonObject(python);
        made.text = std::make_shared<const std::string>(python.attr("text").cast<std::string>());
        const py::object call = python.attr("prepared");
        made.way = way_of(python.attr("way").cast<std::string>());
        if (made.through_gloo())
            made.count = &gloo_counts_.slot(python.attr("counted").cast<std::string>());
        made.agreed = python.attr("call").attr("agreed_number").cast<std::uint64_t>();
        made.bytes = python.attr("size").cast<std::size_t>();
        if (call.is_none()) return;
        made.request.collective = call.attr("collective").cast<std::int32_t>();
        made.request.dtype = call.attr("dtype").cast<std::int32_t>();
        made.request.reduction = call.attr("reduction").cast<std::int32_t>();
        made.request.root = call.attr("root").cast<std::int32_t>();
        made.request.count = call.attr("count").cast<std::uint64_t>();
        made.request.fingerprint = call.attr("fingerprint").cast<std::uint64_t>();
    });
    return known_.add(asked.kind, std::move(made));
}

WorkPointer AffluxBackend::run(const Known& call, Asked& asked) {
    HeldTurn turn(*turn_);
    afflux_request request = call.request;
    request.inputs = asked.inputs.data();
    request.input_count = static_cast<std::uint32_t>(asked.inputs.size());
    request.outputs = asked.outputs.data();
    request.output_count = static_cast<std::uint32_t>(asked.outputs.size());
    request.history = turn_->history.load();
    const std::uint64_t sequence = turn_->begin(call.text);
    std::int64_t slice = asked.async ? kAsyncSliceNs : kSliceNs;
    if (asked.timeout.count() > 0)
        slice = std::min<std::int64_t>(slice, asked.timeout.count() * 1'000'000);
    afflux_outcome outcome{};
    const std::int32_t status = calls_->run(calls_->group, &request, slice, &outcome);
    if (status != AFFLUX_OVER)
        return hand_over(call, asked, slice, nullptr, [&] {
            const char* const why = status == AFFLUX_NOT_YET ? "" : outcome.text;
            return py::make_tuple(outcome.operation, status, why);
        });
    ++turn_->engine_operations;
    return c10::make_intrusive<FinishedWork>(std::move(asked.result), sequence);
}

void AffluxBackend::refused(const std::exception_ptr& error) {
    std::string text = "Gloo refuses the call";
    try {
        std::rethrow_exception(error);
    } catch (const std::exception& why) {
        text = why.what();
    } catch (...) {
    }
    with_python([&] { core_.get().attr("refuse")(text); });
    std::rethrow_exception(error);
}

}  // namespace afflux
