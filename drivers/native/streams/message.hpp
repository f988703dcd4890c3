// Messages on a stream between two ranks: a head, and what it says that follows.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "arithmetic/types.hpp"
#include "collectives/request.hpp"
#include "contract/wire.hpp"

namespace afflux::streams {

using namespace collectives;
using wire::kBlockBytes;

// Numbers and elements travel in the order of bytes that both ends have.
static_assert(std::endian::native == std::endian::little);

enum class Kind : std::uint8_t {
    Call = 1,          // a Signature
    Contribution = 2,  // a piece of the tensor that the receiver reduces
    Result = 3,        // a piece that the sender has reduced, or that is to be copied
    Failure = 4,  // the ranks that have ended, in 64 bits, and why the sender gives up, as text
};

// A piece is so many blocks of a part, the last one perhaps less; and of terms so many in all.
inline constexpr std::size_t kPieceBlocks = 512;
inline constexpr std::size_t kPieceBytes = kPieceBlocks * kBlockBytes;
// Bitmaps begin at bytes.
inline constexpr std::size_t kBitmapBytes =
    kPieceBlocks / 8 + kPieceBlocks / 16 + arithmetic::kMaxRanks + 1;
inline constexpr std::size_t kFailureBytes = 512;

struct Head {
    std::uint32_t payload;    // bytes that follow
    std::uint32_t operation;  // the lower bits of its number
    std::uint32_t piece;      // its number in its part, from 0
    Kind kind;
    // How many bitmaps are in front of the blocks, one bit for each block of the piece: of those
    // that follow, and of their second, third, … terms, which follow on them. 0: all follow. Of a
    // short last block only its bytes do.
    std::uint8_t bitmaps;
    // Whether one more bitmap follows on these: of blocks that none of them has, whose two terms
    // follow on all others, packed.
    std::uint8_t packed;
    std::uint8_t reserved;
};
static_assert(sizeof(Head) == 16);

// A rank's call, as far as it must be the same at all ranks.
struct Signature {
    std::uint64_t count, fingerprint, history;
    Collective what;
    Dtype dtype;
    Op op;
    std::uint8_t root;
    std::uint32_t stripe;  // of a rail's operation, its blocks; else 0

    friend bool operator==(const Signature&, const Signature&) = default;
};
static_assert(sizeof(Signature) == 32);

// A field that a collective does not use cannot make it differ.
inline Signature signature_of(const Request& request) {
    const bool rooted = request.what == Collective::Broadcast;
    return {request.count,
            request.fingerprint,
            request.history,
            request.what,
            request.dtype,
            reduces(request.what) ? request.op : Op::Sum,
            static_cast<std::uint8_t>(rooted ? request.root : 0),
            0};
}

}  // namespace afflux::streams
