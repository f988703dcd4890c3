// The engine's shim, around an engine with several network ports.
//
// It says by which ports each frame comes, and writes down by which each one leaves: what shim.cpp
// knows nothing of. The model stands in the shim as it is, but for the two pins beside its streams.

#include "VAffluxEngine.h"

#include <cstdint>
#include <deque>
#include <stdexcept>
#include <vector>

namespace {

// A model that drives rx_net_ports and watches tx_net_ports. The shim evaluates it twice in each
// cycle, with the clock low and with the clock high; it looks at the outputs in between.
class PortedModel : public VAffluxEngine {
public:
    PortedModel(VerilatedContext* context, const char* name) : VAffluxEngine{context, name} {
        newest = this;
    }

    // Of the frames of the next play, in order. `all` has a bit for each port there is.
    void announce(uint8_t all, const uint8_t* ports, size_t count) {
        m_all = all;
        m_coming.assign(ports, ports + count);
    }

    void eval() {
        if (!clk) {
            drive();
            VAffluxEngine::eval();
            watch();
        } else {
            VAffluxEngine::eval();
        }
    }

    std::vector<uint8_t> left;  // ports of each whole frame since the last `clear`

    // In this thread; the shim hides the model that it makes.
    static thread_local PortedModel* newest;

private:
    void drive() {
        if (rx_valid && !m_inside) {
            if (m_coming.empty()) throw std::logic_error("nobody has said how this frame comes");
            m_now = m_coming.front();
            m_coming.pop_front();
        }
        // Between beats the pins say anything; here, the ports by which the frame does not come.
        rx_net_ports = rx_valid ? m_now : static_cast<uint8_t>(m_all & ~m_now);
        // A beat is always taken.
        if (rx_valid) m_inside = !rx_last;
    }

    void watch() {
        const bool cut = tx_last && tx_error;
        if (m_waits && tx_valid && !rst && tx_net_ports != m_waiting) {
            throw std::runtime_error("tx_net_ports changes while a beat waits");
        }
        if (tx_valid && m_leaving && !cut && tx_net_ports != m_ports) {
            throw std::runtime_error("tx_net_ports changes within a frame");
        }
        if (tx_valid && !m_leaving && !tx_net_ports && !cut) {
            throw std::runtime_error("a frame leaves by no port");
        }
        m_waits = tx_valid && !tx_ready;
        m_waiting = tx_net_ports;
        if (!tx_valid || !tx_ready) return;
        if (!m_leaving) m_ports = tx_net_ports;
        m_leaving = !tx_last;
        if (tx_last && !tx_error) left.push_back(m_ports);
    }

    std::deque<uint8_t> m_coming;
    uint8_t m_all = 0, m_now = 0, m_ports = 0, m_waiting = 0;
    bool m_inside = false;   // the next beat on rx is not its frame's first
    bool m_leaving = false;  // likewise on tx
    bool m_waits = false;    // a beat on tx has waited in the cycle before
};

thread_local PortedModel* PortedModel::newest = nullptr;

}  // namespace

#define VAffluxEngine PortedModel
// Its include by that name is here already.
#include "../../../sim/afflux_sim/rtl/shim.cpp"
#undef VAffluxEngine

extern "C" {

// The model of the last afflux_open of this thread.
PortedModel* afflux_newest_model() { return PortedModel::newest; }

void afflux_announce_ports(PortedModel* model, uint8_t all, const uint8_t* ports, size_t count) {
    model->announce(all, ports, count);
}

// Ports of as many frames as afflux_output gives, until they are cleared.
size_t afflux_output_ports(const PortedModel* model, const uint8_t** ports) {
    *ports = model->left.data();
    return model->left.size();
}

void afflux_clear_ports(PortedModel* model) { model->left.clear(); }

}  // extern "C"
