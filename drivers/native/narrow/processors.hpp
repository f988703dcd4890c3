// Loops for whichever instructions the processor has.
#pragma once

// A function that is compiled for several instruction sets, of which the program takes the best
// that the processor has when it is loaded. That is too early for the sanitizers. Callees of such a
// function are compiled with it only if they are inlined.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(AFFLUX_SANITIZED)
#define AFFLUX_FOR_EACH_PROCESSOR \
    __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define AFFLUX_FOR_EACH_PROCESSOR
#endif
#define AFFLUX_INLINE inline __attribute__((always_inline))
