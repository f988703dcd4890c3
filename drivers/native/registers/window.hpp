// Registers of 32 bits in a window of memory, as a PCIe device shows its own: each access reaches
// the bus exactly once, in the order of the program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace afflux::registers {

// `volatile`, because nothing else promises it: a compiler may neither split, repeat, merge nor
// leave out such an access. Copies of memory may go byte by byte, and a read may be made twice.
using Word = volatile std::uint32_t;

// Throws std::out_of_range if a window of `size` bytes has no register at `address`, or if that is
// not aligned: hardware would see two accesses. Both are in bytes.
inline void check(std::size_t size, std::size_t address) {
    if (address % sizeof(Word) != 0 || size < sizeof(Word) || address > size - sizeof(Word)) {
        throw std::out_of_range("no 32-bit register at " + std::to_string(address) +
                                " in a window of " + std::to_string(size) + " bytes");
    }
}

inline std::uint32_t read(const void* window, std::size_t size, std::size_t address) {
    check(size, address);
    return *reinterpret_cast<const Word*>(static_cast<const std::byte*>(window) + address);
}

inline void write(void* window, std::size_t size, std::size_t address, std::uint32_t value) {
    check(size, address);
    *reinterpret_cast<Word*>(static_cast<std::byte*>(window) + address) = value;
}

}  // namespace afflux::registers
