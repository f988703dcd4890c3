// Doubles from the integers of partial sums, and back.
//
// Both ways are exact or noticed. Upper and lower bits are converted apart, as there is no vector
// conversion of 64 bits on most processors; where a double does not hold both, their addition sets
// the flag of inexact results.
#pragma once

#include "sums/kernels/doubles.hpp"
#include "sums/kernels/inexact.hpp"

namespace afflux::sums {

namespace {

typedef std::int64_t Longs __attribute__((vector_size(sizeof(Doubles))));
using arithmetic::HalfIntegers;

// Added to a whole number of less than 2**51, it leaves the number's lower bits as they are.
constexpr double kWhole = 0x1.8p52;

inline double exact_power_of_two(int power) {
    return as<double>(static_cast<std::uint64_t>(1023 + power) << 52);
}

inline Longs select(Longs mask, Longs yes, Longs no) {
    return (mask & yes) | (~mask & no);
}

inline Wide wide_of(Integers x) {
    HalfIntegers halves[2];
    __builtin_memcpy(halves, &x, sizeof x);
    return {__builtin_convertvector(halves[0], Doubles),
            __builtin_convertvector(halves[1], Doubles)};
}

// Integers of a plane, in memory as numbers of so many bits.
template <typename Number>
struct Plane {
    typedef Number Numbers __attribute__((vector_size(sizeof(Number) * kLanes)));

    static Integers load(const std::byte* plane, std::size_t i) {
        return __builtin_convertvector(arithmetic::load<Numbers>(plane + sizeof(Number) * i),
                                       Integers);
    }
    static void store(std::byte* plane, std::size_t i, Integers x) {
        arithmetic::store(plane + sizeof(Number) * i, __builtin_convertvector(x, Numbers));
    }
};

// A block as it lies in memory: the lower plane is as long as a block of numbers.
template <int kBits>
struct Planes {
    static constexpr std::size_t kElements = kBits == 32 ? 128 : 64;
    static constexpr int kLowerBits = kBits == 32 ? 16 : 32;
    static constexpr std::size_t kUpperPlane = kElements * kLowerBits / 8;
    // The upper bits of the least integer.
    static constexpr std::int32_t kLeast = INT32_MIN >> (32 - (kBits - kLowerBits));

    using Lower = Plane<std::conditional_t<kLowerBits == 16, std::uint16_t, std::int32_t>>;
    using Upper =
        Plane<std::conditional_t<kBits == 40, std::int8_t,
                                 std::conditional_t<kBits == 64, std::int32_t, std::int16_t>>>;

    static Integers lower(const std::byte* block, std::size_t i) { return Lower::load(block, i); }
    static Integers upper(const std::byte* block, std::size_t i) {
        return Upper::load(block + kUpperPlane, i);
    }
    static void store(std::byte* block, std::size_t i, Integers lower, Integers upper) {
        Lower::store(block, i, lower);
        Upper::store(block + kUpperPlane, i, upper);
    }
};

// In place of sums, by how far an integer is above the least: 1 is -0, then NaN and infinities.
inline Floats special_floats(Integers code) {
    const Integers bits = ((code == 1) & INT32_MIN) | ((code == 2) & 0x7FC00000) |
                          ((code == 3) & 0x7F800000) |
                          ((code == 4) & static_cast<std::int32_t>(0xFF800000));
    return as<Floats>(bits);
}

inline Wide choose(Integers mask, const Wide& yes, const Wide& no) {
    HalfIntegers halves[2];
    __builtin_memcpy(halves, &mask, sizeof mask);
    const auto one = [](HalfIntegers half, Doubles a, Doubles b) {
        return as<Doubles>(
            select(__builtin_convertvector(half, Longs), as<Longs>(a), as<Longs>(b)));
    };
    return {one(halves[0], yes.low, no.low), one(halves[1], yes.high, no.high)};
}

// kLanes integers as doubles, in their unit. Adds to `not_summed` the lanes that say so.
template <int kBits>
inline Wide doubles_of(const std::byte* block, std::size_t i, double unit, Integers& not_summed) {
    Integers lower = Planes<kBits>::lower(block, i), upper = Planes<kBits>::upper(block, i);
    const Integers code = lower;
    const Integers special = (upper == Planes<kBits>::kLeast) & (code >= 0) & (code <= 4);
    if constexpr (kBits > 32) {
        // No double holds these, which would count as inexact.
        lower &= ~special;
    }
    Wide sum;
    if constexpr (kBits > 32) {
        const Wide high = wide_of(upper), low = wide_of(lower ^ INT32_MIN);
        sum = {high.low * 0x1p32 + (low.low + 0x1p31), high.high * 0x1p32 + (low.high + 0x1p31)};
    } else {
        sum = wide_of(lower | upper << 16);
    }
    sum = {sum.low * unit, sum.high * unit};
    if (!arithmetic::any(special)) return sum;
    not_summed |= special & (code == 0);
    return choose(special, widen(special_floats(code)), sum);
}

template <int kBits>
bool add_integers(int unit_power, const std::byte* block, bool first, double* sums) {
    const double unit = exact_power_of_two(unit_power);
    Integers not_summed{};
    for (std::size_t i = 0; i < Planes<kBits>::kElements; i += kLanes) {
        Wide sum = doubles_of<kBits>(block, i, unit, not_summed);
        if (!first) sum += get<Wide>(sums + i);
        put(sums + i, sum);
    }
    const bool exact = !inexact(sums);
    if (!exact) clear_inexact(sums);
    return exact && !arithmetic::any(not_summed);
}

// Both planes of kLanes / 2 integers.
struct Parts {
    Longs lower, upper;
};

// Of sums in their unit. Takes lanes from `fits` where the integer has not so many bits.
template <int kBits>
inline Parts parts_of(Doubles sum, Longs& fits) {
    constexpr double kLeast = kBits == 32   ? -0x1p31
                              : kBits == 40 ? -0x1p39
                              : kBits == 48 ? -0x1p47
                                            : -0x1p63;
    const Longs code = ((as<Longs>(sum) == INT64_MIN) & 1) | ((sum != sum) & 2) |
                       ((sum == __builtin_inf()) & 3) | ((sum == -__builtin_inf()) & 4);
    const Longs special = code != 0;
    const Longs within = (sum > kLeast + 4) & (sum < -kLeast);
    if constexpr (kBits == 32) {
        const Doubles whole = sum + kWhole;
        fits &= special | (within & (whole - kWhole == sum));
        const Longs bits = select(special, code | INT32_MIN, as<Longs>(whole));
        return {bits, bits >> 16};
    } else {
        const Doubles places = sum * 0x1p-32;
        Doubles upper = (places + kWhole) - kWhole;
        upper += __builtin_convertvector(upper > places, Doubles);
        const Doubles lower = sum - upper * 0x1p32;
        // The lower part has lost bits where it does not make the sum again.
        const Longs whole = ((lower + 0x1p52) - 0x1p52 == lower) & (upper * 0x1p32 + lower == sum);
        fits &= special | (within & whole);
        const Longs least = Longs{} + Planes<kBits>::kLeast;
        return {select(special, code, as<Longs>(lower + 0x1p52)),
                select(special, least, as<Longs>(upper + kWhole))};
    }
}

inline Integers lower_halves(Longs low, Longs high) {
    const HalfIntegers halves[2] = {__builtin_convertvector(low, HalfIntegers),
                                    __builtin_convertvector(high, HalfIntegers)};
    Integers x;
    __builtin_memcpy(&x, halves, sizeof x);
    return x;
}

template <int kBits>
void not_summed_block(std::byte* block) {
    for (std::size_t i = 0; i < Planes<kBits>::kElements; i += kLanes) {
        Planes<kBits>::store(block, i, Integers{}, arithmetic::all(Planes<kBits>::kLeast));
    }
}

template <int kBits>
void to_integers(int unit_power, bool all_present, const double* sums, std::byte* block) {
    const double factor = exact_power_of_two(-unit_power);
    const double missing = all_present ? -0.0 : 0.0;
    Longs fits = ~Longs{};
    for (std::size_t i = 0; i < Planes<kBits>::kElements; i += kLanes) {
        const Wide sum = get<Wide>(sums + i);
        const Parts low = parts_of<kBits>((sum.low + missing) * factor, fits);
        const Parts high = parts_of<kBits>((sum.high + missing) * factor, fits);
        Planes<kBits>::store(block, i, lower_halves(low.lower, high.lower),
                             lower_halves(low.upper, high.upper));
    }
    clear_inexact(sums);
    bool all_fit = true;
    for (std::size_t i = 0; i < kLanes / 2; ++i) all_fit = all_fit && fits[i] != 0;
    if (!all_fit) not_summed_block<kBits>(block);
}

// Calls `with.operator()<kBits>()`.
template <typename With>
inline void with_bits(int bits, With with) {
    switch (bits) {
        case 32:
            return with.template operator()<32>();
        case 40:
            return with.template operator()<40>();
        case 48:
            return with.template operator()<48>();
        case 64:
            return with.template operator()<64>();
    }
}

bool add_partial_kernel(int bits, int unit, const void* block, bool first, double* sums) {
    bool summed = false;
    with_bits(bits, [&]<int kBits>() {
        summed = add_integers<kBits>(unit, static_cast<const std::byte*>(block), first, sums);
    });
    return summed;
}

void partial_kernel(int bits, int unit, bool all_present, const double* sums, void* block) {
    with_bits(bits, [&]<int kBits>() {
        to_integers<kBits>(unit, all_present, sums, static_cast<std::byte*>(block));
    });
}

}  // namespace

}  // namespace afflux::sums
