#include "worker/grid.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "contract/wire.hpp"

namespace afflux::worker {
namespace {

constexpr std::size_t divide_up(std::size_t dividend, std::size_t divisor) {
    return dividend / divisor + (dividend % divisor != 0);
}

Share checked(Share share) {
    if (share.own < share.of) return share;
    throw std::invalid_argument("aggregator " + std::to_string(share.own) + " is none of " +
                                std::to_string(share.of));
}

}  // namespace

std::size_t sharing(std::size_t blocks, std::size_t lanes, std::size_t aggregators) {
    return std::clamp<std::size_t>(divide_up(blocks, lanes), 1, aggregators);
}

Grid::Grid(std::size_t blocks, std::size_t given_lanes, std::size_t job_slots, Share given_share)
    : lanes(given_lanes),
      share(checked(given_share)),
      slots(std::clamp<std::size_t>(divide_up(blocks, share.of * lanes), 1, job_slots)),
      rows(divide_up(blocks, row_blocks())) {
    if (rows <= wire::kRowsMax) return;
    throw std::invalid_argument(
        std::to_string(blocks) + " blocks in " + std::to_string(share.of * slots) + " slots of " +
        std::to_string(lanes) + " lanes make " + std::to_string(rows) + " rows; at most " +
        std::to_string(wire::kRowsMax) + " are possible");
}

}  // namespace afflux::worker
