// The shared-memory group for Python.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "bindings/group_handle.hpp"
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

class SharedGroup final : public GroupHandle {
  public:
    SharedGroup(int fd, int rank, int ranks, std::vector<int> names)
        : GroupHandle(std::make_shared<Group>(mapped(fd, ranks, std::move(names)), rank)) {}

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
        for (std::size_t i = 0; i < collectives::kCollectives; ++i)
            all[kCollectiveNames[i]] = s.collectives[i];
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

  private:
    std::shared_ptr<Group> open() const {
        return std::static_pointer_cast<Group>(GroupHandle::open());
    }

    static std::shared_ptr<Segment> mapped(int fd, int ranks, std::vector<int> names) {
        auto segment = std::make_shared<Segment>(fd, ranks, Segment::Liveness::RecordLocks);
        segment->rename(std::move(names));
        return segment;
    }
};

}  // namespace

void bind_shared(nb::module_& module) {
    module.def("shared_segment_bytes", &shared::segment_bytes, "ranks"_a,
               "Return the bytes of a group's segment without reachable tensors.");
    module.def(
        "initialise_segment",
        [](int fd, int ranks, std::size_t small_bytes, std::size_t batch_bytes) {
            Segment::initialise(fd, ranks, {small_bytes, batch_bytes});
        },
        "fd"_a, "ranks"_a, "small_bytes"_a = 0, "batch_bytes"_a = 0,
        "Make a segment of an empty memfd, which allows sealing. 0 stands for default sizes.");
    nb::class_<SharedGroup, GroupHandle>(
        module, "SharedGroup",
        "One rank's end of a shared-memory group; see docs/shared_memory.md.\n\n"
        "Takes over the descriptor: nobody else may close it, nor any other\n"
        "descriptor of the same memfd in this process.")
        .def(nb::init<int, int, int, std::vector<int>>(), "fd"_a, "rank"_a, "ranks"_a,
             "names"_a = std::vector<int>{})
        .def("allocate", &SharedGroup::allocate, "offset"_a, "bytes"_a,
             "Return this rank's slice of reachable memory, uint8. Collective: all ranks with the\n"
             "same arguments, whole pages of 4096 bytes, no offset twice. Freed with the array.")
        .def("allocate_all", &SharedGroup::allocate_all, "offset"_a, "bytes"_a,
             "The same, but return all ranks' slices.")
        .def("statistics", &SharedGroup::statistics);
}

}  // namespace afflux::bindings
