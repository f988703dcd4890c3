// C interface to one Verilated node: whole frames in and out at its network port and its host port,
// registers over AXI4-Lite.
//
// Compiled together with the Verilated sources into one shared library, which Python binds with
// ctypes. The node's ports are named in docs/node.md. Nothing here knows what a frame means.
//
// BUS_BYTES is defined by the build: the width of all four packet streams.

#include "VAffluxNode.h"

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "model_shim.hpp"
#include "node_streams.hpp"
#include "verilated.h"

static_assert(sizeof(VAffluxNode::net_rx_data) == BUS_BYTES, "the model has another bus width");
static_assert(sizeof(VAffluxNode::host_rx_data) == BUS_BYTES, "the model has another bus width");

namespace {

constexpr uint32_t OKAY = 0;
// More than an access takes, which waits for nothing but its own turn.
constexpr int ACCESS_CYCLES = 1000;

// In which cycles beats are offered and taken. Layout known to verilated_node.py; shares are in
// units of 2**-32.
struct Pace {
    uint64_t seed;
    uint64_t network_gaps;   // cycles before each beat in which none is offered
    uint64_t host_gaps;
    uint64_t network_ready;  // cycles in which a beat is taken
    uint64_t host_ready;
    uint64_t reset_at;  // not a share: so many cycles after a play began, RESET_CYCLES of reset
};

constexpr uint64_t RESET_CYCLES = 4;
constexpr uint64_t LONG_WAIT = 256;

// One access to the register port: a write, a read, or both at once. Layout known to
// verilated_node.py.
struct Access {
    uint32_t write, write_address, write_data, strobes;
    uint32_t read, read_address;
    // Cycles by which each channel begins later: AW, W, AR valid, B and R ready.
    uint32_t delays[5];
    // The frames that came.
    uint32_t write_response, read_response, read_data;
};

// Layout known to verilated_node.py.
struct Statistics {
    uint64_t cycles;
    uint64_t network_stalls;  // cycles with net_rx_valid high and net_rx_ready low
    uint64_t host_stalls;     // the same of host_tx, which may stall
    uint64_t network_cut;     // frames that ended with net_tx_error; not part of the output
    uint64_t host_cut;        // the same of host_rx
    uint64_t digest;          // of all output pins in all cycles
    uint64_t long_waits;      // times that a beat on net_tx has waited for LONG_WAIT cycles in a row
};

class Simulation {
public:
    Simulation()
        : m_model{&m_context, "node"},
          m_from_network{m_model.net_rx_data,  m_model.net_rx_keep,  m_model.net_rx_last,
                         m_model.net_rx_error, m_model.net_rx_valid, m_model.net_rx_ready},
          m_from_host{m_model.host_tx_data,  m_model.host_tx_keep,  m_model.host_tx_last,
                      m_model.host_tx_error, m_model.host_tx_valid, m_model.host_tx_ready},
          m_to_network{m_model.net_tx_data,  m_model.net_tx_keep,  m_model.net_tx_last,
                       m_model.net_tx_error, m_model.net_tx_valid, m_model.net_tx_ready},
          m_to_host{m_model.host_rx_data,  m_model.host_rx_keep,  m_model.host_rx_last,
                    m_model.host_rx_error, m_model.host_rx_valid, m_model.host_rx_ready} {
        m_model.s_axil_awvalid = m_model.s_axil_wvalid = m_model.s_axil_arvalid = 0;
        m_model.s_axil_awprot = m_model.s_axil_arprot = 0;
        m_model.s_axil_bready = m_model.s_axil_rready = 1;
        m_model.s_axil_wstrb = 0xF;
        reset();
        m_statistics = Statistics{};
    }
    ~Simulation() { m_model.final(); }

    void reset() {
        // The beats that have left of frames that are cut off; an offered beat need not stay.
        m_to_network.forget();
        m_to_host.forget();
        open();
        m_model.rst = 1;
        for (int i = 0; i < 4; ++i) tick();
        m_model.rst = 0;
        tick();
        tick();
        m_to_network.forget();
        m_to_host.forget();
    }

    void set_pace(const Pace& pace) {
        m_pace = pace;
        m_random = Random{pace.seed};
    }

    uint32_t read(uint32_t address) {
        m_model.s_axil_araddr = static_cast<SData>(address);
        m_model.s_axil_arvalid = 1;
        for (int cycle = 0; cycle < ACCESS_CYCLES; ++cycle) {
            m_model.eval();
            const bool taken = m_model.s_axil_arready;
            const bool answered = m_model.s_axil_rvalid;
            const uint32_t value = m_model.s_axil_rdata;
            const uint32_t response = m_model.s_axil_rresp;
            tick();
            if (taken) m_model.s_axil_arvalid = 0;
            if (answered) return checked(response, "read", address), value;
        }
        throw std::runtime_error("no answer to a read of " + std::to_string(address));
    }

    void write(uint32_t address, uint32_t value) {
        m_model.s_axil_awaddr = static_cast<SData>(address);
        m_model.s_axil_wdata = value;
        m_model.s_axil_awvalid = m_model.s_axil_wvalid = 1;
        for (int cycle = 0; cycle < ACCESS_CYCLES; ++cycle) {
            m_model.eval();
            const bool address_taken = m_model.s_axil_awready;
            const bool data_taken = m_model.s_axil_wready;
            const bool answered = m_model.s_axil_bvalid;
            const uint32_t response = m_model.s_axil_bresp;
            tick();
            if (address_taken) m_model.s_axil_awvalid = 0;
            if (data_taken) m_model.s_axil_wvalid = 0;
            if (answered) return checked(response, "write", address);
        }
        throw std::runtime_error("no answer to a write of " + std::to_string(address));
    }

    // The channels as a master drives them that is late on some: all that is asked for at once.
    void access(Access& access) {
        bool addressed = !access.write, given = !access.write, asked = !access.read;
        bool written = !access.write, got = !access.read;
        const auto late = [&](int channel, uint32_t cycle) {
            return cycle < access.delays[channel];
        };
        for (uint32_t cycle = 0; !(addressed && given && asked && written && got); ++cycle) {
            if (cycle == ACCESS_CYCLES) throw std::runtime_error("no answer on the register port");
            m_model.s_axil_awvalid = !addressed && !late(0, cycle);
            m_model.s_axil_awaddr = static_cast<SData>(access.write_address);
            m_model.s_axil_wvalid = !given && !late(1, cycle);
            m_model.s_axil_wdata = access.write_data;
            m_model.s_axil_wstrb = static_cast<CData>(access.strobes);
            m_model.s_axil_arvalid = !asked && !late(2, cycle);
            m_model.s_axil_araddr = static_cast<SData>(access.read_address);
            m_model.s_axil_bready = !late(3, cycle);
            m_model.s_axil_rready = !late(4, cycle);
            m_model.eval();
            addressed |= m_model.s_axil_awvalid && m_model.s_axil_awready;
            given |= m_model.s_axil_wvalid && m_model.s_axil_wready;
            asked |= m_model.s_axil_arvalid && m_model.s_axil_arready;
            if (m_model.s_axil_bvalid && m_model.s_axil_bready) {
                if (written || !(addressed && given)) throw std::runtime_error("a stray write response");
                written = true;
                access.write_response = m_model.s_axil_bresp;
            }
            if (m_model.s_axil_rvalid && m_model.s_axil_rready) {
                if (got || !asked) throw std::runtime_error("a stray read response");
                got = true;
                access.read_response = m_model.s_axil_rresp;
                access.read_data = m_model.s_axil_rdata;
            }
            tick();
        }
        m_model.s_axil_awvalid = m_model.s_axil_wvalid = m_model.s_axil_arvalid = 0;
        m_model.s_axil_bready = m_model.s_axil_rready = 1;
        m_model.s_axil_wstrb = 0xF;
    }

    // Drive frames into both ports at once; with `drain`, run on until the node is idle.
    void play(Frames from_network, Frames from_host, uint64_t max_cycles, bool drain) {
        m_from_network.begin(from_network, &m_random, m_pace.network_gaps);
        m_from_host.begin(from_host, &m_random, m_pace.host_gaps);
        const uint64_t first = m_statistics.cycles, last = first + max_cycles;
        bool stepped = !drain;
        // A reset is held to its end, though its frames be short.
        while (!m_from_network.is_done() || !m_from_host.is_done() || m_model.rst
               || (drain && !(stepped && m_model.idle))) {
            if (m_statistics.cycles >= last) {
                m_from_network.abandon();
                m_from_host.abandon();
                open();
                throw std::runtime_error("not idle after " + std::to_string(max_cycles)
                                         + " cycles");
            }
            const uint64_t now = m_statistics.cycles - first;
            m_model.rst = m_pace.reset_at && now >= m_pace.reset_at
                          && now < m_pace.reset_at + RESET_CYCLES;
            if (m_model.rst) {
                // Only during a reset a beat may be taken back.
                m_to_network.release();
                m_to_host.release();
            }
            m_to_network.set_ready(m_random.is_below(m_pace.network_ready));
            m_to_host.set_ready(m_random.is_below(m_pace.host_ready));
            tick();
            stepped = true;
        }
        if (drain) open();
        m_model.rst = 0;
    }

    Sampler& output(bool host) { return host ? m_to_host : m_to_network; }
    Statistics statistics() const {
        Statistics now = m_statistics;
        now.network_cut = m_to_network.cut();
        now.host_cut = m_to_host.cut();
        return now;
    }

private:
    static void checked(uint32_t response, const char* what, uint32_t address) {
        if (response != OKAY) {
            throw Refused(std::string(what) + " of register " + std::to_string(address)
                          + " was answered with error " + std::to_string(response));
        }
    }

    void open() {
        m_to_network.set_ready(true);
        m_to_host.set_ready(true);
    }

    void tick() {
        // The inputs of this cycle reach the outputs before the edge.
        m_model.clk = 0;
        m_model.eval();
        digest_outputs();
        m_to_network.sample();
        m_to_host.sample();
        m_waited = m_model.net_tx_valid && !m_model.net_tx_ready ? m_waited + 1 : 0;
        m_statistics.long_waits += m_waited == LONG_WAIT;
        const bool network_taken = m_from_network.is_taken();
        const bool host_taken = m_from_host.is_taken();
        m_statistics.network_stalls += m_from_network.is_stalled();
        m_statistics.host_stalls += m_from_host.is_stalled();
        m_model.clk = 1;
        m_model.eval();
        ++m_statistics.cycles;
        advance(m_from_network, network_taken);
        advance(m_from_host, host_taken);
    }

    static void advance(Driver& driver, bool taken) {
        if (taken) {
            driver.next();
        } else if (!driver.is_done() && !driver.is_offering()) {
            driver.wait();
        }
    }

    // So that two simulators can be compared cycle by cycle for the price of one number.
    void digest_outputs() {
        uint64_t sum = m_statistics.digest;
        // One step of FNV-1a, a word at a time.
        auto add = [&](uint64_t word) { sum = (sum ^ word) * 0x100000001B3u; };
        add(uint64_t{m_model.s_axil_rdata} << 32 | uint32_t{m_model.s_axil_rresp} << 16
            | uint32_t{m_model.s_axil_bresp} << 12 | uint32_t{m_model.idle} << 7
            | uint32_t{m_model.net_rx_ready} << 6 | uint32_t{m_model.host_tx_ready} << 5
            | uint32_t{m_model.s_axil_awready} << 4 | uint32_t{m_model.s_axil_wready} << 3
            | uint32_t{m_model.s_axil_arready} << 2 | uint32_t{m_model.s_axil_bvalid} << 1
            | m_model.s_axil_rvalid);
        m_to_network.digest(add);
        m_to_host.digest(add);
        m_statistics.digest = sum;
    }

    VerilatedContext m_context;
    VAffluxNode m_model;
    Driver m_from_network, m_from_host;
    Sampler m_to_network, m_to_host;
    Statistics m_statistics{};
    uint64_t m_waited = 0;  // cycles in a row in which a beat on net_tx has waited
    Pace m_pace{0, 0, 0, ALWAYS, ALWAYS, 0};
    Random m_random{0};
};

using Handle = ModelHandle<Simulation>;

}  // namespace

extern "C" {

// Null if there is no memory for it.
Handle* afflux_node_open() { return Handle::open(); }

void afflux_node_close(Handle* handle) { delete handle; }

// Of the last function that returned -1.
const char* afflux_node_error(const Handle* handle) { return handle->error.c_str(); }

int afflux_node_read(Handle* handle, uint32_t address, uint32_t* value) {
    return handle->guarded([&](Simulation& node) { *value = node.read(address); });
}

int afflux_node_write(Handle* handle, uint32_t address, uint32_t value) {
    return handle->guarded([&](Simulation& node) { node.write(address, value); });
}

int afflux_node_reset(Handle* handle) {
    return handle->guarded([](Simulation& node) { node.reset(); });
}

// Of all later plays.
int afflux_node_pace(Handle* handle, const Pace* pace) {
    return handle->guarded([&](Simulation& node) { node.set_pace(*pace); });
}

int afflux_node_access(Handle* handle, Access* access) {
    return handle->guarded([&](Simulation& node) { node.access(*access); });
}

int afflux_node_play(Handle* handle, const Frames* from_network, const Frames* from_host,
                     uint64_t max_cycles, int drain) {
    return handle->guarded([&](Simulation& node) {
        node.play(*from_network, *from_host, max_cycles, drain != 0);
    });
}

// Whole frames sent to the network, or to the host, since the last afflux_node_clear_output. The
// pointers hold until the next call that clocks the node or clears its output.
size_t afflux_node_output(Handle* handle, int host, const uint8_t** data,
                          const uint32_t** lengths) {
    Sampler& output = handle->model->output(host != 0);
    *data = output.frames();
    *lengths = output.lengths().data();
    return output.lengths().size();
}

void afflux_node_clear_output(Handle* handle, int host) {
    handle->model->output(host != 0).clear();
}

void afflux_node_statistics(const Handle* handle, Statistics* statistics) {
    *statistics = handle->model->statistics();
}

}  // extern "C"
