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

}  // namespace

Grid::Grid(std::size_t blocks, std::size_t given_lanes, std::size_t job_slots)
    : lanes(given_lanes),
      slots(std::clamp<std::size_t>(divide_up(blocks, lanes), 1, job_slots)),
      rows(divide_up(blocks, slots * lanes)) {
    if (rows <= wire::kRowsMax) return;
    throw std::invalid_argument(std::to_string(blocks) + " blocks in " + std::to_string(slots) +
                                " slots of " + std::to_string(lanes) + " lanes make " +
                                std::to_string(rows) + " rows; at most " +
                                std::to_string(wire::kRowsMax) + " are possible");
}

}  // namespace afflux::worker
