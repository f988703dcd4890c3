// The calls of c_api.h: what they return, and that they take nothing that cannot be.
#include <cstring>
#include <string>

#include "collectives/c_api.hpp"
#include "tests/shared_ranks.hpp"

namespace {

using namespace afflux;
using namespace afflux::tests;

constexpr std::int64_t kMinute = 60'000'000'000;

// A rank's tensor of floats, and a request for it.
struct Rank {
    explicit Rank(const std::shared_ptr<shared::Segment>& segment, int rank)
        : handle(std::make_shared<shared::Group>(segment, rank)), calls(handle.calls()) {
        request.collective = AFFLUX_ALL_REDUCE;
        request.dtype = AFFLUX_FLOAT32;
        request.count = 100;
        request.outputs = &output;
        request.output_count = 1;
    }
    std::int32_t run() { return calls.run(calls.group, &request, kMinute, &outcome); }
    bool untouched() const {
        for (const float element : tensor)
            if (element != 1.0f) return false;
        return true;
    }

    shared::Calls handle;
    const afflux_calls& calls;
    std::vector<float> tensor = std::vector<float>(100, 1.0f), other = tensor;
    void* output = tensor.data();
    const void* input = other.data();
    afflux_request request{};
    afflux_outcome outcome{};
};

void test_an_operation() {
    const auto segment = make_segment(3);
    in_threads(3, [&](int r) {
        Rank rank(segment, r);
        CHECK(rank.calls.version == AFFLUX_CALLS_VERSION);
        CHECK(rank.calls.size == sizeof(rank.calls));
        CHECK(rank.calls.rank == r && rank.calls.ranks == 3);
        CHECK(rank.run() == AFFLUX_OVER && rank.outcome.operation == 1);
        CHECK(rank.tensor[99] == 3.0f);
        // In two steps, and of no time.
        CHECK(rank.calls.begin(rank.calls.group, &rank.request, &rank.outcome) == AFFLUX_NOT_YET);
        CHECK(rank.outcome.operation == 2 && rank.calls.in_progress(rank.calls.group) == 2);
        std::int32_t status = AFFLUX_NOT_YET;
        while (status == AFFLUX_NOT_YET)
            status = rank.calls.advance(rank.calls.group, 2, 1000, &rank.outcome);
        CHECK(status == AFFLUX_OVER && rank.tensor[0] == 9.0f);
        // A call that is over stays over.
        CHECK(rank.calls.advance(rank.calls.group, 1, 0, &rank.outcome) == AFFLUX_OVER);
        CHECK(rank.calls.advance(rank.calls.group, 2, 0, &rank.outcome) == AFFLUX_OVER);
        CHECK(rank.calls.in_progress(rank.calls.group) == 0);
    });
}

// A sum loses nothing, whoever calls.
void test_correct_rounding() {
    const auto segment = make_segment(3);
    in_threads(3, [&](int r) {
        Rank rank(segment, r);
        constexpr float kElements[] = {1e9f, 1.0f, -1e9f};
        rank.tensor.assign(100, kElements[r]);
        rank.output = rank.tensor.data();
        CHECK(rank.run() == AFFLUX_OVER && rank.untouched());
    });
}

// Each field on its own makes the ranks disagree, and none has written.
void test_disagreement_in_every_field() {
    const auto vary = [](int field, Rank& rank) {
        afflux_request& request = rank.request;
        switch (field) {
            case 0:
                request.collective = AFFLUX_ALL_REDUCE;
                break;
            case 1:
                request.count = 99;
                break;
            case 2:
                request.dtype = AFFLUX_FLOAT16;
                break;
            case 3:
                request.collective = AFFLUX_REDUCE_SCATTER;
                request.reduction = AFFLUX_MAX;
                request.count = 10;
                break;
            case 4:
                request.root = 1;
                break;
            case 5:
                request.fingerprint = std::uint64_t{1} << 63;
                break;
            case 6:
                request.history = std::uint64_t{1} << 63;
                break;
            default:
                break;
        }
    };
    constexpr int kNone = 7;
    for (int field = 0; field <= kNone; ++field) {
        const auto segment = make_segment(3);
        in_threads(3, [&](int r) {
            Rank rank(segment, r);
            rank.request.collective = field == 3 ? AFFLUX_REDUCE_SCATTER : AFFLUX_BROADCAST;
            rank.request.inputs = &rank.input;
            rank.request.input_count = 1;
            if (field == 3) rank.request.count = 10;
            if (r == 2) vary(field, rank);
            const std::int32_t status = rank.run();
            CHECK(rank.untouched());
            if (field == kNone) {
                CHECK(status == AFFLUX_OVER);
                return;
            }
            CHECK(status == AFFLUX_DISAGREEMENT && std::strlen(rank.outcome.text) > 10);
            const auto group = rank.handle.open();
            CHECK(group->differing() == (r == 2 ? std::vector<int>{0, 1} : std::vector<int>{2}));
            CHECK((group->fingerprints()[2] == group->fingerprints()[1]) == (field != 5));
            CHECK((group->histories()[2] == group->histories()[1]) == (field != 6));
            CHECK(rank.run() == AFFLUX_FAILED);
        });
    }
}

// A request that cannot be has no effect: the others still wait, and the next one is right.
void test_refused() {
    const auto segment = make_segment(2);
    in_threads(2, [&](int r) {
        Rank rank(segment, r);
        const afflux_request right = rank.request;
        void* const nothing = nullptr;
        const void* const no_input = nullptr;
        const auto refused = [&](const char* text) {
            CHECK(rank.run() == AFFLUX_INVALID);
            CHECK(std::strstr(rank.outcome.text, text) != nullptr);
            rank.request = right;
        };
        rank.request.outputs = &nothing;
        refused("null pointer");
        rank.request.outputs = nullptr;
        refused("tensors");
        rank.request.output_count = 2;
        refused("tensors");
        rank.request.collective = AFFLUX_ALL_GATHER;
        rank.request.inputs = &no_input;
        rank.request.input_count = 1;
        refused("null pointer");
        rank.request.collective = AFFLUX_REDUCE_SCATTER;
        refused("tensors");
        rank.request.collective = 5;
        refused("no collective");
        rank.request.collective = -1;
        refused("no collective");
        rank.request.dtype = 10;
        refused("no dtype");
        rank.request.dtype = AFFLUX_BYTES;
        refused("no reduction");
        rank.request.reduction = AFFLUX_PRODUCT;
        refused("no reduction");
        rank.request.reduction = 256;
        refused("no reduction");
        rank.request.root = 2;
        refused("root");
        rank.request.count = ~std::uint64_t{0} / 4;
        refused("elements");
        rank.request.collective = AFFLUX_BARRIER;
        refused("barrier");
        CHECK(rank.untouched());
        CHECK(rank.calls.begin(rank.calls.group, &rank.request, &rank.outcome) == AFFLUX_NOT_YET);
        refused("in progress");
        CHECK(rank.calls.advance(rank.calls.group, 2, 0, &rank.outcome) == AFFLUX_INVALID);
        CHECK(rank.calls.advance(rank.calls.group, 1, kMinute, &rank.outcome) == AFFLUX_OVER);
        CHECK(rank.tensor[0] == 2.0f);
        // Of no elements there is no tensor.
        rank.request.outputs = &nothing;
        rank.request.count = 0;
        CHECK(rank.run() == AFFLUX_OVER);
    });
}

// The calls may live longer than the group.
void test_closed() {
    const auto segment = make_segment(2);
    in_threads(2, [&](int r) {
        Rank rank(segment, r);
        CHECK(rank.run() == AFFLUX_OVER);
        if (r == 0) rank.handle.close();
        CHECK(rank.run() == AFFLUX_FAILED);
        const char* const text = r == 0 ? "the group is closed" : "rank 0 has ended";
        CHECK(std::strstr(rank.outcome.text, text) != nullptr);
        CHECK(rank.outcome.text[sizeof(rank.outcome.text) - 1] == '\0');
        if (r == 0) CHECK(rank.calls.in_progress(rank.calls.group) == 0);
    });
}

}  // namespace

int main() {
    test_an_operation();
    test_correct_rounding();
    test_disagreement_in_every_field();
    test_refused();
    test_closed();
}
