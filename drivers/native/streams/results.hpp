// Results of an aggregator at a rank, for ranks that go on without it.
#pragma once

#include <cstddef>

#include "streams/landing.hpp"
#include "streams/layout.hpp"

namespace afflux::streams {

// Of a part that the aggregator owns, in one lane. Pieces of results come in order, and each is put
// in its place as a whole, so that elsewhere there are the rank's contributions.
struct Results {
    Part part;
    std::size_t piece_bytes = 0;
    std::size_t pieces = 0;  // that are in place
};

// Where a piece of results lands, of so many. The last ones each have a landing that stays theirs:
// an aggregator sums no piece before all ranks have contributed to it, and none contributes to one
// that is further ahead of its results, so ranks that have all results know what others may lack.
constexpr std::size_t landing_of_result(std::size_t piece, std::size_t pieces) {
    return (piece + kPiecesAhead > pieces ? piece + kPiecesAhead : pieces) % kPiecesAhead;
}

}  // namespace afflux::streams
