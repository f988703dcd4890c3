#include "selection/offers.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

#include "selection/scan.hpp"

namespace afflux::selection {
namespace {

constexpr std::size_t kSegment = 1 << 16;
constexpr std::size_t kWordBits = 64;
constexpr int kLeastExponent = -149;  // Every float is a multiple of two to this.

std::size_t segments_of(std::size_t elements) {
    return (elements + kSegment - 1) / kSegment;
}

// A message taken apart.
class Message {
  public:
    Message(std::span<const std::int32_t> words, std::size_t elements, std::size_t count)
        : counts_(words.first(segments_of(elements))),
          lows_(words.subspan(counts_.size(), (count + 1) / 2)),
          values_(words.subspan(counts_.size() + lows_.size())) {}

    std::size_t in_segment(std::size_t segment) const {
        return static_cast<std::size_t>(static_cast<std::uint32_t>(counts_[segment]));
    }
    std::size_t low(std::size_t offer) const {
        const auto word = static_cast<std::uint32_t>(lows_[offer / 2]);
        return offer % 2 == 0 ? word & 0xFFFF : word >> 16;
    }
    float value(std::size_t offer) const { return std::bit_cast<float>(values_[offer]); }

  private:
    std::span<const std::int32_t> counts_;
    std::span<const std::int32_t> lows_;
    std::span<const std::int32_t> values_;
};

std::int32_t quanta_of(float value, double quanta_per_one) {
    // Exact but for the rounding: it is a power of two.
    return static_cast<std::int32_t>(std::lrint(static_cast<double>(value) * quanta_per_one));
}

// Sums at the places of one segment.
class Segment {
  public:
    explicit Segment(std::size_t elements)
        : places_(std::min(elements, kSegment)),
          sums_(places_),
          present_((places_ + kWordBits - 1) / kWordBits) {}

    void add(std::size_t place, std::int32_t quanta) {
        if (place >= places_) throw std::invalid_argument("an offer lies behind the tensor's end");
        sums_[place] += quanta;
        present_[place / kWordBits] |= std::uint64_t{1} << place % kWordBits;
    }

    // Calls `each` with each place that was added to, ascending, and its sum; all is zero then.
    template <typename Each>
    void drain(const Each& each) {
        for (std::size_t word = 0; word < present_.size(); ++word) {
            for (std::uint64_t bits = std::exchange(present_[word], 0); bits != 0;
                 bits &= bits - 1) {
                const std::size_t place =
                    word * kWordBits + static_cast<std::size_t>(std::countr_zero(bits));
                each(place, std::exchange(sums_[place], 0));
            }
        }
    }

  private:
    std::size_t places_;
    std::vector<std::int32_t> sums_;
    std::vector<std::uint64_t> present_;
};

}  // namespace

std::size_t message_words(std::size_t elements, std::size_t count) {
    return segments_of(elements) + (count + 1) / 2 + count;
}

void pack(std::span<const float> values, std::span<const std::int64_t> places, std::size_t elements,
          std::span<std::int32_t> message) {
    if (values.size() != places.size() ||
        message.size() != message_words(elements, places.size())) {
        throw std::invalid_argument("values or message are of another size");
    }
    const auto counts = message.first(segments_of(elements));
    const auto lows = message.subspan(counts.size(), (places.size() + 1) / 2);
    std::fill(message.begin(), lows.end(), 0);
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
            most = std::max(most, magnitude_of(message.value(i)));
        }
    }
    const auto limit = std::bit_cast<float>(most);
    if (!std::isfinite(limit))
        throw std::domain_error("a rank's tensor has an infinite element or NaN");
    Sums result;
    if (most == 0) return result;
    result.quantum = quantum_of(limit, ranks);
    const double quanta_per_one = 1 / result.quantum;

    Segment sums(elements);
    std::vector<std::size_t> at(ranks, 0);
    Found found;
    found.magnitudes.reserve(ranks * count);
    found.places.reserve(ranks * count);
    std::vector<std::int32_t> signed_sums;
    signed_sums.reserve(ranks * count);
    std::vector<std::int64_t> places;
    places.reserve(ranks * count);
    for (std::size_t segment = 0; segment < segments_of(elements); ++segment) {
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            const Message& message = of_ranks[rank];
            for (std::size_t left = message.in_segment(segment); left > 0; --left, ++at[rank]) {
                sums.add(message.low(at[rank]), quanta_of(message.value(at[rank]), quanta_per_one));
            }
        }
        sums.drain([&](std::size_t place, std::int32_t sum) {
            ++result.offered;
            if (sum == 0) return;
            found.magnitudes.push_back(std::abs(sum));
            found.places.push_back(static_cast<std::int64_t>(places.size()));
            places.push_back(static_cast<std::int64_t>(segment * kSegment + place));
            signed_sums.push_back(sum);
        });
    }
    if (!places.empty() && static_cast<std::size_t>(places.back()) >= elements) {
        throw std::invalid_argument("an offer lies behind the tensor's end");
    }
    if (found.size() > count) found.keep_largest(count);
    for (const std::int64_t index : found.places) {
        const auto i = static_cast<std::size_t>(index);
        result.places.push_back(places[i]);
        result.sums.push_back(static_cast<float>(signed_sums[i] * result.quantum));
        if (std::isinf(result.sums.back()))
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
