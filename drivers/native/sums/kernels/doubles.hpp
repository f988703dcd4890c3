// Vectors of elements as doubles, exactly, and doubles as elements, rounded once.
//
// Everything here is in an unnamed namespace and calls no inline function from elsewhere: it is
// compiled for several instruction sets.
#pragma once

#include "arithmetic/kernels/floats.hpp"
#include "sums/exact_sum.hpp"

namespace afflux::sums {

namespace {

using arithmetic::as;
using arithmetic::Doubles;
using arithmetic::Dtype;
using arithmetic::Floats;
using arithmetic::HalfFloats;
using arithmetic::Integers;
using arithmetic::kLanes;
using arithmetic::load;
using arithmetic::Shorts;
using arithmetic::store;

// kLanes numbers.
struct Wide {
    Doubles low, high;

    void operator+=(const Wide& other) {
#if defined(__AVX512F__)
        // As products with 1 and a sum: the units that multiply are idle, and those that add also
        // convert. The compiler must not know that it is 1.
        __m512d one = _mm512_set1_pd(1);
        asm("" : "+v"(one));
        low = as<Doubles>(_mm512_fmadd_pd(as<__m512d>(other.low), one, as<__m512d>(low)));
        high = as<Doubles>(_mm512_fmadd_pd(as<__m512d>(other.high), one, as<__m512d>(high)));
#else
        low += other.low;
        high += other.high;
#endif
    }
};

// To and from memory. Copied as a whole, a pair of vectors would go through general registers.
inline void put(void* to, const Wide& x) {
    store(to, x.low);
    store(static_cast<std::byte*>(to) + sizeof x.low, x.high);
}

inline void put(void* to, Floats x) {
    store(to, x);
}

template <typename Form>
inline Form get(const void* from) {
    if constexpr (sizeof(Form) == sizeof(Wide)) {
        const auto* high = static_cast<const std::byte*>(from) + sizeof(Doubles);
        return {load<Doubles>(from), load<Doubles>(high)};
    } else {
        return load<Form>(from);
    }
}

// -1 where a lane is a NaN, else 0.
inline Integers is_nan(Floats x) {
    return (as<Integers>(x) & 0x7FFFFFFF) > 0x7F800000;
}

// All NaN become one.
inline Floats one_nan(Floats x) {
#if defined(__AVX512F__)
    const __m512 all = as<__m512>(x);
    const __mmask16 nan = _mm512_cmp_ps_mask(all, all, _CMP_UNORD_Q);
    return as<Floats>(_mm512_mask_mov_ps(all, nan, as<__m512>(arithmetic::all(0x7FC00000))));
#else
    return as<Floats>(arithmetic::select(is_nan(x), arithmetic::all(0x7FC00000), as<Integers>(x)));
#endif
}

template <Dtype kType>
inline Floats floats_of(const std::byte* from) {
    const Floats floats = arithmetic::load_floats<kType>(from);
#if !defined(__AVX2__)
    if constexpr (kType == Dtype::Float16) {
        // Without an instruction the exponent of infinities and NaN is not yet the greatest one.
        const Integers bits = as<Integers>(floats);
        const Integers special = (bits & 0x7FFFFFFF) >= 0x47800000;
        return as<Floats>(bits | (special & 0x7F800000));
    }
#endif
    return floats;
}

// The compiler's own conversions of vectors go through halves of them.
inline Wide widen(Floats x) {
#if defined(__AVX512F__)
    const __m512 all = as<__m512>(x);
    return {as<Doubles>(_mm512_cvtps_pd(_mm512_castps512_ps256(all))),
            as<Doubles>(_mm512_cvtps_pd(_mm512_extractf32x8_ps(all, 1)))};
#elif defined(__AVX2__)
    const __m256 all = as<__m256>(x);
    return {as<Doubles>(_mm256_cvtps_pd(_mm256_castps256_ps128(all))),
            as<Doubles>(_mm256_cvtps_pd(_mm256_extractf128_ps(all, 1)))};
#elif defined(__x86_64__)
    const __m128 all = as<__m128>(x);
    return {as<Doubles>(_mm_cvtps_pd(all)), as<Doubles>(_mm_cvtps_pd(_mm_movehl_ps(all, all)))};
#else
    HalfFloats halves[2];
    __builtin_memcpy(halves, &x, sizeof x);
    return {__builtin_convertvector(halves[0], Doubles),
            __builtin_convertvector(halves[1], Doubles)};
#endif
}

// The same of floats in memory, whose halves need not be taken apart.
inline Wide widen_from(const std::byte* from) {
#if defined(__AVX512F__)
    return {as<Doubles>(_mm512_cvtps_pd(load<__m256>(from))),
            as<Doubles>(_mm512_cvtps_pd(load<__m256>(from + sizeof(__m256))))};
#elif defined(__AVX2__)
    return {as<Doubles>(_mm256_cvtps_pd(load<__m128>(from))),
            as<Doubles>(_mm256_cvtps_pd(load<__m128>(from + sizeof(__m128))))};
#else
    return widen(load<Floats>(from));
#endif
}

// To float32, rounded to nearest, ties to even; with AVX-512 without setting a flag.
inline Floats singles(Wide x) {
#if defined(__AVX512F__)
    constexpr int kQuietly = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    const __m256 low = _mm512_cvt_roundpd_ps(as<__m512d>(x.low), kQuietly);
    const __m256 high = _mm512_cvt_roundpd_ps(as<__m512d>(x.high), kQuietly);
    return as<Floats>(_mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1));
#elif defined(__AVX2__)
    const __m128 low = _mm256_cvtpd_ps(as<__m256d>(x.low));
    const __m128 high = _mm256_cvtpd_ps(as<__m256d>(x.high));
    return as<Floats>(_mm256_insertf128_ps(_mm256_castps128_ps256(low), high, 1));
#elif defined(__x86_64__)
    return as<Floats>(
        _mm_movelh_ps(_mm_cvtpd_ps(as<__m128d>(x.low)), _mm_cvtpd_ps(as<__m128d>(x.high))));
#else
    const HalfFloats halves[2] = {__builtin_convertvector(x.low, HalfFloats),
                                  __builtin_convertvector(x.high, HalfFloats)};
    Floats floats;
    __builtin_memcpy(&floats, halves, sizeof floats);
    return floats;
#endif
}

// Rounded to odd to 24 bits: the last one is set if bits below it were, so that what follows can
// round to fewer bits as if it had all of them. A sum of 16-bit types too small for a normal
// float32 has no bits below.
inline Doubles to_odd(Doubles x) {
    typedef std::int64_t Longs __attribute__((vector_size(sizeof(Doubles))));
    constexpr std::int64_t kBelow = (std::int64_t{1} << 29) - 1;
    const Longs bits = as<Longs>(x);
    const Longs trace = (bits & kBelow) != 0;
    return as<Doubles>((bits & ~kBelow) | (trace & (kBelow + 1)));
}

// float32 to a 16-bit type; all NaN become one.
template <Dtype kType>
inline Shorts narrow(Floats x) {
    if constexpr (kType == Dtype::Bfloat16) {
        const Integers bits = as<Integers>(x);
        const Integers rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
        return arithmetic::cut(
            arithmetic::select(is_nan(x), arithmetic::all(0x7FC0), rounded & 0xFFFF));
    } else {
        const Integers half = arithmetic::extend(arithmetic::to_half(x));
        return arithmetic::cut(arithmetic::select(is_nan(x), arithmetic::all(0x7E00), half));
    }
}

// Makes exact sums what is to be rounded, still exactly. (A loop reads the fields once, as a
// compiler need not know that results do not overwrite a Sum.)
struct Scaling {
    explicit Scaling(const Sum& sum)
        : none(sum.scale == 0 && sum.all_present),
          missing(sum.all_present ? -0.0 : 0.0),
          factor(as<double>(static_cast<std::uint64_t>(1023 - sum.scale) << 52)) {}

    Wide operator()(const Wide& x) const {
        if (none) return x;
        return {(x.low + missing) * factor, (x.high + missing) * factor};
    }
    // Of 16-bit types there is room for the factor below float32's normal numbers.
    Floats operator()(Floats x) const { return complete(x) * static_cast<float>(factor); }
    Floats complete(Floats x) const { return x + static_cast<float>(missing); }

    bool none;
    // Adding +0 changes -0 only, and adding -0 changes nothing.
    double missing;
    double factor;
};

// In the storage of the type, rounded to nearest, ties to even.
template <Dtype kType>
inline auto rounded(const Wide& wide) {
    if constexpr (kType == Dtype::Float32) {
        return one_nan(singles(wide));
    } else {
        return narrow<kType>(singles({to_odd(wide.low), to_odd(wide.high)}));
    }
}

template <Dtype kType>
inline auto rounded(Floats floats) {
    return narrow<kType>(floats);
}

}  // namespace

}  // namespace afflux::sums
