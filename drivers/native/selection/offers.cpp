#include "selection/offers.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "selection/least.hpp"
#include "selection/magnitude.hpp"

namespace afflux::selection {
namespace {

constexpr std::size_t kSegment = 1 << 16;
constexpr int kLeastExponent = -149;  // Every float is a multiple of two to this.

std::size_t segments_of(std::size_t elements) {
    return (elements + kSegment - 1) / kSegment;
}

// The tensor's size, and how many offers there are.
constexpr std::size_t kHead = 4;

std::array<std::int32_t, kHead> head_of(std::size_t elements, std::size_t count) {
    const auto low = [](std::size_t value) { return static_cast<std::int32_t>(value); };
    return {low(elements), low(elements >> 32), low(count), low(count >> 32)};
}

// Words hold two low halves each as memory does.
static_assert(std::endian::native == std::endian::little);

std::string text_of(std::size_t rank, std::span<const std::int32_t> head) {
    const auto number = [&](std::size_t at) {
        const auto low = static_cast<std::uint32_t>(head[at]);
        return std::to_string(std::uint64_t{static_cast<std::uint32_t>(head[at + 1])} << 32 | low);
    };
    return "rank " + std::to_string(rank) + " offers " + number(2) + " of " + number(0) +
           " elements";
}

// Before anything else: what is not the same everywhere must be the same error everywhere.
void check_heads(std::span<const std::int32_t> messages, std::size_t ranks, std::size_t words) {
    const auto first = messages.first(kHead);
    for (std::size_t rank = 1; rank < ranks; ++rank) {
        const auto head = messages.subspan(rank * words, kHead);
        if (!std::ranges::equal(head, first)) {
            throw std::invalid_argument(text_of(0, first) + ", " + text_of(rank, head));
        }
    }
}

// A message taken apart.
struct Message {
    std::span<const std::int32_t> counts;  // by segment
    const std::uint16_t* lows;
    std::span<const std::int32_t> values;  // floats

    Message(std::span<const std::int32_t> words, std::size_t elements, std::size_t count)
        : counts(words.subspan(kHead, segments_of(elements))),
          lows(reinterpret_cast<const std::uint16_t*>(counts.data() + counts.size())),
          values(words.last(count)) {}

    std::size_t in_segment(std::size_t segment) const {
        return static_cast<std::size_t>(static_cast<std::uint32_t>(counts[segment]));
    }
};

// Says which offer it is that is infinite or NaN; there is one.
std::string text_of_not_finite(const std::vector<Message>& messages) {
    for (std::size_t rank = 0; rank < messages.size(); ++rank) {
        const Message& message = messages[rank];
        std::size_t i = 0;
        for (std::size_t segment = 0; segment < message.counts.size(); ++segment) {
            for (const std::size_t end = i + message.in_segment(segment); i < end; ++i) {
                const auto value = std::bit_cast<float>(message.values[i]);
                if (std::isfinite(value)) continue;
                return "rank " + std::to_string(rank) + " has " +
                       (std::isnan(value) ? "NaN" : "an infinite element") + " at " +
                       std::to_string(segment * kSegment + message.lows[i]);
            }
        }
    }
    return "an offer is infinite or NaN";
}

// Rounds half to even. Exact but for that: it multiplies by a power of two. Adding this number lets
// the quanta appear in the low bits, for several values at once.
std::int32_t quanta_of(float value, double quanta_per_one) {
    constexpr double kUnit = 0x1.8p52;
    return static_cast<std::int32_t>(
        std::bit_cast<std::int64_t>(static_cast<double>(value) * quanta_per_one + kUnit));
}

// The sums of offers that are not zero. Places of one segment lie together, in any order.
struct Union {
    std::vector<std::int32_t> sums;
    std::vector<std::uint16_t> lows;
    std::vector<std::size_t> ends;  // by segment
};

Union sum_up(const std::vector<Message>& messages, std::size_t segments, std::size_t count,
             double quantum) {
    const double quanta_per_one = 1 / quantum;
    std::vector<std::int32_t> quanta(messages.size() * count);
    for (std::size_t rank = 0; rank < messages.size(); ++rank) {
        std::transform(messages[rank].values.begin(), messages[rank].values.end(),
                       quanta.begin() + static_cast<std::ptrdiff_t>(rank * count),
                       [=](std::int32_t bits) {
                           return quanta_of(std::bit_cast<float>(bits), quanta_per_one);
                       });
    }
    Union all;
    all.sums.resize(quanta.size());
    all.lows.resize(quanta.size());
    std::vector<std::int32_t> sums(kSegment);
    std::vector<std::size_t> first(messages.size(), 0);
    std::size_t size = 0;
    for (std::size_t segment = 0; segment < segments; ++segment) {
        for (std::size_t rank = 0; rank < messages.size(); ++rank) {
            const std::uint16_t* const lows = messages[rank].lows + first[rank];
            const std::int32_t* const added = quanta.data() + rank * count + first[rank];
            const std::size_t offers = messages[rank].in_segment(segment);
            for (std::size_t i = 0; i < offers; ++i) sums[lows[i]] += added[i];
        }
        for (std::size_t rank = 0; rank < messages.size(); ++rank) {
            const std::uint16_t* const lows = messages[rank].lows + first[rank];
            const std::size_t offers = messages[rank].in_segment(segment);
            for (std::size_t i = 0; i < offers; ++i) {
                // An element that several ranks offer is met once.
                const std::int32_t sum = std::exchange(sums[lows[i]], 0);
                all.sums[size] = sum;
                all.lows[size] = lows[i];
                size += sum != 0;
            }
            first[rank] += offers;
        }
        all.ends.push_back(size);
    }
    all.sums.resize(size);
    all.lows.resize(size);
    return all;
}

// Adds the `count` largest sums to the result, by place; of equal ones the first places.
void choose(const Union& all, std::size_t count, Sums* result) {
    const bool some = all.sums.size() > count;
    const Least least = some ? least_of(all.sums, count) : Least{0, 0};
    std::size_t equal = least.equal;
    struct Chosen {
        std::uint16_t low;
        std::int32_t sum;
    };
    std::vector<Chosen> chosen;
    std::size_t first = 0;
    for (std::size_t segment = 0; segment < all.ends.size(); ++segment) {
        chosen.resize(all.ends[segment] - first);
        std::size_t size = 0;
        // No branches: which are chosen is random.
        for (; first < all.ends[segment]; ++first) {
            chosen[size] = {all.lows[first], all.sums[first]};
            size += std::abs(all.sums[first]) >= least.magnitude;
        }
        chosen.resize(size);
        std::sort(chosen.begin(), chosen.end(),
                  [](const Chosen& one, const Chosen& other) { return one.low < other.low; });
        for (const Chosen& each : chosen) {
            if (some && std::abs(each.sum) == least.magnitude) {
                if (equal == 0) continue;
                --equal;
            }
            result->places.push_back(static_cast<std::int64_t>(segment * kSegment + each.low));
            result->sums.push_back(static_cast<float>(each.sum * result->quantum));
        }
    }
}

}  // namespace

std::size_t message_words(std::size_t elements, std::size_t count) {
    return kHead + segments_of(elements) + (count + 1) / 2 + count;
}

void pack(std::span<const float> values, std::span<const std::int64_t> places, std::size_t elements,
          std::span<std::int32_t> message) {
    if (values.size() != places.size() ||
        message.size() != message_words(elements, places.size())) {
        throw std::invalid_argument("values or message are of another size");
    }
    std::ranges::copy(head_of(elements, places.size()), message.begin());
    const auto counts = message.subspan(kHead, segments_of(elements));
    const auto lows = message.subspan(kHead + counts.size(), (places.size() + 1) / 2);
    std::fill(counts.begin(), lows.end(), 0);
    for (std::size_t i = 0; i < places.size(); ++i) {
        const auto place = static_cast<std::size_t>(places[i]);
        ++counts[place / kSegment];
        const auto low = static_cast<std::uint32_t>(place % kSegment);
        lows[i / 2] |= static_cast<std::int32_t>(i % 2 == 0 ? low : low << 16);
    }
    std::transform(values.begin(), values.end(), message.end() - std::ssize(values),
                   [](float value) { return std::bit_cast<std::int32_t>(value); });
}

double quantum_of(float limit, std::size_t ranks) {
    // Offers are at most 2 ** (24 - bits) quanta, so that sums have 24 bits.
    const int bits = static_cast<int>(std::bit_width(ranks - 1));
    int exponent = 0;
    std::frexp(limit, &exponent);
    return std::ldexp(
        1.0, std::max(exponent - (std::numeric_limits<float>::digits - bits), kLeastExponent));
}

Sums largest_sums(std::span<const std::int32_t> messages, std::size_t ranks, std::size_t elements,
                  std::size_t count) {
    const std::size_t words = message_words(elements, count);
    if (messages.size() != ranks * words) throw std::invalid_argument("messages of another size");
    check_heads(messages, ranks, words);
    const auto own = head_of(elements, count);
    if (!std::ranges::equal(messages.first(kHead), own)) {
        throw std::invalid_argument("messages are for a tensor of another size");
    }
    std::vector<Message> of_ranks;
    Magnitude most = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        const Message& message =
            of_ranks.emplace_back(messages.subspan(rank * words, words), elements, count);
        std::size_t offers = 0;
        for (std::size_t segment = 0; segment < segments_of(elements); ++segment) {
            offers += message.in_segment(segment);
        }
        if (offers != count) throw std::invalid_argument("a message of another number of offers");
        for (std::size_t i = 0; i < count; ++i) {
            most = std::max(most, message.values[i] & kLargestMagnitude);
        }
    }
    const auto limit = std::bit_cast<float>(most);
    if (!std::isfinite(limit)) throw std::domain_error(text_of_not_finite(of_ranks));
    Sums result;
    if (most == 0) return result;
    result.quantum = quantum_of(limit, ranks);
    result.places.reserve(count);
    result.sums.reserve(count);
    choose(sum_up(of_ranks, segments_of(elements), count, result.quantum), count, &result);
    if (!result.places.empty() && static_cast<std::size_t>(result.places.back()) >= elements) {
        throw std::invalid_argument("an offer lies behind the tensor's end");
    }
    if (std::any_of(result.sums.begin(), result.sums.end(),
                    [](float sum) { return std::isinf(sum); })) {
        throw std::overflow_error("a sum is beyond the range of float32");
    }
    return result;
}

void settle(std::span<float> values, std::span<const std::int64_t> places,
            std::span<const std::int64_t> taken, double quantum) {
    const double quanta_per_one = 1 / quantum;
    auto next = taken.begin();
    for (std::size_t i = 0; i < places.size(); ++i) {
        while (next != taken.end() && *next < places[i]) ++next;
        if (next == taken.end()) return;
        if (*next != places[i]) continue;
        values[i] = static_cast<float>(static_cast<double>(values[i]) -
                                       quanta_of(values[i], quanta_per_one) * quantum);
    }
}

}  // namespace afflux::selection
