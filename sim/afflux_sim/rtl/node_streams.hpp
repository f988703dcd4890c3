// The pins of the node's packet streams: frames in, beat by beat, and out.
//
// Nothing here knows what a frame means. BUS_BYTES is the width of the streams.
#pragma once

#include "VAffluxNode.h"

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "model_shim.hpp"

namespace {

using Data = std::remove_reference_t<decltype(VAffluxNode::net_rx_data)>;
using Keep = std::remove_reference_t<decltype(VAffluxNode::net_rx_keep)>;

// Frames on their way into the node, one after the other in memory.
struct Frames {
    const uint8_t* data;
    const uint32_t* lengths;
    const uint8_t* errors;  // of each frame, whether its last beat is marked; may be null
    size_t count;
};

// The pins of a stream into the node.
class Driver {
public:
    Driver(Data& data, Keep& keep, CData& last, CData& error, CData& valid, CData& ready)
        : m_data{data}, m_keep{keep}, m_last{last}, m_error{error}, m_valid{valid},
          m_ready{ready} {
        m_error = 0;
        m_valid = 0;
    }

    void begin(Frames frames, Random* random, uint64_t gaps) {
        m_frames = frames;
        m_left = frames.count ? frames.lengths[0] : 0;
        m_random = random;
        m_gaps = gaps;
        show();
    }
    bool is_offering() const { return m_valid; }
    bool is_done() const { return m_frames.count == 0; }
    bool is_taken() const { return m_valid && m_ready; }
    bool is_stalled() const { return m_valid && !m_ready; }

    // After an edge at which the beat was taken.
    void next() {
        const uint32_t bytes = m_left < BUS_BYTES ? m_left : BUS_BYTES;
        m_frames.data += bytes;
        m_left -= bytes;
        if (m_left == 0) {
            ++m_frames.lengths;
            if (m_frames.errors) ++m_frames.errors;
            m_left = --m_frames.count ? *m_frames.lengths : 0;
        }
        show();
    }
    // After an edge at which none was offered.
    void wait() { show(); }
    void abandon() {
        m_frames.count = 0;
        show();
    }

private:
    void show() {
        m_valid = !is_done() && !(m_gaps && m_random->is_below(m_gaps));
        if (!m_valid) return;
        const uint32_t bytes = m_left < BUS_BYTES ? m_left : BUS_BYTES;
        // Ports are little-endian words, as is every host that this is built for.
        std::memcpy(&m_data, m_frames.data, bytes);
        m_keep = static_cast<Keep>(~uint64_t{0} >> (64 - bytes));
        m_last = bytes == m_left;
        m_error = m_last && m_frames.errors && *m_frames.errors;
    }

    Data& m_data;
    Keep& m_keep;
    CData& m_last;
    CData& m_error;
    CData& m_valid;
    CData& m_ready;
    Frames m_frames{};
    Random* m_random = nullptr;
    uint64_t m_gaps = 0;
    uint32_t m_left = 0;  // bytes of the frame that is being driven
};

// The pins of a stream out of the node.
class Sampler {
public:
    Sampler(Data& data, Keep& keep, CData& last, CData& error, CData& valid, CData& ready)
        : m_data{data}, m_keep{keep}, m_last{last}, m_error{error}, m_valid{valid}, m_ready{ready} {
        m_ready = 1;
    }

    void set_ready(bool ready) { m_ready = ready; }
    void release() { m_held = false; }
    void sample() {
        if (m_held && !m_valid) throw std::runtime_error("a beat was taken back");
        m_held = m_valid && !m_ready;
        if (!m_valid || m_held) return;
        const uint64_t keep = m_keep;
        // Contiguous from bit 0, so that the number of ones is the number of bytes.
        if (keep & (keep + 1)) throw std::runtime_error("keep is not contiguous");
        const auto bytes = static_cast<size_t>(__builtin_popcountll(keep));
        if (bytes != BUS_BYTES && !m_last) {
            throw std::runtime_error("keep is not all ones before the last beat");
        }
        const auto* const data = reinterpret_cast<const uint8_t*>(&m_data);
        m_output.insert(m_output.end(), data, data + bytes);
        if (m_last && m_error) {
            // A MAC spoils it, and nobody takes it.
            m_output.resize(m_whole);
            ++m_cut;
        } else if (m_last) {
            m_lengths.push_back(static_cast<uint32_t>(m_output.size() - m_whole));
            m_whole = m_output.size();
        }
    }
    // Folds what the pins show into a number.
    template <typename Add>
    void digest(Add add) const {
        add(m_valid);
        if (!m_valid) return;
        uint32_t words[BUS_BYTES / 4];
        std::memcpy(words, &m_data, BUS_BYTES);
        add(m_keep);
        add(m_error);
        for (const uint32_t word : words) add(uint64_t{word} << 1 | m_last);
    }
    void clear() {
        // A frame whose last beat is still to come stays.
        m_output.erase(m_output.begin(), m_output.begin() + static_cast<ptrdiff_t>(m_whole));
        m_whole = 0;
        m_lengths.clear();
    }
    void forget() {
        clear();
        m_output.clear();
        m_held = false;
    }
    uint64_t cut() const { return m_cut; }
    const std::vector<uint32_t>& lengths() const { return m_lengths; }
    const uint8_t* frames() const { return m_output.data(); }

private:
    Data& m_data;
    Keep& m_keep;
    CData& m_last;
    CData& m_error;
    CData& m_valid;
    CData& m_ready;
    bool m_held = false;  // a beat waits to be taken
    uint64_t m_cut = 0;   // frames that ended with an error
    std::vector<uint8_t> m_output;
    std::vector<uint32_t> m_lengths;
    size_t m_whole = 0;  // bytes of m_output that belong to whole frames
};

}  // namespace
