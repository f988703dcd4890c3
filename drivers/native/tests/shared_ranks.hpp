// Ranks of a shared-memory group as threads, tensors for them, and their expected results.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "codec/elements.hpp"
#include "codec/reduce.hpp"
#include "codec/scan.hpp"
#include "shared/group.hpp"
#include "sums/exact_sums.hpp"
#include "tests/check.hpp"

namespace afflux::tests {

using Bytes = std::vector<std::byte>;
using Random = std::mt19937_64;

inline std::size_t below(Random& random, std::size_t limit) {
    return static_cast<std::size_t>(random() % limit);
}

// One mapping for all threads, so that sanitizers know what is shared.
inline std::shared_ptr<shared::Segment> make_segment(int ranks, shared::Sizes sizes = {}) {
    const int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(fd >= 0);
    shared::Segment::initialise(fd, ranks, sizes);
    return std::make_shared<shared::Segment>(fd, ranks, shared::Segment::Liveness::None);
}

// Calls work(rank) in a thread for each rank, and waits for all.
template <typename Work>
void in_threads(int ranks, const Work& work) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) threads.emplace_back([&work, rank] { work(rank); });
    for (std::thread& thread : threads) thread.join();
}

// The content of a tensor.
struct Case {
    codec::Dtype dtype;
    codec::Op op;
    std::size_t count;
    double density;   // of blocks that are not zero
    bool non_finite;  // NaN and infinities occur
    std::size_t bytes() const { return count * codec::size_of(dtype); }
};

// The same for the same seed. Some of the zeros are -0.
inline Bytes make_tensor(const Case& given, std::uint64_t seed) {
    Random random(seed);
    Bytes tensor(given.bytes());
    const std::size_t size = codec::size_of(given.dtype);
    for (std::size_t first = 0; first < given.count; first += codec::kBlock) {
        const std::size_t end = std::min(given.count, first + codec::kBlock);
        const bool present = static_cast<double>(random() % 1000) < given.density * 1000;
        const bool negative_zeros = random() % 4 == 0;
        const std::uint64_t kind = random() % 8;
        for (std::size_t i = first; i < end; ++i) {
            std::uint32_t bits = 0;
            if (given.dtype == codec::Dtype::Int32) {
                if (present) bits = static_cast<std::uint32_t>(random());
            } else if (!present) {
                bits = negative_zeros && random() % 3 == 0 ? 0x80000000 : 0;
            } else {
                // Magnitudes from 2^-20 to 2^19, both signs, cut to what all float types can hold.
                const auto exponent =
                    static_cast<std::uint32_t>(107 + kind * 5 + random() % 5) & 0xFF;
                bits = static_cast<std::uint32_t>(random()) & 0x807FFFFF;
                bits |= (given.dtype == codec::Dtype::Float16 ? exponent % 28 + 113 : exponent)
                        << 23;
                if (given.non_finite && random() % 200 == 0)
                    bits = std::array<std::uint32_t, 3>{0x7F800000, 0xFF800000,
                                                        0x7FC00000}[random() % 3];
            }
            if (given.dtype == codec::Dtype::Bfloat16) bits >>= 16;
            if (given.dtype == codec::Dtype::Float16) {
                const std::uint32_t exponent = bits >> 23 & 0xFF;
                const std::uint32_t half = exponent == 0 ? 0
                                           : exponent == 255
                                               ? 0x7C00 | (bits >> 13 & 0x200)
                                               : (exponent - 112) << 10 | (bits >> 13 & 0x3FF);
                bits = (bits >> 16 & 0x8000) | half;
            }
            std::memcpy(tensor.data() + i * size, &bits, size);
        }
    }
    return tensor;
}

// Correctly rounded sums and averages, element by element.
inline Bytes expected_sums(const Case& given, const std::vector<Bytes>& tensors) {
    const int ranks = static_cast<int>(tensors.size());
    const int scale = given.op == codec::Op::Avg ? sums::average_scale(ranks) : 0;
    const codec::Format format = codec::format_of(given.dtype);
    Bytes result(given.bytes());
    for (std::size_t i = 0; i < given.count; ++i) {
        sums::ExactSum sum({given.dtype, scale});
        for (const Bytes& tensor : tensors) sum.add(codec::bits_at(given.dtype, tensor.data(), i));
        std::uint32_t bits = sum.rounded();
        const bool finite = codec::is_finite(codec::widen(given.dtype, bits));
        if (given.op == codec::Op::Avg && finite && (ranks & (ranks - 1)) != 0) {
            // A double has the quotient to so many bits that rounding it again does no harm.
            float value;
            const std::uint32_t wide = codec::widen(given.dtype, bits);
            std::memcpy(&value, &wide, sizeof value);
            const double quotient = std::ldexp(static_cast<double>(value), scale) / ranks;
            bits = codec::round_to(format, quotient) | (bits & format.sign());
        }
        codec::put_bits(given.dtype, result.data(), i, bits);
    }
    return result;
}

// The expected result at all ranks: by the codec, or, with `exact`, of sums correctly rounded.
// The greatest and the least are the same.
inline Bytes expected(const Case& given, const std::vector<Bytes>& tensors, bool exact = false) {
    if (exact && codec::is_sum(given.op) && given.dtype != codec::Dtype::Int32)
        return expected_sums(given, tensors);
    const codec::Numbers numbers(static_cast<int>(tensors.size()), given.dtype, given.op);
    const std::size_t blocks = codec::blocks_of(given.count);
    const std::size_t bytes = blocks * codec::kBlock * codec::size_of(given.dtype);
    std::vector<Bytes> padded = tensors;
    std::vector<std::vector<std::uint8_t>> exponents;
    std::vector<const void*> elements;
    std::vector<const std::uint8_t*> words;
    for (Bytes& tensor : padded) {
        tensor.resize(bytes);
        auto& bytes_of = exponents.emplace_back(blocks);
        codec::scan(given.dtype, tensor.data(), blocks * codec::kBlock, bytes_of.data());
    }
    for (std::size_t r = 0; r < padded.size(); ++r) {
        elements.push_back(padded[r].data());
        words.push_back(exponents[r].data());
    }
    Bytes result(bytes);
    std::vector<std::uint8_t> present(blocks);
    if (codec::is_exact(given.dtype, given.op, given.count))
        codec::exact(numbers, given.count, numbers.ranks, elements.data(), result.data());
    else
        codec::reduce(numbers, blocks, numbers.ranks, elements.data(), words.data(), result.data(),
                      present.data());
    result.resize(given.bytes());
    return result;
}

inline void begin_all_reduce(shared::Group& group, void* data, std::size_t count,
                             codec::Dtype dtype, codec::Op op, std::uint64_t fingerprint) {
    shared::Request request;
    request.outputs = {&data, 1};
    request.count = count;
    request.dtype = static_cast<shared::Dtype>(dtype);
    request.op = static_cast<shared::Op>(op);
    request.fingerprint = fingerprint;
    group.begin(request);
}

// Makes this thread's additions wrong, unless they are taken in an environment of their own:
// rounded up, and without denormal numbers.
inline void spoil_environment() {
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(0x1F80 | 0x8040 | 0x4000);
#endif
}

// Waits as a rank does, in pieces now and then; the test fails if it takes a minute.
inline void finish(shared::Group& group) {
    using namespace std::chrono_literals;
    const auto deadline = shared::Clock::now() + 60s;
    while (!group.advance(2s)) CHECK(shared::Clock::now() < deadline);
}

inline void all_reduce(shared::Group& group, void* data, const Case& given,
                       std::uint64_t fingerprint = 0) {
    begin_all_reduce(group, data, given.count, given.dtype, given.op, fingerprint);
    finish(group);
}

}  // namespace afflux::tests
