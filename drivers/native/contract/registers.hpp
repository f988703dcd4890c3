// The register map, in C++.
//
// Written by `python -m afflux_hdl.contract.cpp_headers drivers/native/contract`; not to be edited.
// clang-format off
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace afflux::registers {

inline constexpr std::uint32_t kIdentity = 1095126104;
inline constexpr std::uint32_t kRelease = 256;
inline constexpr std::uint32_t kCounterBase = 256;

enum class Command : std::uint32_t {
    Create = 1,
    Destroy = 2,
    JoinParent = 3,
};

enum class Reason : std::uint32_t {
    None = 0,
    Command = 1,
    Index = 2,
    Workers = 3,
    Lanes = 4,
    Slots = 5,
    Overlap = 6,
    Group = 7,
    Disabled = 8,
    NoParent = 9,
};

// Byte addresses.
enum class Address : std::uint32_t {
    Identity = 0x000,
    Protocol = 0x004,
    BuildWorkers = 0x008,
    BuildLanes = 0x00c,
    BuildJobs = 0x010,
    BuildSlots = 0x014,
    BuildBusBits = 0x018,
    BuildVersion = 0x01c,
    BuildTime = 0x030,
    BuildCommit = 0x034,
    LocalMacLow = 0x020,
    LocalMacHigh = 0x024,
    LocalAddress = 0x028,
    LocalPort = 0x02c,
    JobIndex = 0x040,
    JobKeyLow = 0x044,
    JobKeyHigh = 0x048,
    JobWorkers = 0x04c,
    JobLanes = 0x050,
    JobSlotBase = 0x054,
    JobSlotCount = 0x058,
    JobRound = 0x05c,
    JobCredit = 0x060,
    JobCommand = 0x064,
    JobBusy = 0x068,
    JobGroupAddress = 0x06c,
    JobGroupPort = 0x070,
    JobParentMacLow = 0x074,
    JobParentMacHigh = 0x078,
    JobParentAddress = 0x07c,
    JobParentPort = 0x080,
    JobParentJob = 0x084,
    JobParentWorker = 0x088,
    JobParentKeyLow = 0x08c,
    JobParentKeyHigh = 0x090,
    JobEnabled = 0x094,
    JobParentJoined = 0x098,
    JobReason = 0x09c,
    ReceiveLevel = 0x0a0,
    ReceivePeak = 0x0a4,
    DeliveryLevel = 0x0a8,
    DeliveryPeak = 0x0ac,
    DebugSlot = 0x0b0,
    DebugRound = 0x0b4,
    DebugSeenLow = 0x0b8,
    DebugSeenHigh = 0x0bc,
    DebugPhase = 0x0c0,
    DebugVersion0 = 0x0c4,
    DebugVersion1 = 0x0c8,
    JobOptions = 0x0cc,
    DebugWorker = 0x0d0,
    DebugPeerMacLow = 0x0d4,
    DebugPeerMacHigh = 0x0d8,
    DebugPeerAddress = 0x0dc,
    DebugPeerPort = 0x0e0,
    JobGroupKeyLow = 0x0e4,
    JobGroupKeyHigh = 0x0e8,
    TransmitControl = 0x0ec,
    TransmitState = 0x0f0,
};

struct Register {
    Address address;
    unsigned width;  // bits in use, from bit 0
    bool readable;  // otherwise it reads as 0
    bool writable;
};

inline constexpr std::array<Register, 59> kRegisters{{
    {Address::Identity, 32, true, false},
    {Address::Protocol, 8, true, false},
    {Address::BuildWorkers, 8, true, false},
    {Address::BuildLanes, 8, true, false},
    {Address::BuildJobs, 9, true, false},
    {Address::BuildSlots, 17, true, false},
    {Address::BuildBusBits, 16, true, false},
    {Address::BuildVersion, 24, true, false},
    {Address::BuildTime, 32, true, false},
    {Address::BuildCommit, 32, true, false},
    {Address::LocalMacLow, 32, true, true},
    {Address::LocalMacHigh, 16, true, true},
    {Address::LocalAddress, 32, true, true},
    {Address::LocalPort, 16, true, true},
    {Address::JobIndex, 8, true, true},
    {Address::JobKeyLow, 32, false, true},
    {Address::JobKeyHigh, 32, false, true},
    {Address::JobWorkers, 8, true, true},
    {Address::JobLanes, 8, true, true},
    {Address::JobSlotBase, 16, true, true},
    {Address::JobSlotCount, 17, true, true},
    {Address::JobRound, 32, true, true},
    {Address::JobCredit, 16, true, true},
    {Address::JobCommand, 2, true, true},
    {Address::JobBusy, 1, true, false},
    {Address::JobGroupAddress, 32, true, true},
    {Address::JobGroupPort, 16, true, true},
    {Address::JobParentMacLow, 32, true, true},
    {Address::JobParentMacHigh, 16, true, true},
    {Address::JobParentAddress, 32, true, true},
    {Address::JobParentPort, 16, true, true},
    {Address::JobParentJob, 8, true, true},
    {Address::JobParentWorker, 8, true, true},
    {Address::JobParentKeyLow, 32, false, true},
    {Address::JobParentKeyHigh, 32, false, true},
    {Address::JobEnabled, 1, true, false},
    {Address::JobParentJoined, 1, true, false},
    {Address::JobReason, 4, true, false},
    {Address::ReceiveLevel, 16, true, false},
    {Address::ReceivePeak, 16, true, false},
    {Address::DeliveryLevel, 17, true, false},
    {Address::DeliveryPeak, 17, true, false},
    {Address::DebugSlot, 15, true, true},
    {Address::DebugRound, 32, true, false},
    {Address::DebugSeenLow, 32, true, false},
    {Address::DebugSeenHigh, 32, true, false},
    {Address::DebugPhase, 2, true, false},
    {Address::DebugVersion0, 18, true, false},
    {Address::DebugVersion1, 18, true, false},
    {Address::JobOptions, 1, true, true},
    {Address::DebugWorker, 16, true, true},
    {Address::DebugPeerMacLow, 32, true, false},
    {Address::DebugPeerMacHigh, 17, true, false},
    {Address::DebugPeerAddress, 32, true, false},
    {Address::DebugPeerPort, 16, true, false},
    {Address::JobGroupKeyLow, 32, false, true},
    {Address::JobGroupKeyHigh, 32, false, true},
    {Address::TransmitControl, 1, true, true},
    {Address::TransmitState, 1, true, false},
}};

// Counters, in the order of their addresses.
enum class Counter : std::size_t {
    FramesIn,
    MacError,
    NotOurs,
    BadIp,
    BadVersion,
    BadLength,
    BadChecksum,
    BadType,
    BadJob,
    BadKey,
    BadWorker,
    BadAddress,
    BadSlot,
    BadPresent,
    Joins,
    Accepted,
    Duplicates,
    Stale,
    Premature,
    Probes,
    ReceiveOverflow,
    ParentResults,
    StateErrors,
    BlocksAccepted,
    Rounds,
    Conflicts,
    Overflows,
    Replays,
    ReplaysDropped,
    RepliesDropped,
    FramesOut,
    BytesIn,
    BytesOut,
    ResultsDropped,
    ResultsDiscarded,
    RefusalsDropped,
    FramesDiscarded,
    DataErrors,
};
inline constexpr std::size_t kCounters = 38;

}  // namespace afflux::registers
