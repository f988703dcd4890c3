// Memory for pieces on their way: of peers' contributions that wait to be reduced, of terms that
// wait to be sent.
#pragma once

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/packed_terms.hpp"
#include "streams/message.hpp"

namespace afflux::streams {

// For how many pieces beyond the reduced ones an owner has room, for each peer.
inline constexpr std::size_t kPiecesAhead = 16;

struct Landing {
    alignas(64) std::array<std::byte, kPieceBytes> elements;
    std::array<std::uint8_t, kPieceBlocks> present;
    // Of blocks of two terms or more, which ones are packed, and these in a row.
    std::array<std::uint8_t, kPieceBlocks / 2> is_packed;
    std::array<std::byte, kPieceBlocks / 2 * kPackedBytes> packed;
};

// The last one that came back is the next to be taken, as it is in a cache.
class LandingPool {
  public:
    std::unique_ptr<Landing> take() {
        if (free_.empty()) return std::unique_ptr<Landing>(new Landing);
        auto landing = std::move(free_.back());
        free_.pop_back();
        return landing;
    }
    void give_back(std::unique_ptr<Landing> landing) { free_.push_back(std::move(landing)); }

  private:
    std::vector<std::unique_ptr<Landing>> free_;
};

}  // namespace afflux::streams
