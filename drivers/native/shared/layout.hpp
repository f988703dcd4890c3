// The layout of a group's segment, which is one memfd that all ranks of the group map.
//
//      0 ┌───────────────────────────────┐
//        │ Header    who made it, sizes  │  written once, before the file is handed on
//        │ Gate      phases passed       │  the one word that waiting ranks look at and sleep on
//        │ Failure   who gave up, why    │
//        ├───────────────────────────────┤
//        │ Member 0                      │  attached or not, phase reached, processors,
//        │ …                             │  what it was called with: this operation and the last
//        │ Member 63                     │
//        ├───────────────────────────────┤ kControlBytes
//        │ Area of rank 0                │  ┌ small[0], small[1]   a whole small tensor each
//        │ …                             │  │   elements, present
//        │ Area of rank N-1              │  └ ring[0] … ring[3]    a batch of a larger one each
//        ├───────────────────────────────┤       elements, present, result_present
//        │ reachable tensors (sparse):   │ segment_bytes(N), a multiple of 2 MiB
//        │ for each allocation the       │
//        │ slices of ranks 0 … N-1       │
//        └───────────────────────────────┘
//
// Each rank writes only its own Member and Area, the Gate, the Failure, and, in the one-pass
// path, its share of all ranks' slices. Counters never decrease, so nothing has to be reset
// between operations, and whenever a rank ends, it leaves nothing half done that another one would
// take for done.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "collectives/request.hpp"

namespace afflux::shared {

using namespace collectives;

inline constexpr std::uint64_t kMagic = 0x4D48535845464641;  // "AFFEXSHM"
inline constexpr std::uint32_t kLayoutVersion = 4;

inline constexpr std::size_t kPage = 4096;
// Two lines, because processors fetch lines in pairs.
inline constexpr std::size_t kApart = 128;

// The largest small tensor, which goes from rank to rank in one phase; and those of all ranks
// together, all of which each rank reduces.
inline constexpr std::size_t kSmallBytes = std::size_t{32} << 10;
inline constexpr std::size_t kSmallBytesOfAll = 4 * kSmallBytes;
// The largest batch of a larger tensor, and for how many a rank has room: four, because one is
// copied in while one is reduced and one is copied out, and the ranks are up to one batch apart.
inline constexpr std::size_t kBatchBytes = std::size_t{256} << 10;
inline constexpr std::size_t kRingBatches = 4;

// Blocks that fit into so many bytes.
constexpr std::size_t most_blocks(std::size_t bytes) {
    return bytes / wire::kBlockBytes;
}

struct alignas(kApart) SegmentHeader {
    std::uint64_t magic;
    std::uint32_t version;
    std::uint32_t ranks;
    std::uint64_t small_bytes;   // at most kSmallBytes
    std::uint64_t batch_bytes;   // at most kBatchBytes, a multiple of a block's
    std::uint64_t copied_bytes;  // the same, of batches that are only copied
};

// All ranks pass the same phases in the same order. Phase p, counted from 1, is over when `arrived`
// is p * N: no rank arrives at a phase before the last one is over.
struct alignas(kApart) Gate {
    std::atomic<std::uint32_t> arrived;   // modulo 2**32; also the futex
    std::atomic<std::uint32_t> sleepers;  // ranks in a futex wait, or about to be
};

enum class FailureState : std::uint32_t { None = 0, Claimed = 1, Written = 2 };

struct alignas(kApart) Failure {
    std::atomic<FailureState> state;
    std::uint32_t rank;  // that has failed the group; valid once written, like the text
    char text[1024 - 2 * sizeof(std::uint32_t)];
};

inline constexpr std::uint64_t kOrdinary = ~std::uint64_t{0};

// A rank's call. Written before the rank arrives at the operation's opening phase.
struct CallSignature {
    std::uint64_t count;        // elements
    std::uint64_t fingerprint;  // of what else the ranks must have in common
    std::uint64_t history;      // of what they called before
    std::uint64_t offset;       // offset among reachable tensors, or kOrdinary
    std::uint64_t extent;       // bytes of the allocation that it lies in
    Collective what;
    Dtype dtype;
    Op op;
    std::uint8_t root;

    bool agrees(const CallSignature& other) const {
        return what == other.what && count == other.count && dtype == other.dtype &&
               op == other.op && root == other.root && fingerprint == other.fingerprint &&
               history == other.history;
    }
};

enum class MemberState : std::uint32_t { Absent = 0, Attached = 1, Closed = 2 };

inline constexpr std::size_t kProcessorWords = 16;  // 1024 processors

struct alignas(kApart) Member {
    std::atomic<MemberState> state;
    std::atomic<std::uint64_t> reached;         // phases arrived at: never behind by more than one
    std::uint64_t processors[kProcessorWords];  // that it may run on; valid once attached
    alignas(kApart) CallSignature signatures[2];  // by the operation's parity
};

struct Control {
    SegmentHeader header;
    Gate gate;
    Failure failure;
    Member members[arithmetic::kMaxRanks];
};

inline constexpr std::size_t kControlBytes = (sizeof(Control) + kPage - 1) / kPage * kPage;

struct Small {
    alignas(kPage) std::byte elements[kSmallBytes];
    std::uint8_t present[most_blocks(kSmallBytes)];
};

struct Batch {
    alignas(kPage) std::byte elements[kBatchBytes];
    std::uint8_t present[most_blocks(kBatchBytes)];         // of the rank's own input
    std::uint8_t result_present[most_blocks(kBatchBytes)];  // in the rank's share
};

struct Area {
    Small small[2];  // by the operation's parity
    Batch ring[kRingBatches];
};

// Everything that a rank has in flight is in its Area.
static_assert(sizeof(Area) <= (std::size_t{1} << 20) + (std::size_t{128} << 10));
static_assert(sizeof(Area) % kPage == 0);
static_assert(sizeof(Gate) == kApart && sizeof(Failure) % kApart == 0);
static_assert(offsetof(Control, members) % kApart == 0);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(kBatchBytes % wire::kBlockBytes == 0);
// A futex is 32 bits wide, and it is `arrived` itself.
static_assert(sizeof(std::atomic<std::uint32_t>) == 4);

// Bytes of a segment for so many ranks without reachable tensors, which begin there.
constexpr std::size_t segment_bytes(int ranks) {
    constexpr std::size_t kAlign = std::size_t{2} << 20;
    const std::size_t bytes = kControlBytes + static_cast<std::size_t>(ranks) * sizeof(Area);
    return (bytes + kAlign - 1) / kAlign * kAlign;
}

}  // namespace afflux::shared
