// Elements of each floating-point type as vectors, and their conversion to integers and back.
#pragma once

#include "codec/kernels/lanes.hpp"
#include "codec/kernels/slow_path.hpp"
#include "codec/types.hpp"

namespace afflux::codec {

namespace {

constexpr std::size_t kVectors = kBlock / kLanes;

constexpr std::size_t bytes_of(Dtype dtype) {
    return dtype == Dtype::Int32 || dtype == Dtype::Float32 ? 4 : 2;
}

// Calls `with.operator()<kType>()` for the type that `dtype` is.
template <typename With>
inline void with_type(Dtype dtype, With with) {
    switch (dtype) {
        case Dtype::Int32:
            return with.template operator()<Dtype::Int32>();
        case Dtype::Float32:
            return with.template operator()<Dtype::Float32>();
        case Dtype::Float16:
            return with.template operator()<Dtype::Float16>();
        case Dtype::Bfloat16:
            return with.template operator()<Dtype::Bfloat16>();
    }
}

// kLanes elements as float32.
template <Dtype kType>
inline Floats load_floats(const std::byte* from) {
    if constexpr (kType == Dtype::Float32) {
        return load<Floats>(from);
    } else if constexpr (kType == Dtype::Bfloat16) {
        return as<Floats>(extend(load<Shorts>(from)) << 16);
    } else {
        return from_half(load<Shorts>(from));
    }
}

inline float power_of_two(int power) {
    const std::uint32_t bits = static_cast<std::uint32_t>(127 + power) << 23;
    return as<float>(bits);
}

// Integers of finite elements, whose exponents are not above that of `scale`.
template <Dtype kType>
inline Integers to_integers(const std::byte* from, float scale) {
    return nearest(load_floats<kType>(from) * scale);
}

// Sums to elements: times a unit, divided by the ranks, rounded once.
//
// float32 is rounded once anyway, from int32, as the unit is a power of two. The narrow types would
// be rounded twice, so the first rounding is to odd: bits that are cut away leave a trace in the
// last bit, and 24 bits with such a trace round to 11 or fewer bits as the number itself does.
template <Dtype kType, bool kDivide>
struct Values {
    Values(const Numbers& numbers, unsigned exponent)
        : unit(power_of_two(numbers.unit_power + static_cast<int>(exponent))),
          divisor(numbers.divisor),
          inverse(1.0 / numbers.divisor) {}

    // In the storage of the type.
    using Stored = decltype([] {
        if constexpr (kType == Dtype::Float32) {
            return Floats{};
        } else {
            return Shorts{};
        }
    }());

    Stored of(Integers sums) const {
        if constexpr (kType == Dtype::Float32) {
            return (kDivide ? quotients(sums) : to_floats(sums)) * unit;
        } else {
            const Floats value = (kDivide ? quotients(sums) : to_odd(sums)) * unit;
            if constexpr (kType == Dtype::Bfloat16) {
                const Integers bits = as<Integers>(value);
                const Integers rounded = bits + 0x7FFF + ((bits >> 16) & 1);
                return cut((rounded >> 16) & 0xFFFF);
            } else {
                // Only here can a result be so small that nothing but its sign would remain.
                const Shorts half = to_half(value);
                return half == 0x8000 ? Shorts{} : half;
            }
        }
    }

  private:
    static Floats to_odd(Integers sums) {
#if defined(__AVX512F__)
        const __m512i exact = as<__m512i>(sums);
        const __m512 cut = _mm512_cvt_roundepi32_ps(exact, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
        const __mmask16 inexact = _mm512_cmpneq_epi32_mask(_mm512_cvttps_epi32(cut), exact);
        const __m512i bits = _mm512_castps_si512(cut);
        return as<Floats>(_mm512_mask_or_epi32(bits, inexact, bits, _mm512_set1_epi32(1)));
#else
        // The 8 low bits of large numbers become one: 24 bits remain, of which the last is the
        // trace.
        const Integers trace = (sums & 0xFF) != 0;
        const Integers odd = (sums & ~0x1FF) | (sums & 0x100) | (trace & 0x100);
        const Integers large = (sums > (1 << 24)) | (sums < -(1 << 24));
        return to_floats(select(large, odd, sums));
#endif
    }

    Floats quotients(Integers sums) const {
        HalfIntegers halves[2];
        __builtin_memcpy(halves, &sums, sizeof sums);
        HalfFloats values[2];
        for (int h = 0; h < 2; ++h) {
            values[h] = single(quotient(__builtin_convertvector(halves[h], Doubles)));
        }
        Floats result;
        __builtin_memcpy(&result, values, sizeof result);
        return result;
    }

    Doubles quotient(Doubles sums) const {
#if defined(__AVX512F__)
        // Markstein's division: with a correctly rounded inverse, one correction of a first
        // quotient gives the correctly rounded one, and costs less than dividing.
        const __m512d by = _mm512_set1_pd(divisor), over = _mm512_set1_pd(inverse);
        const __m512d first = as<__m512d>(sums * inverse);
        const __m512d rest = _mm512_fnmadd_pd(first, by, as<__m512d>(sums));
        return as<Doubles>(_mm512_fmadd_pd(rest, over, first));
#elif defined(__AVX2__)
        const __m256d by = _mm256_set1_pd(divisor), over = _mm256_set1_pd(inverse);
        const __m256d first = as<__m256d>(sums * inverse);
        const __m256d rest = _mm256_fnmadd_pd(first, by, as<__m256d>(sums));
        return as<Doubles>(_mm256_fmadd_pd(rest, over, first));
#else
        return sums / divisor;
#endif
    }

    // To float32, to nearest where that is the result, else to odd.
    static HalfFloats single(Doubles x) {
        if constexpr (kType != Dtype::Float32) {
            typedef std::int64_t Longs __attribute__((vector_size(sizeof(Doubles))));
            const Longs bits = as<Longs>(x);
            constexpr std::int64_t kCut = (std::int64_t{1} << 29) - 1;
            const Longs trace = (bits & kCut) != 0;
            x = as<Doubles>((bits & ~kCut) | (trace & (kCut + 1)));
        }
        return __builtin_convertvector(x, HalfFloats);
    }

    float unit;
    double divisor, inverse;
};

}  // namespace

}  // namespace afflux::codec
