// Every instruction set of the codec gives the same bits as plain code, at every offset in memory
// and for every length, and reads and writes nothing outside its arrays (the sanitizers see to
// that).
#include <algorithm>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "check.hpp"
#include "codec/environment.hpp"
#include "codec/instruction_set.hpp"
#include "codec/kernels/slow_path.hpp"
#include "codec/quantise.hpp"
#include "codec/reduce.hpp"
#include "codec/scan.hpp"

namespace {

using namespace afflux::codec;
using Bytes = std::vector<unsigned char>;

constexpr Dtype kDtypes[] = {Dtype::Int32, Dtype::Float32, Dtype::Float16, Dtype::Bfloat16};
constexpr Op kOps[] = {Op::Sum, Op::Avg, Op::Max, Op::Min};

std::mt19937 generator(1);

// Elements of a kind that changes from block to block: any bits, finite ones of similar size, zeros
// of both signs.
Bytes elements(Dtype dtype, std::size_t count) {
    Bytes bytes(size_of(dtype) * count);
    for (std::size_t start = 0; start < count; start += kBlock) {
        const unsigned kind = generator() % 5;
        for (std::size_t i = start; i < std::min(count, start + kBlock); ++i) {
            std::uint32_t bits = generator();
            if (kind == 0) bits = bits & 1 ? 0x80008000 : 0;
            if (kind > 2) bits = (bits & 0x83FF'83FF) | 0x3400'3400;
            if (dtype == Dtype::Float32 && kind == 0) bits &= 0x80000000;
            std::memcpy(&bytes[size_of(dtype) * i], &bits, size_of(dtype));
        }
    }
    return bytes;
}

// The result by plain code, block by block; Max and Min by the instruction set that is in use.
Bytes plain_sum(const Numbers& numbers, const std::vector<Bytes>& sources, std::size_t count) {
    const FloatEnvironment environment;
    const std::size_t bytes = kBlock * size_of(numbers.dtype);
    Bytes result(blocks_of(count) * bytes);
    for (std::size_t b = 0; b < blocks_of(count); ++b) {
        std::vector<Bytes> blocks;
        std::vector<const void*> at;
        for (const Bytes& source : sources) {
            Bytes block(bytes);
            const std::size_t some = std::min(bytes, source.size() - b * bytes);
            std::memcpy(block.data(), source.data() + b * bytes, some);
            blocks.push_back(block);
        }
        for (const Bytes& block : blocks) at.push_back(block.data());
        reduce_block(numbers, static_cast<int>(at.size()), at.data(), result.data() + b * bytes);
    }
    result.resize(count * size_of(numbers.dtype));
    return result;
}

Bytes in_place(const Numbers& numbers, std::vector<Bytes> sources, std::size_t count) {
    std::vector<void*> at;
    for (Bytes& source : sources) at.push_back(source.data());
    reduce_in_place(numbers, count, static_cast<int>(at.size()), at.data());
    for (const Bytes& source : sources) CHECK(source == sources[0]);
    return sources[0];
}

Bytes staged(const Numbers& numbers, const std::vector<Bytes>& sources, std::size_t count) {
    const std::size_t blocks = blocks_of(count), bytes = kBlock * size_of(numbers.dtype);
    std::vector<Bytes> copies, exponents;
    for (const Bytes& source : sources) {
        copies.emplace_back(blocks * bytes);
        exponents.emplace_back(blocks);
        scan_copy(numbers.dtype, source.data(), count, copies.back().data(),
                  exponents.back().data());
        Bytes again(blocks);
        scan(numbers.dtype, source.data(), count, again.data());
        CHECK(again == exponents.back());
        Bytes cleared = source, copy(blocks * bytes);
        scan_clear(numbers.dtype, cleared.data(), count, copy.data(), again.data());
        CHECK(again == exponents.back() && copy == copies.back());
        for (std::size_t at = 0; at < source.size(); ++at)
            CHECK(cleared[at] == (again[at / bytes] ? source[at] : 0));
        if (!is_sum(numbers.op)) std::memcpy(copies.back().data(), source.data(), source.size());
    }
    std::vector<const void*> from;
    std::vector<const std::uint8_t*> of;
    for (std::size_t r = 0; r < sources.size(); ++r) {
        from.push_back(copies[r].data());
        of.push_back(exponents[r].data());
    }
    Bytes out(blocks * bytes), present(blocks);
    reduce(numbers, blocks, static_cast<int>(from.size()), from.data(), of.data(), out.data(),
           present.data());
    out.resize(count * size_of(numbers.dtype));
    return out;
}

void compare_sums(Dtype dtype, Op op, std::size_t ranks, std::size_t count) {
    const Numbers numbers(static_cast<int>(ranks), dtype, op);
    std::vector<Bytes> sources;
    for (std::size_t r = 0; r < ranks; ++r) sources.push_back(elements(dtype, count));
    Bytes want;
    if (is_sum(op) && dtype != Dtype::Int32) want = plain_sum(numbers, sources, count);
    for (const std::string& name : instruction_sets()) {
        use_instruction_set(name);
        const Bytes found = in_place(numbers, sources, count);
        if (want.empty()) want = found;
        CHECK(found == want);
        CHECK(staged(numbers, sources, count) == want);
    }
}

// Integers there and back.
void compare_packets(Dtype dtype, int ranks, std::size_t blocks) {
    const Numbers numbers(ranks, dtype, Op::Sum);
    const Bytes source = elements(dtype, blocks * kBlock);
    std::vector<std::int32_t> want;
    Bytes want_back;
    for (const std::string& name : instruction_sets()) {
        use_instruction_set(name);
        Bytes exponents(blocks);
        scan(dtype, source.data(), blocks * kBlock, exponents.data());
        std::vector<std::int32_t> out(blocks * kBlock);
        quantise(numbers, blocks, source.data(), exponents.data(), out.data());
        if (want.empty()) want = out;
        for (std::size_t i = 0; i < out.size(); ++i) {
            // Class counts come in the place of blocks that are not finite.
            CHECK(out[i] == want[i] || exponents[i / kBlock] == 255);
        }
        for (auto& exponent : exponents) exponent = exponent == 255 ? 200 : exponent;
        Bytes back(source.size());
        dequantise(numbers, blocks, want.data(), exponents.data(), back.data());
        if (want_back.empty()) want_back = back;
        CHECK(back == want_back);
    }
}

}  // namespace

int main() {
    for (const Dtype dtype : kDtypes) {
        for (const std::size_t count : {1, 63, 64, 65, 640, 1000}) {
            for (const std::size_t ranks : {1, 2, 3, 5, 8, 64}) {
                for (const Op op : kOps) {
                    if (is_defined(dtype, op)) compare_sums(dtype, op, ranks, count);
                }
            }
        }
        for (const std::size_t blocks : {1, 2, 8, 100}) compare_packets(dtype, 3, blocks);
    }
    CHECK_THROWS(std::invalid_argument, Numbers(0, Dtype::Float32, Op::Sum));
    CHECK_THROWS(std::invalid_argument, Numbers(2, Dtype::Int32, Op::Avg));
    CHECK_THROWS(std::invalid_argument, (use_instruction_set("vax"), 0));
}
