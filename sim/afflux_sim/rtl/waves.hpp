// The values of all signals of a model in a window of cycles, written to a file. A shim includes it
// where its library was built to trace (VM_TRACE), as VCD or as FST (VM_TRACE_FST).

#pragma once

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>

#if VM_TRACE_FST
#include "verilated_fst_c.h"
#else
#include "verilated_vcd_c.h"
#endif

namespace {

#if VM_TRACE_FST
// Its writer has no errors to be asked for: it ends the process if it cannot write.
struct WaveFile {
    int error = 0;
    VerilatedFstC writer;
};
#else
// Verilator's own file throws where it cannot write, also from a destructor, which ends the process.
// This one remembers the error, and drops what it is given from then on.
class Disk : public VerilatedVcdFile {
public:
    explicit Disk(int& error) : m_error{error} {}
    ssize_t write(const char* data, ssize_t size) override {
        if (m_error) return size;
        const ssize_t written = VerilatedVcdFile::write(data, size);
        if (written >= 0 || errno == EAGAIN || errno == EINTR) return written;
        m_error = errno;
        return size;
    }

private:
    int& m_error;
};

struct WaveFile {
    int error = 0;
    Disk disk{error};
    VerilatedVcdC writer{&disk};
};
#endif

class Waves {
public:
    // Of the cycles from `first` to before `end`.
    template <typename Model>
    void open(Model& model, const char* path, uint64_t first, uint64_t end) {
        m_file = std::make_unique<WaveFile>();
        m_first = first;
        m_end = end;
        model.trace(&m_file->writer, LEVELS);
        m_file->writer.open(path);
        if (!m_file->writer.isOpen()) throw std::runtime_error(std::strerror(errno));
    }

    // After an evaluation in this cycle, before or after the clock has risen.
    void sample(uint64_t cycle, bool risen) {
        if (!m_file || cycle < m_first) return;
        m_file->writer.dump(cycle * CYCLE_NS + (risen ? CYCLE_NS / 2 : 0));
        // A window's file is complete as soon as the window is behind.
        if (m_file->error || (risen && cycle + 1 == m_end)) close();
    }

    void close() {
        if (!m_file) return;
        m_file->writer.close();
        const int error = m_file->error;
        m_file.reset();
        if (error) {
            throw std::runtime_error(std::string("its waves cannot be written: ")
                                     + std::strerror(error));
        }
    }

    static void prepare(VerilatedContext& context) {
        context.traceEverOn(true);
        context.timeunit(NANOSECONDS);
        context.timeprecision(NANOSECONDS);
    }

private:
    static constexpr uint64_t CYCLE_NS = 4;
    static constexpr int NANOSECONDS = -9;
    static constexpr int LEVELS = 99;  // all

    std::unique_ptr<WaveFile> m_file;
    uint64_t m_first = 0;
    uint64_t m_end = 0;
};

}  // namespace
