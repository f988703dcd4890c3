#include "worker/errors.hpp"

namespace afflux::worker {

std::string hexadecimal(std::uint32_t value, int digits) {
    std::string text = "0x";
    for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) {
        text += "0123456789abcdef"[value >> shift & 15];
    }
    return text;
}

}  // namespace afflux::worker
