#include "nccl/size_table.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <set>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace afflux::nccl {
namespace {

constexpr std::size_t kOpen = std::numeric_limits<std::size_t>::max();
constexpr std::string_view kNone = "none";

template <typename Number>
bool read_number(std::string_view text, Number& out) {
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), out);
    return error == std::errc() && stop == text.data() + text.size();
}

// Of least:most or least:, in bytes.
std::optional<ByteRange> parse_range(std::string_view text) {
    const std::size_t colon = text.find(':');
    if (colon == text.npos) return std::nullopt;
    ByteRange range{0, kOpen};
    const std::string_view most = text.substr(colon + 1);
    if (!read_number(text.substr(0, colon), range.least)) return std::nullopt;
    if (!most.empty() && !read_number(most, range.most)) return std::nullopt;
    return range.least <= range.most ? std::optional(range) : std::nullopt;
}

ByteRanges in_both(const ByteRanges& one, const ByteRanges& other) {
    ByteRanges shared;
    for (const ByteRange& each : one) {
        for (const ByteRange& with : other) {
            const ByteRange range{std::max(each.least, with.least), std::min(each.most, with.most)};
            if (range.least <= range.most) shared.push_back(range);
        }
    }
    return shared;
}

// The measured values next to one, which may be that itself; nothing if it lies beyond them.
template <typename Number>
std::vector<Number> neighbours(const std::set<Number>& measured, Number value) {
    const auto above = measured.lower_bound(value);
    if (above == measured.end()) return {};
    if (*above == value) return {value};
    if (above == measured.begin()) return {};
    return {*std::prev(above), *above};
}

}  // namespace

std::string text_of(const ByteRanges& ranges) {
    std::string text;
    for (const ByteRange& each : ranges) {
        if (!text.empty()) text += ',';
        text += std::to_string(each.least) + ':';
        if (each.most != kOpen) text += std::to_string(each.most);
    }
    return text.empty() ? std::string(kNone) : text;
}

std::optional<ByteRanges> parse_ranges(std::string_view text) {
    ByteRanges ranges;
    if (text == kNone) return ranges;
    for (std::size_t first = 0; first <= text.size();) {
        const std::size_t end = std::min(text.find(',', first), text.size());
        const std::optional<ByteRange> range = parse_range(text.substr(first, end - first));
        if (!range) return std::nullopt;
        ranges.push_back(*range);
        first = end + 1;
    }
    return ranges;
}

SizeTable SizeTable::parse(std::string_view text) {
    SizeTable made;
    std::istringstream lines{std::string(text)};
    std::string line;
    for (int number = 1; std::getline(lines, line); ++number) {
        const std::string content = line.substr(0, line.find('#'));
        std::istringstream words(content);
        std::string engine, gbit, nodes, ranges, more;
        if (!(words >> engine)) continue;
        Row row{.engine = engine, .gbit = 0, .nodes = 0, .ranges = {}};
        std::optional<ByteRanges> found;
        if (words >> gbit >> nodes >> ranges && !(words >> more)) found = parse_ranges(ranges);
        const bool good = found && read_number(gbit, row.gbit) && row.gbit > 0 &&
                          read_number(nodes, row.nodes) && row.nodes > 1;
        if (!good || made.row(engine, row.gbit, row.nodes) != nullptr) {
            throw std::invalid_argument(
                "line " + std::to_string(number) + ": '" + line + "' " +
                (good ? "is the second for these nodes"
                      : "is not: engine, Gbit/s, nodes, and ranges of bytes as 0:1024,65536: or "
                        "none"));
        }
        row.ranges = std::move(*found);
        made.rows_.push_back(std::move(row));
    }
    return made;
}

const SizeTable::Row* SizeTable::row(const std::string& engine, double gbit,
                                     std::size_t nodes) const {
    const auto found = std::find_if(rows_.begin(), rows_.end(), [&](const Row& each) {
        return each.engine == engine && each.gbit == gbit && each.nodes == nodes;
    });
    return found == rows_.end() ? nullptr : &*found;
}

std::optional<ByteRanges> SizeTable::sizes(const std::string& engine, double gbit,
                                           std::size_t nodes) const {
    std::set<double> rates;
    std::set<std::size_t> numbers;
    for (const Row& each : rows_) {
        if (each.engine != engine) continue;
        rates.insert(each.gbit);
        numbers.insert(each.nodes);
    }
    std::optional<ByteRanges> all;
    for (const double rate : neighbours(rates, gbit)) {
        for (const std::size_t number : neighbours(numbers, nodes)) {
            const Row* const near = row(engine, rate, number);
            if (near == nullptr) return std::nullopt;
            all = all ? in_both(*all, near->ranges) : near->ranges;
        }
    }
    return all;
}

std::string SizeTable::described(double gbit, std::size_t nodes) const {
    std::set<std::string> engines;
    for (const Row& each : rows_) engines.insert(each.engine);
    std::string text;
    for (const std::string& each : engines) {
        const std::optional<ByteRanges> found = sizes(each, gbit, nodes);
        if (found) text += (text.empty() ? "" : "; ") + each + " " + text_of(*found);
    }
    return text.empty() ? "not in the table" : text;
}

}  // namespace afflux::nccl
