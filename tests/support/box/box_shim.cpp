// C interface to one Verilated box_250mhz: beats at all its streams, resets, register accesses.
//
// Compiled with the Verilated sources into one library, which simulated_box.py binds with ctypes.
// One cycle is one of axis_aclk; axil_aclk, half as fast, rises with every second one.

#include "VBox.h"

#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "verilated.h"

// Verilator's own version of this ends the process.
void vl_fatal(const char* file, int line, const char* /*scope*/, const char* message) {
    throw std::runtime_error(std::string(file ? file : "") + ":" + std::to_string(line) + ": "
                             + (message ? message : "fatal error"));
}

namespace {

constexpr size_t PORTS = sizeof(VBox::s_axis_adap_rx_250mhz_tdata) / BUS_BYTES;
constexpr size_t HOSTS = sizeof(VBox::s_axis_qdma_h2c_tdata) / BUS_BYTES;
// More than an access takes, a reset amid it included.
constexpr int ACCESS_CYCLES = 4000;

// Layout known to simulated_box.py.
struct Beat {
    uint8_t data[BUS_BYTES];
    uint8_t keep[BUS_BYTES / 8];
    uint16_t size, src, dst;
    uint16_t last;
    uint64_t cycle;

    bool operator==(const Beat& other) const {
        return !std::memcmp(data, other.data, sizeof data)
               && !std::memcmp(keep, other.keep, sizeof keep) && size == other.size
               && src == other.src && dst == other.dst && last == other.last;
    }
};

// splitmix64 (Steele, Lea, Flood 2014).
class Random {
public:
    bool is_below(uint64_t share) {
        uint64_t z = (m_state += 0x9E3779B97F4A7C15u);
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        return ((z ^ (z >> 31)) >> 32) < share;
    }
    uint64_t m_state = 1;
};

// The pins of one stream: part `index` of the flat vectors.
struct Pins {
    uint8_t *valid, *data, *keep, *last, *size, *src, *dst, *ready;
    size_t index;

    bool bit(const uint8_t* pins) const { return *pins >> index & 1; }
    void set_bit(uint8_t* pins, bool value) const {
        *pins = static_cast<uint8_t>((*pins & ~(1 << index)) | value << index);
    }
    Beat get() const {
        Beat beat{};
        std::memcpy(beat.data, data + BUS_BYTES * index, BUS_BYTES);
        std::memcpy(beat.keep, keep + BUS_BYTES / 8 * index, BUS_BYTES / 8);
        std::memcpy(&beat.size, size + 2 * index, 2);
        std::memcpy(&beat.src, src + 2 * index, 2);
        std::memcpy(&beat.dst, dst + 2 * index, 2);
        beat.last = bit(last);
        return beat;
    }
    void set(const Beat& beat) const {
        std::memcpy(data + BUS_BYTES * index, beat.data, BUS_BYTES);
        std::memcpy(keep + BUS_BYTES / 8 * index, beat.keep, BUS_BYTES / 8);
        std::memcpy(size + 2 * index, &beat.size, 2);
        std::memcpy(src + 2 * index, &beat.src, 2);
        std::memcpy(dst + 2 * index, &beat.dst, 2);
        set_bit(last, beat.last);
    }
};

#define PINS(model, name, index)                                                                \
    Pins {                                                                                      \
        reinterpret_cast<uint8_t*>(&(model).name##_tvalid),                                     \
            reinterpret_cast<uint8_t*>(&(model).name##_tdata),                                  \
            reinterpret_cast<uint8_t*>(&(model).name##_tkeep),                                  \
            reinterpret_cast<uint8_t*>(&(model).name##_tlast),                                  \
            reinterpret_cast<uint8_t*>(&(model).name##_tuser_size),                             \
            reinterpret_cast<uint8_t*>(&(model).name##_tuser_src),                              \
            reinterpret_cast<uint8_t*>(&(model).name##_tuser_dst),                              \
            reinterpret_cast<uint8_t*>(&(model).name##_tready), index                           \
    }

// The driver of a stream into the box. With a depth, frames arrive at their own pace in a buffer of
// so many beats, as those of the receive adapter; one that does not fit is dropped whole.
struct Source {
    Pins pins;
    std::vector<Beat> beats{};
    size_t arrived = 0;
    std::deque<Beat> buffer{};
    size_t depth = 0;
    size_t whole = 0;  // beats of the buffer that are of whole frames
    bool dropping = false;
    uint64_t gaps = 0, stalls = 0, dropped = 0;
    bool offering = false;

    void arrive(Random& random) {
        if (arrived == beats.size() || (gaps && random.is_below(gaps))) return;
        if (!depth && buffer.size() > 1) return;
        const Beat& beat = beats[arrived++];
        if (depth && buffer.size() == depth && !dropping) {
            dropping = true;
            buffer.resize(whole);
        }
        if (!dropping) buffer.push_back(beat);
        if (beat.last || !depth) whole = buffer.size();
        if (beat.last) {
            dropped += dropping;
            dropping = false;
        }
        if (arrived == beats.size()) {
            beats.clear();
            arrived = 0;
        }
    }
    void offer() {
        offering = whole > 0;
        pins.set_bit(pins.valid, offering);
        if (offering) pins.set(buffer.front());
    }
    void take() {
        if (!offering) return;
        if (pins.bit(pins.ready)) {
            buffer.pop_front();
            --whole;
        } else {
            ++stalls;
        }
    }
    bool is_empty() const { return beats.empty() && buffer.empty(); }
};

// The receiver of a stream out of the box.
struct Sink {
    Pins pins;
    std::vector<Beat> beats{};
    uint64_t share = uint64_t{1} << 32;
    bool waited = false, inside = false;
    Beat before{};

    void offer(Random& random) { pins.set_bit(pins.ready, random.is_below(share)); }
    bool take(uint64_t cycle) {
        const bool valid = pins.bit(pins.valid), ready = pins.bit(pins.ready);
        if (waited && !valid) throw std::runtime_error("a beat that was offered has disappeared");
        if (!valid) return false;
        Beat beat = pins.get();
        if (waited && !(beat == before))
            throw std::runtime_error("a beat that was offered has changed");
        if (inside && beat.dst
            && (beat.size != before.size || beat.src != before.src || beat.dst != before.dst))
            throw std::runtime_error("size, src or dst has changed within a frame");
        before = beat;
        waited = !ready;
        if (!ready) return false;
        inside = !beat.last;
        beat.cycle = cycle;
        beats.push_back(beat);
        return true;
    }
};

class Box {
public:
    Box() : m_context{std::make_unique<VerilatedContext>()}, m_model{m_context.get()} {
        for (size_t n = 0; n < PORTS; ++n)
            m_sources.push_back({PINS(m_model, s_axis_adap_rx_250mhz, n)});
        for (size_t n = 0; n < HOSTS; ++n)
            m_sources.push_back({PINS(m_model, s_axis_qdma_h2c, n)});
        for (size_t n = 0; n < PORTS; ++n)
            m_sinks.push_back({PINS(m_model, m_axis_adap_tx_250mhz, n)});
        for (size_t n = 0; n < HOSTS; ++n)
            m_sinks.push_back({PINS(m_model, m_axis_qdma_c2h, n)});
        m_model.mod_rstn = 0xFFFF;
        m_model.box_rstn = 1;
        m_model.s_axil_bready = m_model.s_axil_rready = 0;
    }

    // Returns whether a beat has moved.
    bool cycle() {
        const bool slow = m_cycles % 2 == 0;
        for (auto& source : m_sources) {
            source.arrive(m_random);
            source.offer();
        }
        for (auto& sink : m_sinks) sink.offer(m_random);
        m_model.eval();
        bool moved = false;
        for (auto& sink : m_sinks) moved |= sink.take(m_cycles);
        for (auto& source : m_sources) {
            source.take();
            moved |= !source.is_empty();
        }
        if (slow) sample_registers();
        m_model.axis_aclk = 1;
        m_model.axil_aclk = slow;
        m_model.eval();
        // The slow clock is high for two cycles of the fast one, and falls with it.
        m_model.axis_aclk = 0;
        if (!slow) m_model.axil_aclk = 0;
        if (slow) drive_registers();
        m_model.eval();
        ++m_cycles;
        return moved;
    }

    void run(uint64_t cycles, uint64_t quiet) {
        uint64_t still = 0;
        for (uint64_t n = 0; n < cycles; ++n) {
            still = cycle() ? 0 : still + 1;
            if (quiet && still >= quiet) return;
        }
        if (quiet) throw std::runtime_error("the box does not come to rest");
    }

    void pulse(uint16_t modules, bool box) {
        while (m_cycles % 2) cycle();
        m_model.mod_rstn = static_cast<uint16_t>(~modules);
        m_model.box_rstn = !box;
        cycle();
        m_model.mod_rstn = 0xFFFF;
        m_model.box_rstn = 1;
        cycle();
        for (auto& sink : m_sinks)
            if (box) sink.waited = sink.inside = false;
    }

    // Begins an access, or waits for its end.
    void ask(bool write, uint32_t address, uint32_t data) {
        m_aw = m_w = write;
        m_ar = !write;
        m_busy = true;
        m_model.s_axil_awaddr = m_model.s_axil_araddr = address;
        m_model.s_axil_wdata = data;
        m_model.s_axil_awvalid = m_aw;
        m_model.s_axil_wvalid = m_w;
        m_model.s_axil_arvalid = m_ar;
        m_model.s_axil_bready = m_model.s_axil_rready = 1;
    }
    uint32_t answer(uint32_t* data) {
        for (int n = 0; m_busy; ++n) {
            if (n == ACCESS_CYCLES) throw std::runtime_error("no answer to a register access");
            cycle();
        }
        *data = m_data;
        return m_response;
    }

    VBox& model() { return m_model; }
    std::vector<Source> m_sources;
    std::vector<Sink> m_sinks;
    Random m_random;
    uint64_t m_cycles = 0;
    std::string m_error;

private:
    // The register port at the fast clock's edge.
    void sample_registers() {
        if (!m_busy) return;
        if (m_aw && m_model.s_axil_awready) m_aw = false;
        if (m_w && m_model.s_axil_wready) m_w = false;
        if (m_ar && m_model.s_axil_arready) m_ar = false;
        if (m_model.s_axil_bvalid && m_model.s_axil_bready) {
            m_response = m_model.s_axil_bresp;
            m_data = 0;
            m_busy = false;
        }
        if (m_model.s_axil_rvalid && m_model.s_axil_rready) {
            m_response = m_model.s_axil_rresp;
            m_data = m_model.s_axil_rdata;
            m_busy = false;
        }
    }
    void drive_registers() {
        m_model.s_axil_awvalid = m_aw;
        m_model.s_axil_wvalid = m_w;
        m_model.s_axil_arvalid = m_ar;
        if (!m_busy) m_model.s_axil_bready = m_model.s_axil_rready = 0;
    }

    std::unique_ptr<VerilatedContext> m_context;
    VBox m_model;
    bool m_aw = false, m_w = false, m_ar = false, m_busy = false;
    uint32_t m_response = 0, m_data = 0;
};

template <typename F>
int guarded(Box* box, F&& action) {
    try {
        action();
        return 0;
    } catch (const std::exception& error) {
        box->m_error = error.what();
        return 2;
    }
}

}  // namespace

extern "C" {

void* box_open() { return new (std::nothrow) Box; }
void box_close(Box* box) { delete box; }
const char* box_error(Box* box) { return box->m_error.c_str(); }
void box_seed(Box* box, uint64_t seed) { box->m_random.m_state = seed; }

void box_feed(Box* box, size_t stream, const Beat* beats, size_t count) {
    auto& source = box->m_sources.at(stream);
    source.beats.insert(source.beats.end(), beats, beats + count);
}
void box_source(Box* box, size_t stream, uint64_t gaps, size_t depth) {
    box->m_sources.at(stream).gaps = gaps;
    box->m_sources.at(stream).depth = depth;
}
void box_sink(Box* box, size_t stream, uint64_t share) { box->m_sinks.at(stream).share = share; }

int box_run(Box* box, uint64_t cycles, uint64_t quiet) {
    return guarded(box, [&] { box->run(cycles, quiet); });
}
int box_pulse(Box* box, uint32_t modules, uint32_t whole) {
    return guarded(box, [&] { box->pulse(static_cast<uint16_t>(modules), whole); });
}
int box_ask(Box* box, uint32_t write, uint32_t address, uint32_t data) {
    return guarded(box, [&] { box->ask(write, address, data); });
}
int box_answer(Box* box, uint32_t* response, uint32_t* data) {
    return guarded(box, [&] { *response = box->answer(data); });
}
size_t box_output(Box* box, size_t stream, const Beat** beats) {
    auto& sink = box->m_sinks.at(stream);
    *beats = sink.beats.data();
    return sink.beats.size();
}
void box_clear_output(Box* box, size_t stream) { box->m_sinks.at(stream).beats.clear(); }
uint64_t box_stalls(Box* box, size_t stream) { return box->m_sources.at(stream).stalls; }
uint64_t box_dropped(Box* box, size_t stream) { return box->m_sources.at(stream).dropped; }
uint64_t box_cycles(Box* box) { return box->m_cycles; }
uint32_t box_done(Box* box) {
    return box->model().mod_rst_done | static_cast<uint32_t>(box->model().box_rst_done) << 16;
}
}
