// C interface to one Verilated board: whole frames in and out at the pins of its RGMII ports.
//
// The model is an appliance from RGMII pins to RGMII pins (`afflux_rgmii`) with one port or two. Its
// clocks, an RXC of each port among them, have nothing to do with one another. This shim is the
// PHY, the oscillators and the wire: it makes
// preamble, padding, check sequence and gap of each frame that goes in, a nibble at each edge of
// RXC, and takes them off each frame that comes out, where it checks them. Nothing here knows what
// a frame means.

#include "VAffluxBoard.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "model_shim.hpp"
#include "rgmii_wire.hpp"
#include "verilated.h"

namespace {

constexpr int RESET_CYCLES = 8;
constexpr size_t PORTS_MAX = 2;

// Periods in femtoseconds, and where each clock begins within its first. Layout known to
// verilated_board.py.
struct Clocks {
    uint64_t engine_fs, transmit_fs, receive_fs[PORTS_MAX];
    uint64_t engine_phase_fs, transmit_phase_fs, receive_phase_fs[PORTS_MAX];
    uint64_t seed;  // of the bits of no clock
};

// An oscillator. Edges are at whole femtoseconds; the two halves of a period may differ by one.
class Clock {
public:
    Clock(uint64_t period, uint64_t phase) : m_period{period}, m_next{phase + 1} {
        if (period < 2) throw std::runtime_error("a clock has no period");
    }
    uint64_t next() const { return m_next; }
    // Go over the next edge; return whether it rises.
    bool step() {
        m_high = !m_high;
        m_next += m_high ? m_period / 2 : m_period - m_period / 2;
        return m_high;
    }

private:
    uint64_t m_period, m_next;
    bool m_high = false;
};

// One port: pins of the model, and what is at their other end.
struct Port {
    CData &rx_clk, &rx_ctl, &rx_data, &tx_clk, &tx_ctl, &tx_data;
    Clock receive;
    Incoming incoming{};
    Outgoing outgoing{};
    Symbol symbol{STATUS, false, false};
    uint8_t low = 0;
    bool enabled = false;

    void show(uint8_t nibble, bool control) {
        rx_data = nibble & 0xF;
        rx_ctl = control;
    }
};

// A template, so that the pins of a second port need not be there.
template <typename Model>
std::vector<Port> ports_of(Model& model, const Clocks& clocks) {
    const auto clock = [&](size_t n) {
        return Clock{clocks.receive_fs[n], clocks.receive_phase_fs[n]};
    };
    std::vector<Port> ports;
    ports.push_back({model.rgmii_rx_clk, model.rgmii_rx_ctl, model.rgmii_rx_data,
                     model.rgmii_tx_clk, model.rgmii_tx_ctl, model.rgmii_tx_data, clock(0)});
    if constexpr (requires { model.rgmii_rx_clk_1; }) {
        ports.push_back({model.rgmii_rx_clk_1, model.rgmii_rx_ctl_1, model.rgmii_rx_data_1,
                         model.rgmii_tx_clk_1, model.rgmii_tx_ctl_1, model.rgmii_tx_data_1,
                         clock(1)});
    }
    return ports;
}

class Simulation {
public:
    // Settings are read from the file when the model is evaluated for the first time.
    Simulation(const Clocks& clocks, const char* settings_file)
        : m_context{with_settings(settings_file)},
          m_model{m_context.get(), "board"},
          m_ports{ports_of(m_model, clocks)},
          m_engine{clocks.engine_fs, clocks.engine_phase_fs},
          m_transmit{clocks.transmit_fs, clocks.transmit_phase_fs},
          m_random{clocks.seed} {
        m_model.clk = m_model.clk125 = 0;
        m_model.rst = 0;
        for (Port& port : m_ports) {
            port.rx_clk = 0;
            port.show(STATUS & 0xF, false);
        }
        m_model.eval();
    }
    ~Simulation() { m_model.final(); }

    Port& port(size_t number) {
        if (number >= m_ports.size()) throw std::runtime_error("the board has no such port");
        return m_ports[number];
    }

    void send(size_t number, const uint8_t* data, const uint32_t* lengths, const uint32_t* faults,
              const uint32_t* gaps, size_t count) {
        Incoming& incoming = port(number).incoming;
        for (size_t n = 0; n < count; ++n) {
            incoming.add(data, lengths[n], faults ? faults[n] : 0, gaps ? gaps[n] : GAP_MIN_BYTES);
            data += lengths[n];
        }
        m_statistics.frames_in += count;
    }

    // Let time pass: so much of it, or, with `until_quiet_fs`, until nothing has happened for as
    // long.
    void run(uint64_t duration_fs, uint64_t until_quiet_fs) {
        const uint64_t end = m_now + duration_fs;
        while (m_now < end) {
            step();
            if (until_quiet_fs && m_now - m_active > until_quiet_fs && !waiting()) break;
        }
    }

    Statistics statistics() const {
        Statistics now = m_statistics;
        now.least_gap = ~uint64_t{0};
        for (const Port& port : m_ports) port.outgoing.report(now);
        now.time_fs = m_now;
        now.quiet_fs = m_now - m_active;
        now.waiting = waiting();
        now.pins = static_cast<uint64_t>(m_model.configured | m_model.fault << 1
                                         | m_model.link << 2);
        return now;
    }

private:
    static std::unique_ptr<VerilatedContext> with_settings(const char* file) {
        auto context = std::make_unique<VerilatedContext>();
        const std::string argument = std::string{"+afflux_settings="} + file;
        const char* arguments[] = {"board", argument.c_str()};
        context->commandArgs(2, arguments);
        return context;
    }

    size_t waiting() const {
        size_t bytes = 0;
        for (const Port& port : m_ports) bytes += port.incoming.waiting();
        return bytes;
    }

    void step() {
        const uint64_t engine = m_engine.next(), transmit = m_transmit.next();
        Port* first = &m_ports.front();
        for (Port& port : m_ports) {
            if (port.receive.next() < first->receive.next()) first = &port;
        }
        const uint64_t receive = first->receive.next();
        if (receive <= transmit && receive <= engine) {
            m_now = receive;
            step_receive(*first);
        } else if (transmit <= engine) {
            m_now = transmit;
            step_transmit();
        } else {
            m_now = engine;
            step_engine();
        }
    }

    // Pins and clock change in one evaluation: inputs settle before edges are looked for, so this
    // is as if the pins had changed some time before the edge.
    void step_receive(Port& port) {
        if (port.receive.step()) {
            port.symbol = port.incoming.next();
            if (port.symbol.valid) m_active = m_now;
            m_statistics.receive_cycles += &port == &m_ports.front();
            m_statistics.bytes_in += port.symbol.valid;
            m_statistics.overflowed += m_model.overflowed;
            port.show(port.symbol.data, port.symbol.valid);
            port.rx_clk = 1;
        } else {
            port.show(static_cast<uint8_t>(port.symbol.data >> 4),
                      port.symbol.valid != port.symbol.error);
            port.rx_clk = 0;
        }
        m_model.eval();
    }

    void step_transmit() {
        if (m_transmit.step()) {
            ++m_statistics.transmit_cycles;
            m_model.clk125 = 1;
            m_model.eval();
            m_enabled = false;
            for (Port& port : m_ports) {
                port.low = port.tx_data;
                port.enabled = port.tx_ctl;
                m_enabled |= port.enabled;
                if (!port.tx_clk) throw std::runtime_error("TXC is low where it rises");
            }
            return;
        }
        m_model.clk125 = 0;
        // While nothing is sent, the next edge of RXC is early enough for the model to see this.
        if (m_enabled) {
            m_model.eval();
            m_active = m_now;
        }
        for (Port& port : m_ports) {
            Symbol symbol{0, false, false};
            if (port.enabled) {
                symbol.data = static_cast<uint8_t>(port.low | port.tx_data << 4);
                symbol.valid = true;
                symbol.error = !port.tx_ctl;
            }
            port.outgoing.take(symbol);
        }
    }

    void step_engine() {
        if (!m_engine.step()) {
            // No register takes this edge; the next evaluation shows it to the model.
            m_model.clk = 0;
            return;
        }
        ++m_statistics.engine_cycles;
        m_model.entropy = m_random.next() & 1;
        m_model.clk = 1;
        m_model.eval();
        if (m_model.authenticated) m_active = m_now;
        if (m_model.reset) {
            ++m_statistics.resets;
            m_reset = RESET_CYCLES;
        }
        m_model.rst = m_reset > 0;
        m_reset -= m_reset > 0;
        if (m_model.rst) m_active = m_now;
    }

    std::unique_ptr<VerilatedContext> m_context;
    VAffluxBoard m_model;
    std::vector<Port> m_ports;
    Clock m_engine, m_transmit;
    Random m_random;
    Statistics m_statistics{};
    bool m_enabled = false;
    int m_reset = 0;
    uint64_t m_now = 0, m_active = 0;
};

using Handle = ModelHandle<Simulation>;

}  // namespace

extern "C" {

// Null if there is no memory for it.
Handle* afflux_board_open(const Clocks* clocks, const char* settings_file) {
    return Handle::open(*clocks, settings_file);
}

void afflux_board_close(Handle* handle) { delete handle; }

// Of the last function that returned -1.
const char* afflux_board_error(const Handle* handle) { return handle->error.c_str(); }

// Frames to go in by a port, behind those that wait there. `faults` and `gaps` may be null.
int afflux_board_send(Handle* handle, size_t port, const uint8_t* data, const uint32_t* lengths,
                      const uint32_t* faults, const uint32_t* gaps, size_t count) {
    return handle->guarded([&](Simulation& board) {
        board.send(port, data, lengths, faults, gaps, count);
    });
}

// The report of a port's PHY.
int afflux_board_set_link(Handle* handle, size_t port, int link) {
    return handle->guarded([&](Simulation& board) { board.port(port).incoming.set_link(link); });
}

int afflux_board_run(Handle* handle, uint64_t duration_fs, uint64_t until_quiet_fs) {
    return handle->guarded([&](Simulation& board) { board.run(duration_fs, until_quiet_fs); });
}

// Whole good frames that have come out by a port, which must be there, since the last
// afflux_board_clear_output. The pointers hold until the next call that lets time pass or clears
// them.
size_t afflux_board_output(Handle* handle, size_t port, const uint8_t** data,
                           const uint32_t** lengths) {
    Outgoing& out = handle->model->port(port).outgoing;
    *data = out.output().data();
    *lengths = out.lengths().data();
    return out.lengths().size();
}

void afflux_board_clear_output(Handle* handle, size_t port) {
    handle->model->port(port).outgoing.clear();
}

void afflux_board_statistics(const Handle* handle, Statistics* statistics) {
    *statistics = handle->model->statistics();
}

}  // extern "C"
