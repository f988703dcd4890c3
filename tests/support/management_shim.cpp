// C interface to a Verilated management, alone or with a node in front of it: frames in and out,
// the register bus as two functions of the caller, the entropy source, and what the pins showed.
//
// Bound by management_bench.py. BUS_BYTES is defined by the build.

#include "VManagementBench.h"

#include <cstdint>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "verilated.h"

static_assert(sizeof(VManagementBench::rx_data) == BUS_BYTES, "the model has another bus width");

void vl_fatal(const char* file, int line, const char* /*scope*/, const char* message) {
    throw std::runtime_error(std::string(file ? file : "") + ":" + std::to_string(line) + ": "
                             + (message ? message : "fatal error"));
}

namespace {

using Read = int (*)(uint32_t address, uint32_t* value);
using Write = int (*)(uint32_t address, uint32_t value);

enum class Entropy : uint32_t { RANDOM, LOW, HIGH };

// splitmix64 (Steele, Lea, Flood 2014).
struct Random {
    uint64_t state;
    uint64_t next() {
        uint64_t z = (state += 0x9E3779B97F4A7C15u);
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        return z ^ (z >> 31);
    }
    bool one_in(uint32_t n) { return n && next() % n == 0; }
};

struct Pins {
    uint64_t cycles, accepted, resets;
    uint32_t configured, fault;
};

template <typename Model>
class Bus {
public:
    Bus(Model& model, Random& random) : m_model{model}, m_random{random} {}
    void set(Read read, Write write) {
        m_read = read;
        m_write = write;
    }
    // Before an edge: what the master offers now is taken at it.
    void look() {
        if constexpr (requires { m_model.axil_arvalid; }) {
            m_reads = m_model.axil_arvalid && m_model.axil_arready;
            m_writes_at = m_model.axil_awvalid && m_model.axil_awready;
            m_writes_what = m_model.axil_wvalid && m_model.axil_wready;
            m_read_ends = m_model.axil_rvalid && m_model.axil_rready;
            m_write_ends = m_model.axil_bvalid && m_model.axil_bready;
            if (m_reads || m_writes_at) m_address = m_model.axil_araddr;
            if (m_writes_at) m_address = m_model.axil_awaddr;
            if (m_writes_what) {
                m_data = m_model.axil_wdata;
                if (m_model.axil_wstrb != 0xF) throw std::runtime_error("strobes are not all set");
            }
        }
    }
    void act() {
        if constexpr (requires { m_model.axil_arvalid; }) {
            if (m_read_ends) m_model.axil_rvalid = 0;
            if (m_write_ends) m_model.axil_bvalid = 0;
            if (m_reads) m_wait = 1 + m_random.next() % 6, m_reading = true;
            if (m_writes_at) m_has_address = true;
            if (m_writes_what) m_has_data = true;
            if (m_has_address && m_has_data) {
                m_has_address = m_has_data = false;
                m_wait = 1 + m_random.next() % 6;
                m_writing = true;
            }
            if (m_wait && --m_wait == 0) {
                if (m_reading) {
                    uint32_t value = 0;
                    m_model.axil_rresp = static_cast<CData>(m_read(m_address, &value));
                    m_model.axil_rdata = value;
                    m_model.axil_rvalid = 1;
                }
                if (m_writing) {
                    m_model.axil_bresp = static_cast<CData>(m_write(m_address, m_data));
                    m_model.axil_bvalid = 1;
                }
                m_reading = m_writing = false;
            }
            m_model.axil_arready = m_random.next() & 1;
            m_model.axil_awready = m_random.next() & 1;
            m_model.axil_wready = m_random.next() & 1;
        }
    }

private:
    Model& m_model;
    Random& m_random;
    Read m_read = nullptr;
    Write m_write = nullptr;
    bool m_reads = false, m_writes_at = false, m_writes_what = false;
    bool m_read_ends = false, m_write_ends = false;
    bool m_has_address = false, m_has_data = false, m_reading = false, m_writing = false;
    uint32_t m_address = 0, m_data = 0;
    uint64_t m_wait = 0;
};

class Simulation {
public:
    Simulation() : m_model{&m_context, "bench"}, m_bus{m_model, m_random} {}
    ~Simulation() { m_model.final(); }

    void set_bus(Read read, Write write) { m_bus.set(read, write); }
    void set_entropy(Entropy kind, uint64_t seed) {
        m_entropy = kind;
        m_source.state = seed;
    }
    void set_pace(uint64_t seed, uint32_t gaps, uint32_t stalls) {
        m_random.state = seed;
        m_gaps = gaps;
        m_stalls = stalls;
    }
    void reset() {
        m_model.rx_valid = 0;
        m_model.rst = 1;
        for (int i = 0; i < 4; ++i) tick();
        m_model.rst = 0;
        // The beginning of a frame that the reset has cut off stays: it must get an end.
        clear();
    }
    void clear() {
        m_output.erase(m_output.begin(), m_output.begin() + static_cast<ptrdiff_t>(m_whole));
        m_whole = 0;
        m_lengths.clear();
    }
    void run(const uint8_t* data, const uint32_t* lengths, const uint8_t* errors, size_t count,
             uint64_t after) {
        for (size_t n = 0; n < count; ++n) {
            for (uint32_t at = 0; at < lengths[n]; at += BUS_BYTES) {
                const uint32_t bytes = std::min<uint32_t>(BUS_BYTES, lengths[n] - at);
                while (m_random.one_in(m_gaps)) tick();
                m_model.rx_data = 0;
                std::memcpy(&m_model.rx_data, data, bytes);
                data += bytes;
                m_model.rx_keep = static_cast<CData>((1u << bytes) - 1);
                m_model.rx_last = at + bytes == lengths[n];
                m_model.rx_error = m_model.rx_last && errors[n];
                m_model.rx_valid = 1;
                for (int patience = 0; !tick(); ++patience) {
                    if (patience > 1'000'000) throw std::runtime_error("frames are not taken");
                }
                m_model.rx_valid = 0;
            }
        }
        for (uint64_t n = 0; n < after; ++n) tick();
    }

    std::string error;
    Pins pins{};
    std::vector<uint8_t> m_output;
    std::vector<uint32_t> m_lengths;
    size_t m_whole = 0;

private:
    // Returns whether the beat that was offered has been taken.
    bool tick() {
        switch (m_entropy) {
        case Entropy::RANDOM: m_model.entropy = m_source.next() & 1; break;
        case Entropy::LOW: m_model.entropy = 0; break;
        case Entropy::HIGH: m_model.entropy = 1; break;
        }
        m_model.tx_ready = !m_random.one_in(m_stalls);
        m_model.clk = 0;
        m_model.eval();
        const bool taken = m_model.rx_valid && m_model.rx_ready;
        sample();
        m_bus.look();
        pins.accepted += m_model.authenticated;
        pins.resets += m_model.reset;
        m_model.clk = 1;
        m_model.eval();
        m_bus.act();
        pins.configured = m_model.configured;
        pins.fault = m_model.fault;
        ++pins.cycles;
        return taken;
    }
    void sample() {
        if (m_held && !m_model.tx_valid && !m_model.rst) {
            throw std::runtime_error("a beat was taken back");
        }
        m_held = m_model.tx_valid && !m_model.tx_ready;
        if (!m_model.tx_valid || m_held) return;
        const uint32_t keep = m_model.tx_keep;
        const auto bytes = static_cast<size_t>(__builtin_popcount(keep));
        const auto* const data = reinterpret_cast<const uint8_t*>(&m_model.tx_data);
        m_output.insert(m_output.end(), data, data + bytes);
        if (!m_model.tx_last) return;
        if (m_model.tx_error) {
            m_output.resize(m_whole);
            return;
        }
        m_lengths.push_back(static_cast<uint32_t>(m_output.size() - m_whole));
        m_whole = m_output.size();
    }

    VerilatedContext m_context;
    VManagementBench m_model;
    Random m_random{1}, m_source{2};
    Bus<VManagementBench> m_bus;
    Entropy m_entropy = Entropy::RANDOM;
    uint32_t m_gaps = 0, m_stalls = 0;
    bool m_held = false;
};

template <typename Do>
int guarded(void* handle, Do what) {
    auto& simulation = *static_cast<Simulation*>(handle);
    try {
        what(simulation);
        return 0;
    } catch (const std::exception& error) {
        simulation.error = error.what();
        return 2;
    }
}

}  // namespace

extern "C" {

void* management_open() { return new Simulation; }
void management_close(void* handle) { delete static_cast<Simulation*>(handle); }
const char* management_error(void* handle) {
    return static_cast<Simulation*>(handle)->error.c_str();
}
void management_set_bus(void* handle, Read read, Write write) {
    static_cast<Simulation*>(handle)->set_bus(read, write);
}
void management_set_entropy(void* handle, uint32_t kind, uint64_t seed) {
    static_cast<Simulation*>(handle)->set_entropy(static_cast<Entropy>(kind), seed);
}
void management_set_pace(void* handle, uint64_t seed, uint32_t gaps, uint32_t stalls) {
    static_cast<Simulation*>(handle)->set_pace(seed, gaps, stalls);
}
int management_reset(void* handle) {
    return guarded(handle, [](Simulation& simulation) { simulation.reset(); });
}
int management_run(void* handle, const uint8_t* data, const uint32_t* lengths,
                   const uint8_t* errors, size_t count, uint64_t after) {
    return guarded(handle, [&](Simulation& simulation) {
        simulation.run(data, lengths, errors, count, after);
    });
}
void management_pins(void* handle, Pins* pins) { *pins = static_cast<Simulation*>(handle)->pins; }
size_t management_output(void* handle, const uint8_t** data, const uint32_t** lengths) {
    auto& simulation = *static_cast<Simulation*>(handle);
    *data = simulation.m_output.data();
    *lengths = simulation.m_lengths.data();
    return simulation.m_lengths.size();
}
size_t management_partial(void* handle) {
    auto& simulation = *static_cast<Simulation*>(handle);
    return simulation.m_output.size() - simulation.m_whole;
}
void management_clear_output(void* handle) {
    static_cast<Simulation*>(handle)->clear();
}
}
