// Sizes of the all-reduces for which an aggregator was faster than a ring, as somebody has measured
// them: by the kind of the engine that sums, the rate of the nodes' links, and the number of nodes.
//
//     # engine  Gbit/s  nodes  bytes
//     soft      1       4      0:1024,262144:
//     soft      10      4      none
//
// A range has both its ends in it; one without an end has all sizes from there on. The engine is
// named as its control channel names it; an aggregator of streams is `streams`, and the nodes
// themselves, over streams, are `mesh`.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace afflux::nccl {

struct ByteRange {
    std::size_t least;
    std::size_t most;

    bool holds(std::size_t bytes) const { return least <= bytes && bytes <= most; }
};

using ByteRanges = std::vector<ByteRange>;

// As the table has them; `none` if there are none.
std::string text_of(const ByteRanges& ranges);

// Nothing if it is another text.
std::optional<ByteRanges> parse_ranges(std::string_view text);

class SizeTable {
  public:
    // An empty table has no engine.
    SizeTable() = default;

    // Throws std::invalid_argument, which gives the line, for one that is not as described above.
    static SizeTable parse(std::string_view text);

    // The sizes for so many nodes with links of this rate. Between rates or numbers that were
    // measured it is the sizes that both neighbours have. Null beyond them, and if the engine is
    // not in the table: nothing is known there.
    std::optional<ByteRanges> sizes(const std::string& engine, double gbit,
                                    std::size_t nodes) const;

    // The same for all engines that have some, for a comparison among nodes.
    std::string described(double gbit, std::size_t nodes) const;

  private:
    struct Row {
        std::string engine;
        double gbit;
        std::size_t nodes;
        ByteRanges ranges;
    };

    const Row* row(const std::string& engine, double gbit, std::size_t nodes) const;

    std::vector<Row> rows_;
};

}  // namespace afflux::nccl
