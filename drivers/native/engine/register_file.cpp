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
    if (offset % 4 != 0) return 0;
    return static_cast<std::uint32_t>(counters.at(offset / 8) >> (offset % 8 == 4 ? 32 : 0));
}

}  // namespace afflux::engine
