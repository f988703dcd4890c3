// The shared-memory group for Python.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "bindings/arrays.hpp"
#include "bindings/parts.hpp"
#include "shared/group.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace afflux::bindings {
namespace {

using shared::Allocation;
using shared::Group;
using shared::Segment;
using Slice = nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::chrono::nanoseconds nanoseconds(double seconds) {
    // A year is as good as for ever, and added to the present it does not overflow.
    constexpr double kYear = 3.2e7;
    return std::chrono::nanoseconds(
        static_cast<std::int64_t>(std::clamp(seconds, 0.0, kYear) * 1e9));
}

// Keeps a rank's slice as long as an array refers to it.
struct SliceOwner {
    std::weak_ptr<Group> group;
    std::shared_ptr<Allocation> allocation;
    int rank;
    pid_t process;

    ~SliceOwner() {
        // A forked process may drop its copy of the array; the memory stays its parent's.
        if (getpid() != process) return;
        if (const auto alive = group.lock())
            alive->release(allocation);
        else
            allocation->discard(rank);
    }
};

class SharedGroup {
  public:
    SharedGroup(int fd, int rank, int ranks)
        : group_(std::make_shared<Group>(
              std::make_shared<Segment>(fd, ranks, Segment::Liveness::RecordLocks), rank)) {}

    void begin(const Output& array, int dtype, int reduction, std::uint64_t fingerprint) {
        const codec::Dtype type = dtype_of(dtype);
        const codec::Op op = op_of(reduction);
        const std::size_t count = count_of(array, type);
        const auto group = open();
        {
            const nb::gil_scoped_release no_python;
            group->begin(array.data(), count, type, op, fingerprint);
        }
        array_ = nb::find(array);
    }

    bool advance(double timeout_s) {
        const auto group = open();
        bool over;
        {
            const nb::gil_scoped_release no_python;
            over = group->advance(nanoseconds(timeout_s));
        }
        if (over) array_ = nb::object();
        return over;
    }

    bool all_reduce_address(std::uintptr_t address, std::size_t count, int dtype, int reduction,
                            std::uint64_t fingerprint, double timeout_s) {
        const codec::Dtype type = dtype_of(dtype);
        const codec::Op op = op_of(reduction);
        const auto group = open();
        const nb::gil_scoped_release no_python;
        group->begin(reinterpret_cast<void*>(address), count, type, op, fingerprint);
        return group->advance(nanoseconds(timeout_s));
    }

    std::vector<std::uint64_t> fingerprints() const { return open()->fingerprints(); }
    std::vector<int> missing() const { return open()->missing(); }
    std::vector<int> dead() const { return open()->ended(); }
    void fail(const std::string& text) { open()->fail(text); }
    bool failed() const { return !open()->failure().empty(); }
    int rank() const { return open()->rank(); }
    int ranks() const { return open()->ranks(); }

    Slice allocate(std::size_t offset, std::size_t bytes) {
        const auto group = open();
        // Made in place, as the end of a temporary would free the memory.
        std::unique_ptr<SliceOwner> owner(
            new SliceOwner{group, group->allocate(offset, bytes), group->rank(), getpid()});
        std::byte* const data = owner->allocation->slice(owner->rank);
        const nb::capsule capsule(
            owner.get(), [](void* memory) noexcept { delete static_cast<SliceOwner*>(memory); });
        owner.release();
        return Slice(data, {bytes}, capsule);
    }

    nb::dict statistics() const {
        const shared::Statistics s = open()->statistics();
        nb::dict all;
        all["operations"] = s.operations;
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
        // Another thread that is inside keeps the group until it leaves.
        group_ = nullptr;
        array_ = nb::object();
    }

  private:
    std::shared_ptr<Group> open() const {
        if (!group_) throw shared::Failed("the group is closed");
        return group_;
    }

    std::shared_ptr<Group> group_;
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
        .def(nb::init<int, int, int>(), "fd"_a, "rank"_a, "ranks"_a)
        .def_prop_ro("rank", &SharedGroup::rank)
        .def_prop_ro("ranks", &SharedGroup::ranks)
        .def("begin", &SharedGroup::begin, "array"_a, "dtype"_a, "reduction"_a, "fingerprint"_a,
             "Begin an all-reduce of a contiguous array, in place. Does not wait.")
        .def("advance", &SharedGroup::advance, "timeout_s"_a,
             "Work and wait for up to so long; return True when the operation is over. Raises\n"
             "SharedDisagreement at all ranks if their calls differ, and SharedFailed if a rank\n"
             "has ended or failed the group.")
        .def("all_reduce_address", &SharedGroup::all_reduce_address, "address"_a, "count"_a,
             "dtype"_a, "reduction"_a, "fingerprint"_a, "timeout_s"_a,
             "Do `begin` at an address and `advance` in one call; the caller keeps the memory "
             "until\n"
             "the operation is over.")
        .def("fingerprints", &SharedGroup::fingerprints,
             "Return each rank's fingerprint, after SharedDisagreement.")
        .def("missing", &SharedGroup::missing, "Return the ranks for which this one waits.")
        .def("dead", &SharedGroup::dead,
             "Return the ranks whose process has ended, or that have left.")
        .def("fail", &SharedGroup::fail, "text"_a,
             "Make all ranks leave their operations with SharedFailed; the first text stays.")
        .def("failed", &SharedGroup::failed, "Return whether a rank has ended or failed the group.")
        .def("allocate", &SharedGroup::allocate, "offset"_a, "bytes"_a,
             "Return this rank's slice of reachable memory, uint8. Collective: all ranks with the\n"
             "same arguments, whole pages of 4096 bytes, no offset twice. Freed with the array.")
        .def("statistics", &SharedGroup::statistics)
        .def("close", &SharedGroup::close,
             "Leave the group: operations of others that wait for this rank fail.");
}

}  // namespace afflux::bindings
