#include "shared/segment.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <new>
#include <stdexcept>
#include <system_error>

namespace afflux::shared {
namespace {

[[noreturn]] void throw_errno(const char* what) {
    throw std::system_error(errno, std::generic_category(), what);
}

std::size_t file_bytes(int fd) {
    struct stat status{};
    if (fstat(fd, &status) != 0) throw_errno("fstat of a shared-memory segment");
    return static_cast<std::size_t>(status.st_size);
}

// Makes the file at least so long. Other ranks may do so at the same time: the seal makes the later
// call fail rather than shrink the file.
void grow(int fd, std::size_t bytes) {
    while (file_bytes(fd) < bytes) {
        if (ftruncate(fd, static_cast<off_t>(bytes)) != 0 && errno != EPERM && errno != EINTR)
            throw_errno("ftruncate of a shared-memory segment");
    }
}

struct flock lock_of(int rank, short type) {
    struct flock lock{};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    lock.l_start = rank;
    lock.l_len = 1;
    return lock;
}

// With a processor for each rank the ranks run side by side, and a batch stays in each one's own
// cache; otherwise they take turns, and a larger batch means fewer changes between them.
constexpr std::size_t kBatchSideBySide = std::size_t{64} << 10;
constexpr std::size_t kBatchInTurns = kBatchBytes;

int usable_processors() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
    return CPU_COUNT(&set);
}

}  // namespace

Allocation::Allocation(int fd, std::size_t file_offset, std::size_t offset_, std::size_t bytes_,
                       int ranks)
    : offset(offset_), bytes(bytes_), mapped_(bytes_ * static_cast<std::size_t>(ranks)) {
    void* base = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                      static_cast<off_t>(file_offset));
    if (base == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<std::byte*>(base);
}

Allocation::~Allocation() {
    munmap(base_, mapped_);
}

void Allocation::discard(int rank) const {
    // If the kernel declines, the memory is freed with the segment.
    madvise(slice(rank), bytes, MADV_REMOVE);
}

void Segment::initialise(int fd, int ranks, Sizes sizes) {
    if (ranks < 1 || ranks > arithmetic::kMaxRanks)
        throw std::invalid_argument("a group must have 1 to 64 ranks, not " +
                                    std::to_string(ranks));
    if (sizes.small_bytes == 0) sizes.small_bytes = kSmallBytes;
    // Data that is only copied is not looked at again by the rank that has it in its cache, so that
    // fewer phases count for more.
    const std::size_t copied_bytes = sizes.batch_bytes == 0 ? kBatchBytes : sizes.batch_bytes;
    if (sizes.batch_bytes == 0)
        sizes.batch_bytes = ranks <= usable_processors() ? kBatchSideBySide : kBatchInTurns;
    if (sizes.small_bytes > kSmallBytes || sizes.batch_bytes > kBatchBytes ||
        sizes.batch_bytes % wire::kBlockBytes != 0)
        throw std::invalid_argument(
            "a batch is whole blocks of 256 bytes, at most 262144 bytes; "
            "a small tensor is at most 32768");
    if (file_bytes(fd) != 0) throw std::invalid_argument("the segment is already in use");
    grow(fd, segment_bytes(ranks));
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0) throw_errno("sealing a shared-memory segment");
    void* base = mmap(nullptr, kControlBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) throw_errno("mmap of a shared-memory segment");
    // The rest of the file reads as zeros, which is the initial state of everything else.
    SegmentHeader& header = static_cast<Control*>(base)->header;
    header.version = kLayoutVersion;
    header.ranks = static_cast<std::uint32_t>(ranks);
    header.small_bytes = sizes.small_bytes;
    header.batch_bytes = sizes.batch_bytes;
    header.copied_bytes = copied_bytes;
    header.magic = kMagic;
    munmap(base, kControlBytes);
}

Segment::Segment(int fd, int ranks, Liveness liveness)
    : fd_(fd), ranks_(ranks), liveness_(liveness) {
    if (ranks < 1 || ranks > arithmetic::kMaxRanks || file_bytes(fd) < segment_bytes(ranks))
        throw std::invalid_argument("not a segment for " + std::to_string(ranks) + " ranks");
    void* base = mmap(nullptr, segment_bytes(ranks), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) throw_errno("mmap of a shared-memory segment");
    base_ = static_cast<std::byte*>(base);
    const SegmentHeader& header = control().header;
    if (header.magic != kMagic || header.version != kLayoutVersion ||
        header.ranks != static_cast<std::uint32_t>(ranks)) {
        munmap(base_, segment_bytes(ranks));
        throw std::invalid_argument("not a segment for " + std::to_string(ranks) +
                                    " ranks, or one of another version of Afflux");
    }
}

Segment::~Segment() {
    munmap(base_, segment_bytes(ranks_));
    close(fd_);
}

std::string Segment::name(int rank) const {
    const auto index = static_cast<std::size_t>(rank);
    return std::to_string(index < names_.size() ? names_[index] : rank);
}

void Segment::attach(int rank) {
    if (rank < 0 || rank >= ranks_)
        throw std::invalid_argument("no rank " + std::to_string(rank) + " among " +
                                    std::to_string(ranks_));
    if (liveness_ == Liveness::RecordLocks) {
        struct flock lock = lock_of(rank, F_WRLCK);
        if (fcntl(fd_, F_SETLK, &lock) != 0) {
            if (errno != EACCES && errno != EAGAIN) throw_errno("locking a place in a group");
            throw std::invalid_argument("rank " + std::to_string(rank) + " is attached already");
        }
    }
    Member& self = member(rank);
    if (self.state.load(std::memory_order_relaxed) != MemberState::Absent)
        throw std::invalid_argument("rank " + std::to_string(rank) + " was attached before");
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof(set), &set);
    for (std::size_t i = 0; i < kProcessorWords * 64; ++i)
        if (CPU_ISSET(i, &set)) self.processors[i / 64] |= std::uint64_t{1} << i % 64;
    self.state.store(MemberState::Attached, std::memory_order_release);
}

void Segment::detach(int rank) {
    member(rank).state.store(MemberState::Closed, std::memory_order_release);
}

bool Segment::ended(int rank) const {
    const MemberState state = member(rank).state.load(std::memory_order_acquire);
    if (state == MemberState::Closed) return true;
    if (state == MemberState::Absent || liveness_ == Liveness::None) return false;
    // A process's own locks do not conflict, but then the rank is this process, which is alive.
    struct flock lock = lock_of(rank, F_WRLCK);
    if (fcntl(fd_, F_GETLK, &lock) != 0) return false;
    return lock.l_type == F_UNLCK;
}

int Segment::processors() const {
    std::uint64_t any[kProcessorWords] = {};
    for (int rank = 0; rank < ranks_; ++rank) {
        if (member(rank).state.load(std::memory_order_acquire) == MemberState::Absent) continue;
        for (std::size_t i = 0; i < kProcessorWords; ++i) any[i] |= member(rank).processors[i];
    }
    int count = 0;
    for (const std::uint64_t word : any) count += std::popcount(word);
    return count;
}

std::shared_ptr<Allocation> Segment::allocate(std::size_t offset, std::size_t bytes) {
    if (bytes == 0 || bytes % kPage != 0 || offset % kPage != 0)
        throw std::invalid_argument("reachable memory comes in whole pages of 4096 bytes");
    const std::scoped_lock lock(mutex_);
    std::weak_ptr<Allocation>& known = allocations_[offset];
    std::shared_ptr<Allocation> allocation = known.lock();
    if (!allocation) {
        const std::size_t ranks = static_cast<std::size_t>(ranks_);
        const std::size_t begin = segment_bytes(ranks_) + offset * ranks;
        grow(fd_, begin + bytes * ranks);
        allocation = std::make_shared<Allocation>(fd_, begin, offset, bytes, ranks_);
        known = allocation;
    } else if (allocation->bytes != bytes) {
        throw std::invalid_argument("reachable memory of another size, " +
                                    std::to_string(allocation->bytes) + " bytes instead of " +
                                    std::to_string(bytes) + ", is at offset " +
                                    std::to_string(offset));
    }
    return allocation;
}

}  // namespace afflux::shared
