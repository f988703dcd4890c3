// The packet layout, in C++.
//
// Written by `python -m afflux_hdl.contract.cpp_headers drivers/native/contract`; not to be edited.
// clang-format off
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace afflux::wire {

inline constexpr std::uint8_t kVersion = 2;
inline constexpr std::uint8_t kEveryone = 255;
inline constexpr std::uint32_t kAbsent = 4294967295;
inline constexpr std::uint32_t kRowsMax = 16777215;
inline constexpr std::size_t kEthernetBytes = 14;
inline constexpr std::size_t kIpv4Bytes = 20;
inline constexpr std::size_t kUdpBytes = 8;
inline constexpr std::size_t kAffluxOffset = 42;
inline constexpr std::size_t kHeaderBytes = 22;
inline constexpr std::size_t kLookaheadOffset = 64;
inline constexpr std::size_t kLanesMax = 16;
inline constexpr std::size_t kLookaheadBytes = 64;
inline constexpr std::size_t kPayloadOffset = 128;
inline constexpr std::size_t kBlockElements = 64;
inline constexpr std::size_t kBlockBytes = 256;
inline constexpr std::size_t kLongestBlockBytes = 512;
inline constexpr std::size_t kWorkersMax = 64;
inline constexpr std::size_t kUdpPayloadMin = 86;
inline constexpr std::size_t kSealBytes = 4;
inline constexpr std::uint16_t kSealedChecksum = 65535;

enum class Type : std::uint8_t {
    Data = 0,
    Probe = 1,
    Join = 2,
    Result = 8,
    Conflict = 9,
    Missing = 10,
    Joined = 11,
    Refused = 12,
};

enum class Opcode : std::uint8_t {
    Sum = 0,
    Max = 1,
    Min = 2,
    Umin = 3,
};

enum class NumberOpcode : std::uint8_t {
    Max = 4,
    Min = 5,
    Sum = 8,
};

enum class Dtype : std::uint8_t {
    Int32 = 0,
    Float32 = 1,
    Float16 = 2,
    Bfloat16 = 3,
};

enum class Refusal : std::uint8_t {
    Version = 1,
    Job = 2,
    Key = 3,
    Worker = 4,
    Address = 5,
};

// The fields of the Afflux header: type, and bytes from its start.
using VersionType = std::uint8_t;
inline constexpr std::size_t kVersionTypeAt = 0;
using OpcodeDtype = std::uint8_t;
inline constexpr std::size_t kOpcodeDtypeAt = 1;
using Job = std::uint8_t;
inline constexpr std::size_t kJobAt = 2;
using Worker = std::uint8_t;
inline constexpr std::size_t kWorkerAt = 3;
using Slot = std::uint16_t;
inline constexpr std::size_t kSlotAt = 4;
using Present = std::uint16_t;
inline constexpr std::size_t kPresentAt = 6;
using Round = std::uint32_t;
inline constexpr std::size_t kRoundAt = 8;
using Key = std::uint64_t;
inline constexpr std::size_t kKeyAt = 12;
using Operation = std::uint16_t;
inline constexpr std::size_t kOperationAt = 20;

}  // namespace afflux::wire
