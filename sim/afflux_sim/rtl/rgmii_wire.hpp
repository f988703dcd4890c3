// The wire at an RGMII port: bytes as GMII has them, with preamble, check sequence and gap.
//
// Nothing here knows what a frame means.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr uint8_t PREAMBLE = 0x55, DELIMITER = 0xD5;
constexpr size_t PREAMBLE_BYTES = 7, FCS_BYTES = 4, FRAME_MIN_BYTES = 60, GAP_MIN_BYTES = 12;
// In-band status between frames: link up, 125 MHz, full duplex; and no link.
constexpr uint8_t STATUS = 0xDD, NO_LINK = 0xCC;

// The faults of a frame on its way in. Known to verilated_board.py.
enum Fault : uint32_t { WRONG_FCS = 1, SYMBOL_ERROR = 2, NO_PADDING = 4 };

// Of all ports together. Layout known to verilated_board.py.
struct Statistics {
    uint64_t time_fs;
    uint64_t engine_cycles, transmit_cycles, receive_cycles;  // the last of the first port
    uint64_t frames_in, frames_out;
    uint64_t bytes_in, bytes_out;  // with preamble, check sequence and gap; out without gaps
    uint64_t spoilt;       // frames out that were spoilt on purpose: TX_ER, or a wrong check sequence
    uint64_t malformed;    // frames out that no MAC may send: preamble, shortest length
    uint64_t least_gap;    // bytes between frames out
    uint64_t overflowed;   // cycles of RXC in which a frame was torn before the engine
    uint64_t resets;       // that the controller has ordered
    uint64_t quiet_fs;     // time since a frame went in, or came out, or a request was carried out
    uint64_t waiting;      // bytes that are still to go in
    uint64_t pins;         // bit 0 configured, 1 fault, 2 link
};

// IEEE 802.3, clause 3.2.9, bit by bit in a table.
class Crc {
public:
    Crc() {
        for (uint32_t n = 0; n < 256; ++n) {
            uint32_t sum = n;
            for (int bit = 0; bit < 8; ++bit) sum = sum >> 1 ^ (sum & 1 ? 0xEDB88320u : 0);
            m_table[n] = sum;
        }
    }
    uint32_t of(const uint8_t* data, size_t length) const {
        uint32_t sum = ~0u;
        for (size_t n = 0; n < length; ++n) sum = sum >> 8 ^ m_table[(sum ^ data[n]) & 0xFF];
        return ~sum;
    }

private:
    std::array<uint32_t, 256> m_table;
};

const Crc CRC;

// A byte as GMII has it.
struct Symbol {
    uint8_t data;
    bool valid, error;
};

// The wire into the board: what the PHY shows in each cycle of RXC.
class Incoming {
public:
    void add(const uint8_t* data, size_t length, uint32_t fault, uint32_t gap) {
        std::vector<uint8_t> frame(data, data + length);
        if (!(fault & NO_PADDING) && length < FRAME_MIN_BYTES) frame.resize(FRAME_MIN_BYTES);
        uint32_t sum = CRC.of(frame.data(), frame.size());
        if (fault & WRONG_FCS) sum ^= 1;
        for (int n = 0; n < 4; ++n) frame.push_back(static_cast<uint8_t>(sum >> 8 * n));
        for (size_t n = 0; n < PREAMBLE_BYTES; ++n) m_bytes.push_back({PREAMBLE, true, false});
        m_bytes.push_back({DELIMITER, true, false});
        for (size_t n = 0; n < frame.size(); ++n) {
            m_bytes.push_back({frame[n], true, (fault & SYMBOL_ERROR) && n == frame.size() / 2});
        }
        for (uint32_t n = 0; n < gap; ++n) m_bytes.push_back({STATUS, false, false});
    }
    Symbol next() {
        if (!m_link) return {NO_LINK, false, false};
        if (m_bytes.empty()) return {STATUS, false, false};
        const Symbol symbol = m_bytes.front();
        m_bytes.pop_front();
        return symbol;
    }
    // Without a link nothing goes in: what waits goes on waiting.
    void set_link(bool link) { m_link = link; }
    size_t waiting() const { return m_bytes.size(); }

private:
    std::deque<Symbol> m_bytes;
    bool m_link = true;
};

// The wire out of the board.
class Outgoing {
public:
    // One cycle of TXC; whether a frame ended with it.
    bool take(Symbol symbol) {
        if (symbol.valid) {
            if (m_frame.empty()) {
                if (m_any) m_least_gap = std::min(m_least_gap, m_gap);
                m_any = true;
            }
            m_spoilt |= symbol.error;
            m_frame.push_back(symbol.data);
            return false;
        }
        ++m_gap;
        if (m_frame.empty()) return false;
        m_gap = 1;
        finish();
        m_frame.clear();
        m_spoilt = false;
        return true;
    }
    void clear() {
        m_output.clear();
        m_lengths.clear();
    }
    const std::vector<uint8_t>& output() const { return m_output; }
    const std::vector<uint32_t>& lengths() const { return m_lengths; }
    void report(Statistics& statistics) const {
        statistics.frames_out += m_frames;
        statistics.bytes_out += m_bytes;
        statistics.spoilt += m_frames_spoilt;
        statistics.malformed += m_malformed;
        statistics.least_gap = std::min(statistics.least_gap, m_least_gap);
    }

private:
    void finish() {
        ++m_frames;
        m_bytes += m_frame.size();
        const size_t head = PREAMBLE_BYTES + 1, least = head + FRAME_MIN_BYTES + FCS_BYTES;
        bool proper = m_frame.size() >= least && m_frame[PREAMBLE_BYTES] == DELIMITER;
        for (size_t n = 0; proper && n < PREAMBLE_BYTES; ++n) proper = m_frame[n] == PREAMBLE;
        if (!proper) {
            // A frame that is cut short by an error is not the sender's fault.
            ++(m_spoilt ? m_frames_spoilt : m_malformed);
            return;
        }
        const uint8_t* const data = m_frame.data() + head;
        const size_t length = m_frame.size() - head - FCS_BYTES;
        uint32_t sum;
        std::memcpy(&sum, data + length, FCS_BYTES);
        if (m_spoilt || sum != CRC.of(data, length)) {
            ++m_frames_spoilt;
            return;
        }
        m_output.insert(m_output.end(), data, data + length);
        m_lengths.push_back(static_cast<uint32_t>(length));
    }

    std::vector<uint8_t> m_frame, m_output;
    std::vector<uint32_t> m_lengths;
    bool m_spoilt = false, m_any = false;
    uint64_t m_gap = 0, m_least_gap = ~uint64_t{0};
    uint64_t m_frames = 0, m_bytes = 0, m_frames_spoilt = 0, m_malformed = 0;
};

}  // namespace
