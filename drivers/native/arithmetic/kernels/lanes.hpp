// Vectors of one instruction set, and the few operations that plain C++ has no names for.
//
// Included by kernels_*.cpp only, each of which is compiled for its own instruction set. Everything
// in this folder's kernels is therefore in an unnamed namespace and calls no inline function of
// other headers, the standard library's included: the linker keeps one copy of such a function for
// the whole program, possibly one that the processor cannot run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace afflux::arithmetic {

namespace {

#if defined(__AVX512F__)
constexpr std::size_t kLanes = 16;
#elif defined(__AVX2__)
constexpr std::size_t kLanes = 8;
#else
constexpr std::size_t kLanes = 4;
#endif

// Lanes of 32 bits, and half as many of 64.
typedef std::int32_t Integers __attribute__((vector_size(4 * kLanes)));
typedef float Floats __attribute__((vector_size(4 * kLanes)));
typedef std::int32_t HalfIntegers __attribute__((vector_size(2 * kLanes)));
typedef float HalfFloats __attribute__((vector_size(2 * kLanes)));
typedef double Doubles __attribute__((vector_size(4 * kLanes)));
// Twice as many of 16 bits.
typedef std::int16_t Narrow __attribute__((vector_size(4 * kLanes)));
// kLanes elements of 16 bits, as they lie in memory.
typedef std::uint16_t Shorts __attribute__((vector_size(2 * kLanes)));

template <typename To, typename From>
inline To as(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    __builtin_memcpy(&to, &from, sizeof to);
    return to;
}

template <typename Vector>
inline Vector load(const void* from) {
    Vector vector;
    __builtin_memcpy(&vector, from, sizeof vector);
    return vector;
}

template <typename Vector>
inline void store(void* to, Vector vector) {
    __builtin_memcpy(to, &vector, sizeof vector);
}

inline Integers all(std::int32_t value) {
    return value - Integers{};
}

inline Floats all(float value) {
    return value - Floats{};
}

// `yes` where `mask` is -1, `no` where it is 0.
inline Integers select(Integers mask, Integers yes, Integers no) {
    return (mask & yes) | (~mask & no);
}

inline bool any(Integers x) {
#if defined(__AVX512F__)
    return _mm512_test_epi32_mask(as<__m512i>(x), as<__m512i>(x)) != 0;
#elif defined(__AVX2__)
    return !_mm256_testz_si256(as<__m256i>(x), as<__m256i>(x));
#else
    std::int32_t bits = 0;
    for (std::size_t i = 0; i < kLanes; ++i) bits |= x[i];
    return bits != 0;
#endif
}

inline Integers extend(Shorts x) {
#if defined(__AVX512F__)
    return as<Integers>(_mm512_cvtepu16_epi32(as<__m256i>(x)));
#elif defined(__AVX2__)
    return as<Integers>(_mm256_cvtepu16_epi32(as<__m128i>(x)));
#else
    return __builtin_convertvector(x, Integers);
#endif
}

// The lower halves of lanes, whose upper halves must be 0.
inline Shorts cut(Integers x) {
#if defined(__AVX512F__)
    return as<Shorts>(_mm512_cvtepi32_epi16(as<__m512i>(x)));
#elif defined(__AVX2__)
    const __m256i all = as<__m256i>(x);
    return as<Shorts>(
        _mm_packus_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1)));
#else
    return __builtin_convertvector(x, Shorts);
#endif
}

// float16 to float32, exactly. NaN and infinities become numbers that are not finite, or too large
// for float16.
inline Floats from_half(Shorts x) {
#if defined(__AVX512F__)
    return as<Floats>(_mm512_cvtph_ps(as<__m256i>(x)));
#elif defined(__AVX2__)
    return as<Floats>(_mm256_cvtph_ps(as<__m128i>(x)));
#else
    // The fields in their places, denormals included, and the difference of the biases as a factor.
    const Integers bits = extend(x);
    const Floats magnitude = as<Floats>((bits & 0x7FFF) << 13) * 0x1p112F;
    return as<Floats>(as<Integers>(magnitude) | (bits & 0x8000) << 16);
#endif
}

// float32 to float16, rounded to nearest, ties to even; of finite numbers.
inline Shorts to_half(Floats x) {
#if defined(__AVX512F__)
    return as<Shorts>(_mm512_cvtps_ph(as<__m512>(x), 0));
#elif defined(__AVX2__)
    return as<Shorts>(_mm256_cvtps_ph(as<__m256>(x), 0));
#else
    const Integers bits = as<Integers>(x), magnitude = bits & 0x7FFFFFFF;
    // Normal: the bias changes, and 13 bits are rounded away. A carry runs into the exponent.
    const Integers odd = (magnitude >> 13) & 1;
    const Integers normal = (magnitude - (112 << 23) + 0xFFF + odd) >> 13;
    // Denormal: adding 0.5 rounds to its last place, 2**-24, which is float16's least.
    const Integers denormal = as<Integers>(as<Floats>(magnitude) + 0.5F) - 0x3F000000;
    Integers half = select(magnitude < (113 << 23), denormal, normal);
    half = select(half > 0x7C00, all(0x7C00), half);
    return cut(half | ((bits >> 16) & 0x8000));
#endif
}

}  // namespace

}  // namespace afflux::arithmetic
