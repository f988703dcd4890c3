// The shared-memory group for Python.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>

#include "bindings/arrays.hpp"
#include "bindings/c_api_capsule.hpp"
#include "bindings/parts.hpp"
#include "shared/c_api.hpp"
#include "shared/group.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace afflux::bindings {
namespace {

using shared::Allocation;
using shared::Collective;
using shared::Group;
using shared::Request;
using shared::Segment;
using Slice = nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::chrono::nanoseconds nanoseconds(double seconds) {
    // A year is as good as for ever, and added to the present it does not overflow.
    constexpr double kYear = 3.2e7;
    return std::chrono::nanoseconds(
        static_cast<std::int64_t>(std::clamp(seconds, 0.0, kYear) * 1e9));
}

// Numbers of no enumerator become ones that `Group::begin` refuses, rather than others by being
// cut.
template <typename Enum>
Enum number(int value) {
    return static_cast<Enum>(value < 0 || value > 255 ? 255 : value);
}

constexpr const char* kNames[shared::kCollectives] = {"all_reduce", "broadcast", "all_gather",
                                                      "reduce_scatter", "barrier"};

// One address, or a sequence of up to 64.
class Addresses {
  public:
    explicit Addresses(const nb::object& given) {
        if (nb::isinstance<nb::int_>(given)) {
            add(given);
        } else {
            for (const nb::handle each : given) add(each);
        }
    }
    std::span<void* const> all() const { return {addresses_.data(), count_}; }

  private:
    void add(nb::handle address) {
        if (count_ == addresses_.size()) throw nb::value_error("more tensors than ranks can be");
        addresses_[count_++] = reinterpret_cast<void*>(nb::cast<std::uintptr_t>(address));
    }

    std::array<void*, codec::kMaxRanks> addresses_;
    std::size_t count_ = 0;
};

// Keeps a rank's slice as long as an array refers to it.
struct SliceOwner {
    std::weak_ptr<Group> group;
    std::shared_ptr<Allocation> allocation;
    int rank;
    pid_t process;
    // Whether other ranks may read the slice when this one has no use for it any more: then it is
    // freed with the segment.
    bool read_by_others;

    ~SliceOwner() {
        // A forked process may drop its copy of the array; the memory stays its parent's.
        if (getpid() != process) return;
        if (const auto alive = group.lock())
            alive->release(allocation, !read_by_others);
        else if (!read_by_others)
            allocation->discard(rank);
    }
};

class SharedGroup {
  public:
    SharedGroup(int fd, int rank, int ranks, std::vector<int> names, bool numbers)
        : handle_(std::make_shared<shared::Calls>(
              std::make_shared<Group>(mapped(fd, ranks, std::move(names)), rank, numbers))) {}

    std::uint64_t begin(const Output& array, int dtype, int reduction, std::uint64_t fingerprint) {
        void* const output = array.data();
        Request request;
        request.outputs = {&output, 1};
        request.dtype = number<shared::Dtype>(dtype);
        request.op = number<shared::Op>(reduction);
        request.count = array.size();
        request.fingerprint = fingerprint;
        if (array.itemsize() != shared::size_of(request.dtype))
            throw nb::value_error("elements are not in the storage of their dtype");
        const auto group = open();
        std::uint64_t operation;
        {
            const nb::gil_scoped_release no_python;
            operation = group->begin(request);
        }
        array_ = nb::find(array);
        return operation;
    }

    bool advance(double timeout_s, std::uint64_t operation) {
        const auto group = open();
        bool over;
        {
            const nb::gil_scoped_release no_python;
            over = group->advance(nanoseconds(timeout_s), operation);
        }
        if (over) array_ = nb::object();
        return over;
    }

    std::uint64_t collective(int what, const nb::object& inputs, const nb::object& outputs,
                             std::size_t count, int dtype, int reduction, int root,
                             std::uint64_t fingerprint, std::uint64_t history, double timeout_s) {
        const Addresses from(inputs), to(outputs);
        Request request;
        request.what = number<Collective>(what);
        request.inputs = from.all();
        request.outputs = to.all();
        request.count = count;
        request.dtype = number<shared::Dtype>(dtype);
        request.op = number<shared::Op>(reduction);
        request.root = root;
        request.fingerprint = fingerprint;
        request.history = history;
        return run(request, timeout_s);
    }

    nb::object calls() const { return capsule_of(handle_); }

    std::uint64_t in_progress() const { return handle_->in_progress(); }
    std::vector<std::uint64_t> histories() const { return open()->histories(); }
    std::vector<int> differing() const { return open()->differing(); }
    std::vector<std::uint64_t> fingerprints() const { return open()->fingerprints(); }
    std::vector<int> missing() const { return open()->missing(); }
    // Also asked when another thread has closed the group meanwhile.
    std::vector<int> dead() const {
        const auto group = handle_->group();
        return group ? group->ended() : std::vector<int>{};
    }
    void fail(const std::string& text) { open()->fail(text); }
    bool failed() const { return !open()->failure().empty(); }
    std::string failure() const { return open()->failure(); }
    int rank() const { return open()->rank(); }
    int ranks() const { return open()->ranks(); }

    Slice allocate(std::size_t offset, std::size_t bytes) const {
        return own_slice(offset, bytes, false);
    }

    Slice own_slice(std::size_t offset, std::size_t bytes, bool read_by_others) const {
        const auto group = open();
        // Made in place, as the end of a temporary would free the memory.
        std::unique_ptr<SliceOwner> owner(new SliceOwner{group, group->allocate(offset, bytes),
                                                         group->rank(), getpid(), read_by_others});
        std::byte* const data = owner->allocation->slice(owner->rank);
        const nb::capsule capsule(
            owner.get(), [](void* memory) noexcept { delete static_cast<SliceOwner*>(memory); });
        owner.release();
        return Slice(data, {bytes}, capsule);
    }

    std::vector<Slice> allocate_all(std::size_t offset, std::size_t bytes) {
        const Slice own = own_slice(offset, bytes, true);
        // The slices lie one after the other, and all arrays keep the whole.
        const auto group = open();
        std::uint8_t* const first = own.data() - static_cast<std::size_t>(group->rank()) * bytes;
        const nb::object kept = nb::cast(own);
        std::vector<Slice> all;
        for (int rank = 0; rank < group->ranks(); ++rank)
            all.emplace_back(first + static_cast<std::size_t>(rank) * bytes,
                             std::initializer_list<std::size_t>{bytes}, kept);
        return all;
    }

    nb::dict statistics() const {
        const shared::Statistics s = open()->statistics();
        nb::dict all;
        all["operations"] = s.operations;
        for (std::size_t i = 0; i < shared::kCollectives; ++i) all[kNames[i]] = s.collectives[i];
        all["small"] = s.small;
        all["staged"] = s.staged;
        all["one_pass"] = s.one_pass;
        all["bytes"] = s.bytes;
        all["blocks_present"] = s.blocks_present;
        all["blocks_total"] = s.blocks_total;
        all["waits"] = s.waits;
        all["sleeps"] = s.sleeps;
        all["wakes"] = s.wakes;
        all["reachable_bytes"] = s.reachable_bytes;
        return all;
    }

    void close() {
        handle_->close();
        array_ = nb::object();
    }

  private:
    std::shared_ptr<Group> open() const { return handle_->open(); }

    std::uint64_t run(const Request& request, double timeout_s) const {
        const auto group = open();
        const nb::gil_scoped_release no_python;
        const std::uint64_t operation = group->begin(request);
        return group->advance(nanoseconds(timeout_s), operation) ? 0 : operation;
    }

    static std::shared_ptr<Segment> mapped(int fd, int ranks, std::vector<int> names) {
        auto segment = std::make_shared<Segment>(fd, ranks, Segment::Liveness::RecordLocks);
        segment->rename(std::move(names));
        return segment;
    }

    const std::shared_ptr<shared::Calls> handle_;
    nb::object array_;  // of the operation in progress
};

}  // namespace

void bind_shared(nb::module_& module) {
    nb::exception<shared::Failed> failed(module, "SharedFailed", PyExc_RuntimeError);
    nb::exception<shared::Disagreement> disagreement(module, "SharedDisagreement", failed.ptr());
    module.def("shared_segment_bytes", &shared::segment_bytes, "ranks"_a,
               "Return the bytes of a group's segment without reachable tensors.");
    module.def(
        "initialise_segment",
        [](int fd, int ranks, std::size_t small_bytes, std::size_t batch_bytes) {
            Segment::initialise(fd, ranks, {small_bytes, batch_bytes});
        },
        "fd"_a, "ranks"_a, "small_bytes"_a = 0, "batch_bytes"_a = 0,
        "Make a segment of an empty memfd, which allows sealing. 0 stands for default sizes.");
    nb::class_<SharedGroup>(
        module, "SharedGroup",
        "One rank's end of a shared-memory group; see docs/shared_memory.md.\n\n"
        "Takes over the descriptor: nobody else may close it, nor any other\n"
        "descriptor of the same memfd in this process.")
        .def(nb::init<int, int, int, std::vector<int>, bool>(), "fd"_a, "rank"_a, "ranks"_a,
             "names"_a = std::vector<int>{}, "numbers"_a = false)
        .def_prop_ro("rank", &SharedGroup::rank)
        .def_prop_ro("ranks", &SharedGroup::ranks)
        .def("begin", &SharedGroup::begin, "array"_a, "dtype"_a, "reduction"_a, "fingerprint"_a,
             "Begin an all-reduce of a contiguous array, in place. Does not wait. Return the\n"
             "operation's number, counted from 1.")
        .def("advance", &SharedGroup::advance, "timeout_s"_a, "operation"_a = 0,
             "Work and wait for up to so long; return True when the operation is over, also if it\n"
             "was over before. 0 is the operation in progress, whichever that is. Raises\n"
             "SharedDisagreement at all ranks if their calls differ, and SharedFailed if a rank\n"
             "has ended or failed the group.")
        .def("run", &SharedGroup::collective, "collective"_a, "inputs"_a, "outputs"_a, "count"_a,
             "dtype"_a, "reduction"_a, "root"_a, "fingerprint"_a, "history"_a, "timeout_s"_a,
             "Begin a collective at one address or several and `advance`; return 0 if it is over,\n"
             "or else its number. Numbers and arguments are those of c_api.h. The caller\n"
             "keeps the memory until the operation is over.")
        .def("calls", &SharedGroup::calls,
             "Return a capsule of the calls in c_api.h, for another C or C++ library.")
        .def("in_progress", &SharedGroup::in_progress,
             "Return the number of the operation in progress, or 0.")
        .def("fingerprints", &SharedGroup::fingerprints,
             "Return each rank's fingerprint, after SharedDisagreement.")
        .def("histories", &SharedGroup::histories,
             "Return each rank's history, after SharedDisagreement.")
        .def("differing", &SharedGroup::differing,
             "Return the ranks whose call differs from this one's, after SharedDisagreement.")
        .def("missing", &SharedGroup::missing, "Return the ranks for which this one waits.")
        .def("dead", &SharedGroup::dead,
             "Return the ranks whose process has ended, or that have left.")
        .def("fail", &SharedGroup::fail, "text"_a,
             "Make all ranks leave their operations with SharedFailed; the first text stays.")
        .def("failed", &SharedGroup::failed, "Return whether a rank has ended or failed the group.")
        .def("failure", &SharedGroup::failure, "Return why the group failed; empty if it did not.")
        .def("allocate", &SharedGroup::allocate, "offset"_a, "bytes"_a,
             "Return this rank's slice of reachable memory, uint8. Collective: all ranks with the\n"
             "same arguments, whole pages of 4096 bytes, no offset twice. Freed with the array.")
        .def("allocate_all", &SharedGroup::allocate_all, "offset"_a, "bytes"_a,
             "The same, but return all ranks' slices.")
        .def("statistics", &SharedGroup::statistics)
        .def("close", &SharedGroup::close,
             "Leave the group: operations of others that wait for this rank fail.");
}

}  // namespace afflux::bindings
