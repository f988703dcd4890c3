// CXXRTL's behaviour where an address is beyond the end of a memory whose size is not a power of
// two.
//
// By default it ends the process. It asks so of ports that are idle as well, which may have any
// address; so it is told not to. A read beyond the end then gives 0, and a write does nothing.

#pragma once

#define CXXRTL_ASSERT(x)
