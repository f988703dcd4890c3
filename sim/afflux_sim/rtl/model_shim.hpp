// Common parts of the shims of all models: errors that do not end the process, random numbers, and
// the object behind the C functions. Each shim includes it once, behind the header of its model.

#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>

// Verilator's own version of this ends the process: a training script, or a whole test run.
void vl_fatal(const char* file, int line, const char* /*scope*/, const char* message) {
    throw std::runtime_error(std::string(file ? file : "") + ":" + std::to_string(line) + ": "
                             + (message ? message : "fatal error"));
}

namespace {

// Shares are in units of 2**-32.
constexpr uint64_t ALWAYS = uint64_t{1} << 32;

// splitmix64 (Steele, Lea, Flood 2014): every seed is a good one, 0 included.
class Random {
public:
    explicit Random(uint64_t seed) : m_state{seed} {}
    uint32_t next() {
        uint64_t z = (m_state += 0x9E3779B97F4A7C15u);
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        return static_cast<uint32_t>((z ^ (z >> 31)) >> 32);
    }
    bool is_below(uint64_t share) { return share >= ALWAYS || (share && next() < share); }

private:
    uint64_t m_state;
};

// An access to a register that was answered with an error.
struct Refused : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// The object on which the C functions work: an error must not cross them as an exception.
template <typename Simulation>
struct ModelHandle {
    std::unique_ptr<Simulation> model;
    std::string error;  // of the last function that did not return 0

    // Null if the model cannot be made, as for want of memory.
    template <typename... Arguments>
    static ModelHandle* open(const Arguments&... arguments) {
        try {
            return new ModelHandle{std::make_unique<Simulation>(arguments...), {}};
        } catch (const std::exception&) {
            return nullptr;
        }
    }

    // Return 0, or 1 if a register refused an access, or -1 after any other error.
    template <typename Body>
    int guarded(Body body) {
        try {
            body(*model);
            return 0;
        } catch (const Refused& refusal) {
            error = refusal.what();
            return 1;
        } catch (const std::exception& failure) {
            error = failure.what();
            return -1;
        }
    }
};

}  // namespace
