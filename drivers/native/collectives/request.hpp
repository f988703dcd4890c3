// The requests of a rank to a group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "arithmetic/types.hpp"

namespace afflux::collectives {

enum class Collective : std::uint8_t {
    AllReduce = 0,
    Broadcast = 1,
    AllGather = 2,
    ReduceScatter = 3,
    Barrier = 4,
};
inline constexpr std::size_t kCollectives = 5;

// Types of elements. The first four are the protocol's; of Bytes nothing is known but that they
// move.
enum class Dtype : std::uint8_t {
    Int32 = 0,
    Float32 = 1,
    Float16 = 2,
    Bfloat16 = 3,
    Int64 = 4,
    Int16 = 5,
    Int8 = 6,
    Uint8 = 7,
    Float64 = 8,
    Bytes = 9,
};
inline constexpr unsigned kDtypes = 10;
static_assert(static_cast<int>(Dtype::Bfloat16) == static_cast<int>(arithmetic::Dtype::Bfloat16));

// Reductions.
enum class Op : std::uint8_t { Sum = 0, Avg = 1, Max = 2, Min = 3, Product = 4 };
inline constexpr unsigned kOps = 5;

constexpr std::size_t size_of(Dtype dtype) {
    switch (dtype) {
        case Dtype::Int64:
        case Dtype::Float64:
            return 8;
        case Dtype::Int32:
        case Dtype::Float32:
            return 4;
        case Dtype::Int8:
        case Dtype::Uint8:
        case Dtype::Bytes:
            return 1;
        default:
            return 2;
    }
}

constexpr bool reduces(Collective what) {
    return what == Collective::AllReduce || what == Collective::ReduceScatter;
}

// One collective operation as a rank calls it. `count` is the elements of the smallest tensor:
//
//                    inputs                   outputs
//     AllReduce      none                     1 of count, reduced in place
//     Broadcast      none                     1 of count, which the root's elements go to or are in
//     AllGather      1 of count               N of count, or 1 of N * count
//     ReduceScatter  N of count, or 1 of      1 of count
//                    N * count
//     Barrier        none                     none; count is 0
//
// An input may be the rank's own part of the output, and an output its own part of the input.
struct Request {
    Collective what = Collective::AllReduce;
    std::span<const void* const> inputs{};
    std::span<void* const> outputs{};
    std::size_t count = 0;
    Dtype dtype = Dtype::Bytes;
    Op op = Op::Sum;  // if it reduces
    int root = 0;     // of a broadcast
    // Of what else the ranks must have in common, such as shapes; of what they called before. Both
    // are only compared.
    std::uint64_t fingerprint = 0;
    std::uint64_t history = 0;
};

}  // namespace afflux::collectives
