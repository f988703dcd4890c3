// A group's segment as this process sees it, with the locks that show which ranks are alive.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "shared/layout.hpp"

namespace afflux::shared {

// Reachable memory, which is the slices of all ranks, mapped one after the other.
class Allocation {
  public:
    // Maps `ranks` slices of `bytes` bytes each, from `file_offset` on.
    // Throws std::bad_alloc if there is no room.
    Allocation(int fd, std::size_t file_offset, std::size_t offset_, std::size_t bytes_, int ranks);
    ~Allocation();
    Allocation(const Allocation&) = delete;
    Allocation& operator=(const Allocation&) = delete;

    std::byte* slice(int rank) const { return base_ + static_cast<std::size_t>(rank) * bytes; }
    // Returns the memory of a rank's slice to the system.
    void discard(int rank) const;

    const std::size_t offset;  // the same at all ranks
    const std::size_t bytes;   // of a slice, whole pages

  private:
    std::byte* base_;
    std::size_t mapped_;
};

// Sizes of a segment's buffers, which the first rank chooses for all; 0 stands for the default.
struct Sizes {
    std::size_t small_bytes = 0;
    std::size_t batch_bytes = 0;
};

class Segment {
  public:
    enum class Liveness {
        RecordLocks,  // a rank is a process, and its end releases its lock
        None,         // ranks are threads of this process (tests)
    };

    // Sizes a new memfd, seals it against shrinking and writes its header.
    // Throws std::system_error, and std::invalid_argument for sizes and ranks that cannot be.
    static void initialise(int fd, int ranks, Sizes sizes = {});

    // Maps the segment of an initialised memfd. The descriptor becomes the segment's: it must not
    // be closed by others, nor may another descriptor of the same memfd be closed in this process
    // afterwards, because that would release the locks.
    // Throws std::invalid_argument if it is not a segment for so many ranks, std::system_error.
    Segment(int fd, int ranks, Liveness liveness);
    ~Segment();
    Segment(const Segment&) = delete;
    Segment& operator=(const Segment&) = delete;

    int ranks() const { return ranks_; }
    // The name of a rank of this segment in messages: its number in a larger group, if it has
    // names.
    std::string name(int rank) const;
    // Names all ranks. Before any other call.
    void rename(std::vector<int> names) { names_ = std::move(names); }
    Control& control() const { return *reinterpret_cast<Control*>(base_); }
    Member& member(int rank) const { return control().members[rank]; }
    Area& area(int rank) const { return reinterpret_cast<Area*>(base_ + kControlBytes)[rank]; }

    // Attaches as this rank. Throws std::invalid_argument if another process has done so.
    void attach(int rank);
    void detach(int rank);
    // Whether a rank was attached and no longer is: its process has ended, or it has left the
    // group.
    bool ended(int rank) const;
    // Processors that at least one attached rank may use.
    int processors() const;

    // Allocates slices of `bytes` bytes at `offset`, a multiple of the page size that no other
    // allocation has had. All ranks must call it with the same arguments.
    std::shared_ptr<Allocation> allocate(std::size_t offset, std::size_t bytes);

  private:
    int fd_;
    int ranks_;
    Liveness liveness_;
    std::vector<int> names_;
    std::byte* base_;
    std::mutex mutex_;
    // Ranks that are threads must see one mapping, or a sanitizer could not tell what they share.
    std::map<std::size_t, std::weak_ptr<Allocation>> allocations_;
};

}  // namespace afflux::shared
