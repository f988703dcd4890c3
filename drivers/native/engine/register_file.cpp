#include "engine/register_file.hpp"

#include <algorithm>

namespace afflux::engine {

static_assert(std::all_of(registers::kRegisters.begin(), registers::kRegisters.end(),
                          [](const registers::Register& known) {
                              return static_cast<std::uint32_t>(known.address) <
                                     registers::kCounterBase;
                          }));

const registers::Register* RegisterFile::find(std::uint32_t address) {
    for (const registers::Register& known : registers::kRegisters) {
        if (static_cast<std::uint32_t>(known.address) == address) return &known;
    }
    return nullptr;
}

std::uint32_t RegisterFile::read_counter(std::uint32_t address, const Counters& counters) {
    const std::uint32_t offset = address - registers::kCounterBase;
    if (offset % 8 == 4) return latched_;
    if (offset % 8 != 0) return 0;
    const std::uint64_t value = counters.at(offset / 8);
    latched_ = static_cast<std::uint32_t>(value >> 32);
    return static_cast<std::uint32_t>(value);
}

}  // namespace afflux::engine
