// How many slots and rows the blocks of a tensor take, and where that ends.
#include <stdexcept>
#include <string>
#include <vector>

#include "contract/wire.hpp"
#include "tests/check.hpp"
#include "worker/grid.hpp"

using afflux::worker::Grid;
using afflux::worker::sharing;

namespace {

void test_every_block_has_one_position() {
    for (const std::size_t lanes : {1, 2, 5, 16}) {
        for (const std::size_t job_slots : {1, 3, 64}) {
            for (const std::size_t blocks : {1, 2, 16, 47, 48, 49, 1563}) {
                const Grid grid(blocks, lanes, job_slots);
                CHECK(1 <= grid.slots && grid.slots <= job_slots);
                // Every row but the last is full, and the last is not empty.
                CHECK(grid.row_blocks() == grid.slots * lanes);
                CHECK((grid.rows - 1) * grid.row_blocks() < blocks);
                CHECK(blocks <= grid.rows * grid.row_blocks());
            }
        }
    }
}

// Over all aggregators that share the columns.
void test_every_block_is_at_one_aggregator() {
    for (const std::size_t of : {1, 2, 3, 7}) {
        for (const std::size_t lanes : {1, 5, 16}) {
            for (const std::size_t blocks : {112, 113, 1563}) {
                std::vector<unsigned> found(blocks, 0);
                for (std::size_t own = 0; own < of; ++own) {
                    const Grid grid(blocks, lanes, 3, {own, of});
                    CHECK(grid.slots == Grid(blocks, lanes, 3, {0, of}).slots);
                    for (std::size_t at = 0; at < grid.rows * grid.slots * lanes; ++at) {
                        const std::size_t slot = at / lanes % grid.slots;
                        const std::size_t block =
                            grid.block(at / lanes / grid.slots, slot, at % lanes);
                        if (block < blocks) ++found[block];
                    }
                }
                for (const unsigned times : found) CHECK(times == 1);
            }
        }
    }
    CHECK(Grid(1000, 5, 3).block(2, 1, 4) == 2 * 15 + 5 + 4);
    CHECK(Grid(1000, 5, 3, {1, 2}).block(2, 1, 4) == (2 * 2 + 1) * 15 + 5 + 4);
}

void test_aggregators_are_no_more_than_there_are_packets() {
    CHECK(sharing(0, 5, 4) == 1 && sharing(5, 5, 4) == 1 && sharing(6, 5, 4) == 2);
    CHECK(sharing(16, 5, 4) == 4 && sharing(1000, 5, 4) == 4 && sharing(1000, 5, 1) == 1);
    try {
        const Grid grid(1000, 5, 3, {2, 2});
        CHECK(!"there is no such aggregator");
    } catch (const std::invalid_argument& error) {
        CHECK(std::string(error.what()).find("aggregator 2 is none of 2") != std::string::npos);
    }
}

void test_slots_are_no_more_than_there_are_packets() {
    const std::size_t blocks[] = {0, 1, 4, 5, 8, 9, 1000}, slots[] = {1, 1, 1, 2, 2, 3, 3};
    for (std::size_t i = 0; i < 7; ++i) CHECK(Grid(blocks[i], 4, 3).slots == slots[i]);
    CHECK(Grid(0, 4, 3).rows == 0);
}

void test_most_rows() {
    CHECK(Grid(afflux::wire::kRowsMax, 1, 1).rows == afflux::wire::kRowsMax);
    try {
        const Grid grid(afflux::wire::kRowsMax + std::size_t{1}, 1, 1);
        CHECK(!"there are no such rows");
    } catch (const std::invalid_argument& error) {
        CHECK(std::string(error.what()).find("at most 16777215") != std::string::npos);
    }
}

}  // namespace

int main() {
    test_every_block_has_one_position();
    test_every_block_is_at_one_aggregator();
    test_aggregators_are_no_more_than_there_are_packets();
    test_slots_are_no_more_than_there_are_packets();
    test_most_rows();
}
