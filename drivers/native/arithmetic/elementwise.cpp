#include "arithmetic/elementwise.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <type_traits>

#include "arithmetic/environment.hpp"

namespace afflux::arithmetic {
namespace {

// The part that stays in the first cache while the sources are added to it one after the other.
constexpr std::size_t kPieceBytes = 4096;

// Types rather than functions, so that the loops over them are vectorised. Sums wrap, which is
// defined for unsigned integers only; those of narrow ones are promoted to int.
__extension__ using Integer128 = __int128;

struct Add {
    template <typename T>
    T operator()(T a, T b) const {
        if constexpr (std::is_integral_v<T>) {
            using U = std::make_unsigned_t<T>;
            return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
        } else {
            return a + b;
        }
    }
};

struct Multiply {
    template <typename T>
    T operator()(T a, T b) const {
        if constexpr (std::is_integral_v<T>)
            return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
        else
            return a * b;
    }
};

// `b` if `a` is behind it, or if it is a NaN; else `a`, which stays if it is one, as comparisons
// with a NaN are false.
template <typename IsBehind>
struct Foremost {
    template <typename T>
    T operator()(T a, T b) const {
        if constexpr (std::is_floating_point_v<T>)
            if (std::isnan(b)) return b;
        return IsBehind()(a, b) ? b : a;
    }
};

using Greater = Foremost<std::less<>>;
using Less = Foremost<std::greater<>>;

struct Same {
    template <typename T>
    T operator()(T value) const {
        return value;
    }
};

// Through memcpy, as tensors need not be aligned.
template <typename T>
T load(const void* elements, std::size_t i) {
    T value;
    std::memcpy(&value, static_cast<const char*>(elements) + i * sizeof(T), sizeof(T));
    return value;
}

// Combines the elements of all sources, each as begin(element) of type `Sum`, a piece at a time,
// and writes finish(sum).
template <typename T, typename Sum, typename Begin, typename Combine, typename Finish>
void in_pieces(std::size_t count, int sources, const void* const* elements, void* out, Begin begin,
               Combine combine, Finish finish) {
    constexpr std::size_t kPiece = kPieceBytes / sizeof(T);
    alignas(64) Sum sums[kPiece];
    for (std::size_t first = 0; first < count; first += kPiece) {
        const std::size_t n = std::min(kPiece, count - first);
        const void* const one = elements[0];
        const void* const two = sources > 1 ? elements[1] : nullptr;
        if (two) {
            for (std::size_t i = 0; i < n; ++i)
                sums[i] = combine(begin(load<T>(one, first + i)), begin(load<T>(two, first + i)));
        } else {
            for (std::size_t i = 0; i < n; ++i) sums[i] = begin(load<T>(one, first + i));
        }
        for (int r = 2; r < sources; ++r) {
            const void* const source = elements[r];
            for (std::size_t i = 0; i < n; ++i)
                sums[i] = combine(sums[i], begin(load<T>(source, first + i)));
        }
        char* const to = static_cast<char*>(out) + first * sizeof(T);
        for (std::size_t i = 0; i < n; ++i) {
            const T value = finish(sums[i]);
            std::memcpy(to + i * sizeof(T), &value, sizeof(T));
        }
    }
}

// The average's sum is wider than its type, or is one of elements that are divided by a power of
// two before: exactly, but for the smallest.
template <typename T>
void average_as(std::size_t count, int sources, const void* const* elements, void* out) {
    if constexpr (std::is_floating_point_v<T>) {
        const T scale = static_cast<T>(std::bit_ceil(static_cast<unsigned>(sources)));
        const T divisor = static_cast<T>(sources) / scale;
        in_pieces<T, T>(
            count, sources, elements, out, [scale](T value) { return value / scale; }, Add{},
            [divisor](T sum) { return sum / divisor; });
    } else {
        using Wide = std::conditional_t<sizeof(T) == 8, Integer128, std::int64_t>;
        in_pieces<T, Wide>(
            count, sources, elements, out, [](T value) { return static_cast<Wide>(value); },
            [](Wide a, Wide b) { return a + b; },
            [sources](Wide sum) { return static_cast<T>(sum / sources); });
    }
}

template <typename T>
void reduce_as(PlainOp op, std::size_t count, int sources, const void* const* elements, void* out) {
    switch (op) {
        case PlainOp::Sum:
            return in_pieces<T, T>(count, sources, elements, out, Same{}, Add{}, Same{});
        case PlainOp::Avg:
            return average_as<T>(count, sources, elements, out);
        case PlainOp::Max:
            return in_pieces<T, T>(count, sources, elements, out, Same{}, Greater{}, Same{});
        case PlainOp::Min:
            return in_pieces<T, T>(count, sources, elements, out, Same{}, Less{}, Same{});
        case PlainOp::Product:
            return in_pieces<T, T>(count, sources, elements, out, Same{}, Multiply{}, Same{});
    }
}

}  // namespace

void reduce_plain(Plain type, PlainOp op, std::size_t count, int sources,
                  const void* const* elements, void* out) {
    const FloatEnvironment environment;
    switch (type) {
        case Plain::Int64:
            return reduce_as<std::int64_t>(op, count, sources, elements, out);
        case Plain::Int32:
            return reduce_as<std::int32_t>(op, count, sources, elements, out);
        case Plain::Int16:
            return reduce_as<std::int16_t>(op, count, sources, elements, out);
        case Plain::Int8:
            return reduce_as<std::int8_t>(op, count, sources, elements, out);
        case Plain::Uint8:
            return reduce_as<std::uint8_t>(op, count, sources, elements, out);
        case Plain::Float64:
            return reduce_as<double>(op, count, sources, elements, out);
    }
}

}  // namespace afflux::arithmetic
