// C interface to one Verilated engine: whole frames in, whole frames out, one call for many frames.
//
// Compiled together with the Verilated sources into one shared library, which Python binds with
// ctypes. The engine's ports are named in docs/simulation.md. Nothing here knows what a frame means.
//
// BUS_BYTES is defined by the build: the width of both packet streams.

#include "VAffluxEngine.h"

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "model_shim.hpp"
#include "verilated.h"
#if VM_COVERAGE
#include "verilated_cov.h"
#endif
#if VM_TRACE
#include "waves.hpp"
#endif

static_assert(sizeof(VAffluxEngine::rx_data) == BUS_BYTES, "the model has another bus width");
static_assert(sizeof(VAffluxEngine::tx_data) == BUS_BYTES, "the model has another bus width");

namespace {

using Keep = std::remove_reference_t<decltype(VAffluxEngine::rx_keep)>;

// How frames are played. Layout known to shim_binding.py.
struct Stimulus {
    uint64_t seed;         // of the choices that the two shares leave open
    uint64_t ready_share;  // tx_ready is high in this share of the cycles, in units of 2**-32
    uint64_t gap_share;    // rx_valid is low in this share of the cycles, in units of 2**-32
    uint64_t max_cycles;   // an error if the call has not ended by then
    uint64_t drain;        // not 0: run on until the engine is idle
    uint64_t reset_at;     // not 0: after so many cycles, the reset pin is held for RESET_CYCLES
};

constexpr uint64_t RESET_CYCLES = 4;
constexpr uint64_t LONG_WAIT = 256;

// Layout known to shim_binding.py.
struct Statistics {
    uint64_t cycles;
    uint64_t frames_in;
    uint64_t frames_out;
    uint64_t beats_in;
    uint64_t beats_out;
    uint64_t receive_stalls;  // cycles with rx_valid high and rx_ready low
    uint64_t digest;          // of all output pins in all cycles
    uint64_t frames_cut;      // frames that ended with tx_error; they are not part of the output
    uint64_t long_waits;      // times that a beat on tx has waited for LONG_WAIT cycles in a row
};

// A write to a register amid the frames of a play. Layout known to shim_binding.py.
struct Write {
    uint64_t cycle;  // of the play: not before it
    uint32_t address;
    uint32_t value;
};

class Simulation {
public:
    Simulation() : m_model{&m_context, "engine"} {
#if VM_TRACE
        Waves::prepare(m_context);
#endif
        m_model.clk = 0;
        m_model.rst = 1;
        m_model.rx_valid = 0;
        m_model.tx_ready = 1;
        m_model.reg_write = 0;
        reset();
        m_statistics = Statistics{};
    }
    ~Simulation() { m_model.final(); }

    void reset() {
        m_model.rst = 1;
        for (int i = 0; i < 4; ++i) tick();
        m_model.rst = 0;
        tick();
    }

    uint32_t read(uint32_t address) {
        m_model.reg_address = address;
        tick();
        // The register that holds the answer has been written by that edge.
        return m_model.reg_read_data;
    }

    // Whether the engine has taken it.
    bool write(uint32_t address, uint32_t value) {
        m_model.reg_address = address;
        m_model.reg_write_data = value;
        m_model.reg_write = 1;
        tick();
        m_model.reg_write = 0;
        // The register that holds the answer has been written by that edge.
        return !m_model.reg_refused;
    }

    void run(uint64_t cycles) {
        m_model.tx_ready = 1;
        for (uint64_t i = 0; i < cycles; ++i) tick();
    }

    // Of the next play, in this order, one in a cycle.
    void schedule(const Write* writes, size_t count) { m_writes.assign(writes, writes + count); }

    void play(const uint8_t* data, const uint32_t* lengths, const uint8_t* errors, size_t frames,
              const Stimulus& stimulus) {
        Random random{stimulus.seed};
        const uint64_t first = m_statistics.cycles;
        const std::vector<Write> writes = std::move(m_writes);
        m_writes.clear();
        size_t written = 0;
        auto step = [&] {
            if (m_statistics.cycles - first >= stimulus.max_cycles) {
                m_model.rx_valid = 0;
                m_model.tx_ready = 1;
                throw std::runtime_error("not idle after " + std::to_string(stimulus.max_cycles)
                                         + " cycles");
            }
            const uint64_t now = m_statistics.cycles - first;
            m_model.rst = stimulus.reset_at && now >= stimulus.reset_at
                          && now < stimulus.reset_at + RESET_CYCLES;
            m_model.tx_ready
                = stimulus.ready_share >= ALWAYS || random.next() < stimulus.ready_share;
            const bool write = written < writes.size() && now >= writes[written].cycle;
            if (write) {
                m_model.reg_address = writes[written].address;
                m_model.reg_write_data = writes[written].value;
                ++written;
            }
            m_model.reg_write = write;
            const bool taken = tick();
            m_model.reg_write = 0;
            if (write && m_model.reg_refused && !m_model.rst) {
                throw std::runtime_error("a write amid frames was refused");
            }
            return taken;
        };
        for (size_t i = 0; i < frames; ++i) {
            const uint8_t* const end = data + lengths[i];
            while (data != end) {
                if (stimulus.gap_share) {
                    m_model.rx_valid = 0;
                    while (random.next() < stimulus.gap_share) step();
                }
                const size_t left = static_cast<size_t>(end - data);
                const size_t bytes = left < BUS_BYTES ? left : BUS_BYTES;
                // Ports are little-endian words, as is every host that this is built for.
                std::memcpy(&m_model.rx_data, data, bytes);
                m_model.rx_keep = keep_of(bytes);
                m_model.rx_last = bytes == left;
                m_model.rx_error = m_model.rx_last && errors && errors[i];
                m_model.rx_valid = 1;
                while (!step()) ++m_statistics.receive_stalls;
                ++m_statistics.beats_in;
                data += bytes;
            }
            ++m_statistics.frames_in;
        }
        m_model.rx_valid = 0;
        while (written < writes.size()) step();
        if (stimulus.drain) {
            do step();
            while (!m_model.idle);
            m_model.tx_ready = 1;
        }
        m_model.rst = 0;
    }

    void clear_output() {
        // A frame whose last beat is still to come stays.
        m_output.erase(m_output.begin(), m_output.begin() + static_cast<ptrdiff_t>(m_output_whole));
        m_output_whole = 0;
        m_output_lengths.clear();
    }

    const std::vector<uint32_t>& output_lengths() const { return m_output_lengths; }
    const uint8_t* output() const { return m_output.data(); }
    const Statistics& statistics() const { return m_statistics; }

#if VM_COVERAGE
    void write_coverage(const char* path) { m_context.coveragep()->write(path); }
#endif

#if VM_TRACE
    void open_waves(const char* path, uint64_t first, uint64_t end) {
        m_waves.open(m_model, path, first, end);
    }
    void close_waves() { m_waves.close(); }
#endif

private:
    static Keep keep_of(size_t bytes) {
        return static_cast<Keep>(~uint64_t{0} >> (64 - bytes));
    }

    // One clock cycle; whether a beat on rx was taken in it.
    bool tick() {
        // The inputs of this cycle reach the outputs before the edge, should a path be combinational.
        m_model.clk = 0;
        m_model.eval();
        const bool taken = m_model.rx_ready;
        sample_waves(false);
        digest_outputs();
        if (m_model.tx_valid && m_model.tx_ready) take_beat();
        m_waited = m_model.tx_valid && !m_model.tx_ready ? m_waited + 1 : 0;
        m_statistics.long_waits += m_waited == LONG_WAIT;
        m_model.clk = 1;
        m_model.eval();
        sample_waves(true);
        ++m_statistics.cycles;
        return taken;
    }

    void sample_waves([[maybe_unused]] bool risen) {
#if VM_TRACE
        m_waves.sample(m_statistics.cycles, risen);
#endif
    }

    // So that two simulators can be compared cycle by cycle for the price of one number.
    void digest_outputs() {
        uint32_t words[BUS_BYTES / 4];
        uint64_t sum = m_statistics.digest;
        // One step of FNV-1a, a word at a time.
        auto add = [&](uint64_t word) { sum = (sum ^ word) * 0x100000001B3u; };
        add(uint64_t{m_model.reg_read_data} << 32 | uint32_t{m_model.idle} << 2
            | uint32_t{m_model.rx_ready} << 1 | m_model.tx_valid);
        if (m_model.tx_valid) {
            add(m_model.tx_keep);
            add(m_model.tx_error);
            std::memcpy(words, &m_model.tx_data, BUS_BYTES);
            for (const uint32_t word : words) add(uint64_t{word} << 1 | m_model.tx_last);
        }
        m_statistics.digest = sum;
    }

    void take_beat() {
        const uint64_t keep = m_model.tx_keep;
        // Contiguous from bit 0, so that the number of ones is the number of bytes.
        if (keep & (keep + 1)) throw std::runtime_error("tx_keep is not contiguous");
        const auto bytes = static_cast<size_t>(__builtin_popcountll(keep));
        if (bytes != BUS_BYTES && !m_model.tx_last) {
            throw std::runtime_error("tx_keep is not all ones before the last beat");
        }
        const auto* const data = reinterpret_cast<const uint8_t*>(&m_model.tx_data);
        m_output.insert(m_output.end(), data, data + bytes);
        ++m_statistics.beats_out;
        if (m_model.tx_last && m_model.tx_error) {
            // A MAC spoils it, and nobody takes it.
            m_output.resize(m_output_whole);
            ++m_statistics.frames_cut;
        } else if (m_model.tx_last) {
            m_output_lengths.push_back(static_cast<uint32_t>(m_output.size() - m_output_whole));
            m_output_whole = m_output.size();
            ++m_statistics.frames_out;
        }
    }

    VerilatedContext m_context;
    VAffluxEngine m_model;
#if VM_TRACE
    Waves m_waves;  // ends before the model, whose signals it reads
#endif
    Statistics m_statistics{};
    std::vector<uint8_t> m_output;
    std::vector<uint32_t> m_output_lengths;
    std::vector<Write> m_writes;
    uint64_t m_waited = 0;  // cycles in a row in which a beat on tx has waited
    size_t m_output_whole = 0;  // bytes of m_output that belong to whole frames
};

using Handle = ModelHandle<Simulation>;

}  // namespace

extern "C" {

// Null if there is no memory for it.
Handle* afflux_open() { return Handle::open(); }

void afflux_close(Handle* handle) { delete handle; }

// Of the last function that returned -1.
const char* afflux_error(const Handle* handle) { return handle->error.c_str(); }

int afflux_read(Handle* handle, uint32_t address, uint32_t* value) {
    return handle->guarded([&](Simulation& engine) { *value = engine.read(address); });
}

// 1 if the engine refuses it.
int afflux_write(Handle* handle, uint32_t address, uint32_t value) {
    return handle->guarded([&](Simulation& engine) {
        if (engine.write(address, value)) return;
        throw Refused("write of register " + std::to_string(address) + " was refused");
    });
}

int afflux_reset(Handle* handle) {
    return handle->guarded([](Simulation& engine) { engine.reset(); });
}

int afflux_run(Handle* handle, uint64_t cycles) {
    return handle->guarded([&](Simulation& engine) { engine.run(cycles); });
}

// Writes to registers amid the next afflux_play.
void afflux_schedule(Handle* handle, const Write* writes, size_t count) {
    handle->model->schedule(writes, count);
}

// `data` holds the frames one after the other; `errors` may be null.
int afflux_play(Handle* handle, const uint8_t* data, const uint32_t* lengths, const uint8_t* errors,
                size_t frames, const Stimulus* stimulus) {
    return handle->guarded([&](Simulation& engine) {
        engine.play(data, lengths, errors, frames, *stimulus);
    });
}

// Whole frames sent since the last afflux_clear_output, by whichever function. The pointers hold
// until the next call that clocks the engine or clears its output.
size_t afflux_output(const Handle* handle, const uint8_t** data, const uint32_t** lengths) {
    *data = handle->model->output();
    *lengths = handle->model->output_lengths().data();
    return handle->model->output_lengths().size();
}

void afflux_clear_output(Handle* handle) { handle->model->clear_output(); }

void afflux_statistics(const Handle* handle, Statistics* statistics) {
    *statistics = handle->model->statistics();
}

#if VM_COVERAGE
// The coverage of this engine so far, as verilator_coverage reads it.
int afflux_write_coverage(Handle* handle, const char* path) {
    return handle->guarded([&](Simulation& engine) { engine.write_coverage(path); });
}
#endif

#if VM_TRACE
// From now on: the waves of the cycles from `first` to before `end`, counted as by the statistics.
int afflux_open_waves(Handle* handle, const char* path, uint64_t first, uint64_t end) {
    return handle->guarded([&](Simulation& engine) { engine.open_waves(path, first, end); });
}

// The file is complete then; it closes by itself when its window is behind.
int afflux_close_waves(Handle* handle) {
    return handle->guarded([](Simulation& engine) { engine.close_waves(); });
}
#endif

}  // extern "C"
