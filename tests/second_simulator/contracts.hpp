// What CXXRTL does where an address is beyond the end of a memory whose size is no power of two.
//
// A read is let be: it gives 0, as in Verilator, and if it mattered the two would differ elsewhere
// or agree by chance only; an idle read port may have any address. A write is an error.

#pragma once

#include <cstring>
#include <stdexcept>

inline void check_contract(bool kept, const char* what) {
    if (!kept && std::strstr(what, "write")) throw std::runtime_error(what);
}

#define CXXRTL_ASSERT(x) check_contract(static_cast<bool>(x), #x)
