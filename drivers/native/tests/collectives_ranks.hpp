// Ranks as threads, tensors for them, and their expected results.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "arithmetic/elements.hpp"
#include "arithmetic/rounding.hpp"
#include "collectives/group.hpp"
#include "sums/exact_sums.hpp"
#include "tests/check.hpp"

namespace afflux::tests {

using Bytes = std::vector<std::byte>;
using Random = std::mt19937_64;

inline std::size_t below(Random& random, std::size_t limit) {
    return static_cast<std::size_t>(random() % limit);
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
    arithmetic::Dtype dtype;
    arithmetic::Op op;
    std::size_t count;
    double density;   // of blocks that are not zero
    bool non_finite;  // NaN and infinities occur
    std::size_t bytes() const { return count * arithmetic::size_of(dtype); }
};

// The same for the same seed. Some of the zeros are -0.
inline Bytes make_tensor(const Case& given, std::uint64_t seed) {
    Random random(seed);
    Bytes tensor(given.bytes());
    const std::size_t size = arithmetic::size_of(given.dtype);
    for (std::size_t first = 0; first < given.count; first += arithmetic::kBlock) {
        const std::size_t end = std::min(given.count, first + arithmetic::kBlock);
        const bool present = static_cast<double>(random() % 1000) < given.density * 1000;
        const bool negative_zeros = random() % 4 == 0;
        const std::uint64_t kind = random() % 8;
        for (std::size_t i = first; i < end; ++i) {
            std::uint32_t bits = 0;
            if (given.dtype == arithmetic::Dtype::Int32) {
                if (present) bits = static_cast<std::uint32_t>(random());
            } else if (!present) {
                bits = negative_zeros && random() % 3 == 0 ? 0x80000000 : 0;
            } else {
                // Magnitudes from 2^-20 to 2^19, both signs, cut to what all float types can hold.
                const auto exponent =
                    static_cast<std::uint32_t>(107 + kind * 5 + random() % 5) & 0xFF;
                bits = static_cast<std::uint32_t>(random()) & 0x807FFFFF;
                bits |= (given.dtype == arithmetic::Dtype::Float16 ? exponent % 28 + 113 : exponent)
                        << 23;
                if (given.non_finite && random() % 200 == 0)
                    bits = std::array<std::uint32_t, 3>{0x7F800000, 0xFF800000,
                                                        0x7FC00000}[random() % 3];
            }
            if (given.dtype == arithmetic::Dtype::Bfloat16) bits >>= 16;
            if (given.dtype == arithmetic::Dtype::Float16) {
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

// A correctly rounded sum or average.
inline std::uint32_t expected_sum(const Case& given, const std::vector<std::uint32_t>& all) {
    const int ranks = static_cast<int>(all.size());
    const bool average = given.op == arithmetic::Op::Avg;
    const int scale = average ? sums::average_scale(ranks) : 0;
    sums::ExactSum sum({given.dtype, scale});
    for (const std::uint32_t bits : all) sum.add(bits);
    const std::uint32_t bits = sum.rounded(), wide = arithmetic::widen(given.dtype, bits);
    if (!average || !arithmetic::is_finite(wide) || (ranks & (ranks - 1)) == 0) return bits;
    // A double has the quotient to so many bits that rounding it again does no harm.
    float value;
    std::memcpy(&value, &wide, sizeof value);
    const arithmetic::Format format = arithmetic::format_of(given.dtype);
    const double quotient = std::ldexp(static_cast<double>(value), scale) / ranks;
    return arithmetic::round_to(format, quotient) | (bits & format.sign());
}

// The greatest or least float: a NaN wins, and -0 is less than +0.
inline std::uint32_t expected_extreme(const Case& given, const std::vector<std::uint32_t>& all) {
    std::uint32_t best = all[0];
    for (const std::uint32_t bits : all) {
        float values[2];
        const std::uint32_t wide[] = {arithmetic::widen(given.dtype, bits),
                                      arithmetic::widen(given.dtype, best)};
        std::memcpy(values, wide, sizeof values);
        if (std::isnan(values[0])) {
            sums::ExactSum nan({given.dtype});
            nan.add(bits);
            return nan.rounded();
        }
        const bool less = values[0] < values[1] || (values[0] == values[1] && wide[0] > wide[1]);
        const bool greater = values[0] > values[1] || (values[0] == values[1] && wide[0] < wide[1]);
        if (given.op == arithmetic::Op::Max ? greater : less) best = bits;
    }
    return best;
}

inline std::uint32_t expected_integer(const Case& given, const std::vector<std::uint32_t>& all) {
    std::uint32_t result = all[0];
    for (std::size_t r = 1; r < all.size(); ++r) {
        const auto a = static_cast<std::int32_t>(result), b = static_cast<std::int32_t>(all[r]);
        result = given.op == arithmetic::Op::Sum
                     ? result + all[r]
                     : static_cast<std::uint32_t>(given.op == arithmetic::Op::Max ? std::max(a, b)
                                                                                  : std::min(a, b));
    }
    return result;
}

// The expected result at all ranks, element by element.
inline Bytes expected(const Case& given, const std::vector<Bytes>& tensors) {
    Bytes result(given.bytes());
    std::vector<std::uint32_t> all(tensors.size());
    for (std::size_t i = 0; i < given.count; ++i) {
        for (std::size_t r = 0; r < all.size(); ++r)
            all[r] = arithmetic::bits_at(given.dtype, tensors[r].data(), i);
        const auto one = given.dtype == arithmetic::Dtype::Int32 ? expected_integer
                         : arithmetic::is_sum(given.op)          ? expected_sum
                                                                 : expected_extreme;
        arithmetic::put_bits(given.dtype, result.data(), i, one(given, all));
    }
    return result;
}

// Makes this thread's additions wrong, unless they are taken in an environment of their own:
// rounded up, and without denormal numbers.
inline void spoil_environment() {
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(0x1F80 | 0x8040 | 0x4000);
#endif
}

inline void begin_all_reduce(collectives::Group& group, void* data, std::size_t count,
                             arithmetic::Dtype dtype, arithmetic::Op op,
                             std::uint64_t fingerprint) {
    collectives::Request request;
    request.outputs = {&data, 1};
    request.count = count;
    request.dtype = static_cast<collectives::Dtype>(dtype);
    request.op = static_cast<collectives::Op>(op);
    request.fingerprint = fingerprint;
    group.begin(request);
}

// Waits as a rank does, in pieces now and then; the test fails if it takes a minute.
inline void finish(collectives::Group& group) {
    using namespace std::chrono_literals;
    const auto deadline = std::chrono::steady_clock::now() + 60s;
    while (!group.advance(2s)) CHECK(std::chrono::steady_clock::now() < deadline);
}

inline void all_reduce(collectives::Group& group, void* data, const Case& given,
                       std::uint64_t fingerprint = 0) {
    begin_all_reduce(group, data, given.count, given.dtype, given.op, fingerprint);
    finish(group);
}

inline void begin_sum(collectives::Group& group, std::vector<float>& tensor,
                      std::uint64_t fingerprint = 0) {
    begin_all_reduce(group, tensor.data(), tensor.size(), arithmetic::Dtype::Float32,
                     arithmetic::Op::Sum, fingerprint);
}

// The text of the exception that ends the operation in progress.
template <typename Exception>
std::string text_of(collectives::Group& group) {
    try {
        finish(group);
    } catch (const Exception& error) {
        return error.what();
    }
    CHECK(false);
}

inline bool contains(const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
}

}  // namespace afflux::tests
