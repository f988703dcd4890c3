// The whole adapter in one translation unit: torch's headers are most of the work of compiling it.
#include "backend.cpp"
#include "collectives.cpp"
#include "control.cpp"
#include "module.cpp"
#include "negated.cpp"
#include "sums.cpp"
#include "transfers.cpp"
#include "works.cpp"
