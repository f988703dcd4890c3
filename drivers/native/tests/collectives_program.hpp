// Random collectives of random tensors, and their results element by element.
#pragma once

#include <cmath>
#include <limits>
#include <span>
#include <type_traits>

#include "tests/collectives_ranks.hpp"

namespace afflux::tests {

using collectives::Collective;
using collectives::Dtype;
using collectives::Op;

struct Plan {
    Collective what;
    Dtype dtype;
    Op op;
    std::size_t count;
    int root;
    double density;
    bool non_finite;

    std::size_t bytes() const { return count * collectives::size_of(dtype); }
    bool in_protocol() const {
        return dtype <= Dtype::Bfloat16 && op <= Op::Min &&
               !(dtype == Dtype::Int32 && op == Op::Avg);
    }
    Case as_case() const {
        return {static_cast<arithmetic::Dtype>(dtype), static_cast<arithmetic::Op>(op), count,
                density, non_finite};
    }
};

inline constexpr Collective kAllCollectives[] = {Collective::AllReduce, Collective::Broadcast,
                                                 Collective::AllGather, Collective::ReduceScatter,
                                                 Collective::Barrier};

// The bytes at which one way of doing it ends and another one begins.
struct Edges {
    std::size_t small_bytes, batch_bytes;
};

// Sizes around everything that something ends at.
inline std::size_t random_count(Random& random, std::size_t size, std::size_t ranks,
                                const Edges& edges_of) {
    const std::size_t small = edges_of.small_bytes / size, batch = edges_of.batch_bytes / size;
    const std::size_t edges[] = {0,
                                 1,
                                 2,
                                 64,
                                 73,
                                 74,
                                 128,
                                 small,
                                 small / ranks,
                                 batch / ranks,
                                 batch,
                                 2 * batch,
                                 3 * batch,
                                 2 * batch / ranks,
                                 5 * batch,
                                 small + 64};
    if (random() % 3 == 0) return below(random, 6 * batch);
    std::size_t count = edges[below(random, std::size(edges))];
    count += below(random, 3);
    return count > 0 ? count - 1 : 0;
}

inline Plan random_plan(Random& random, std::size_t ranks, const Edges& edges_of,
                        std::span<const Collective> kinds) {
    Plan plan{};
    plan.what = kinds[below(random, kinds.size())];
    const bool reduces = collectives::reduces(plan.what);
    plan.dtype =
        static_cast<Dtype>(random() % (reduces ? collectives::kDtypes - 1 : collectives::kDtypes));
    if (reduces) plan.op = static_cast<Op>(random() % 2 == 0 ? 0 : random() % collectives::kOps);
    if (plan.op == Op::Product && plan.dtype >= Dtype::Float32 && plan.dtype <= Dtype::Bfloat16)
        plan.op = Op::Sum;
    plan.count = plan.what == Collective::Barrier
                     ? 0
                     : random_count(random, collectives::size_of(plan.dtype), ranks, edges_of);
    plan.root = plan.what == Collective::Broadcast ? static_cast<int>(below(random, ranks)) : 0;
    constexpr double kDensities[] = {1, 1, 0.5, 0.05, 0};
    plan.density = kDensities[random() % 5];
    plan.non_finite = random() % 4 == 0;
    return plan;
}

inline Bytes make_input(const Plan& plan, std::uint64_t seed) {
    if (collectives::reduces(plan.what) && plan.in_protocol())
        return make_tensor(plan.as_case(), seed);
    Random random(seed);
    Bytes tensor(plan.bytes());
    for (std::byte& byte : tensor) byte = static_cast<std::byte>(random());
    if (plan.dtype == Dtype::Float64 && collectives::reduces(plan.what)) {
        for (std::size_t i = 0; i < plan.count; ++i) {
            double value = std::ldexp(static_cast<double>(static_cast<std::int64_t>(random())),
                                      static_cast<int>(random() % 40) - 100);
            if (plan.non_finite && random() % 50 == 0)
                value = std::numeric_limits<double>::quiet_NaN();
            std::memcpy(tensor.data() + i * sizeof(value), &value, sizeof(value));
        }
    }
    return tensor;
}

__extension__ using Integer128 = __int128;

// The definition, element by element. Integers in 64 bits, of which the low ones are the result; an
// average's sum does not overflow.
template <typename T>
T reduce_one(Op op, const std::vector<T>& values) {
    using Wide = std::conditional_t<std::is_integral_v<T>, std::uint64_t, T>;
    Wide sum = static_cast<Wide>(values[0]);
    T most = values[0], least = values[0];
    for (std::size_t r = 1; r < values.size(); ++r) {
        const T v = values[r];
        sum = op == Op::Product ? sum * static_cast<Wide>(v) : sum + static_cast<Wide>(v);
        if (v > most || v != v) most = v;
        if (v < least || v != v) least = v;
    }
    if (op == Op::Max) return most;
    if (op == Op::Min) return least;
    if (op != Op::Avg) return static_cast<T>(sum);
    if constexpr (std::is_integral_v<T>) {
        Integer128 whole = 0;
        for (const T value : values) whole += value;
        return static_cast<T>(whole / static_cast<std::int64_t>(values.size()));
    } else {
        return sum / static_cast<T>(values.size());
    }
}

template <typename T>
Bytes reduce_each(const Plan& plan, const std::vector<Bytes>& tensors) {
    Bytes result(plan.bytes());
    std::vector<T> values(tensors.size());
    for (std::size_t i = 0; i < plan.count; ++i) {
        for (std::size_t r = 0; r < tensors.size(); ++r)
            std::memcpy(&values[r], tensors[r].data() + i * sizeof(T), sizeof(T));
        const T value = reduce_one(plan.op, values);
        std::memcpy(result.data() + i * sizeof(T), &value, sizeof(T));
    }
    return result;
}

inline Bytes reduced(const Plan& plan, const std::vector<Bytes>& tensors) {
    if (plan.in_protocol()) return expected(plan.as_case(), tensors);
    switch (plan.dtype) {
        case Dtype::Int64:
            return reduce_each<std::int64_t>(plan, tensors);
        case Dtype::Int32:
            return reduce_each<std::int32_t>(plan, tensors);
        case Dtype::Int16:
            return reduce_each<std::int16_t>(plan, tensors);
        case Dtype::Int8:
            return reduce_each<std::int8_t>(plan, tensors);
        case Dtype::Uint8:
            return reduce_each<std::uint8_t>(plan, tensors);
        default:
            return reduce_each<double>(plan, tensors);
    }
}

// A rank's contribution, one tensor or one for each rank, and its expected result.
struct Expectation {
    std::vector<std::vector<Bytes>> given;  // by rank
    std::vector<std::vector<Bytes>> results;
};

inline Expectation expect(const Plan& plan, std::size_t ranks, Random& random) {
    Expectation all;
    const bool scatters = plan.what == Collective::ReduceScatter;
    for (std::size_t r = 0; r < ranks; ++r) {
        auto& given = all.given.emplace_back();
        for (std::size_t s = 0; s < (scatters ? ranks : 1); ++s)
            given.push_back(make_input(plan, random()));
    }
    for (std::size_t r = 0; r < ranks; ++r) {
        auto& results = all.results.emplace_back();
        std::vector<Bytes> column;
        for (std::size_t s = 0; s < ranks; ++s) column.push_back(all.given[s][scatters ? r : 0]);
        if (plan.what == Collective::AllGather)
            results = column;
        else if (plan.what == Collective::Broadcast)
            results.push_back(column[static_cast<std::size_t>(plan.root)]);
        else if (plan.what == Collective::Barrier)
            results.emplace_back();
        else
            results.push_back(reduced(plan, column));
    }
    return all;
}

// A rank's tensors in memory: the smaller side, and the larger one in one piece or in several, and
// the smaller one possibly as a part of the larger.
class Tensors {
  public:
    Tensors(const Plan& plan, std::size_t rank, std::size_t ranks, const std::vector<Bytes>& given,
            Random& random)
        : plan_(plan) {
        const bool gathers = plan.what == Collective::AllGather;
        const bool scatters = plan.what == Collective::ReduceScatter;
        const std::size_t bytes = plan.bytes();
        // At odd addresses now and then: tensors of a file's bytes may be.
        const std::size_t odd = random() % 8 == 0 ? 1 + random() % 7 : 0;
        one_.assign(bytes + odd, std::byte{0x5A});
        std::byte* one = one_.data() + odd;
        const bool list = random() % 2 == 0;
        for (std::size_t r = 0; gathers || scatters ? r < ranks : false; ++r)
            if (list || r == 0)
                many_.emplace_back((list ? 1 : ranks) * bytes + odd, std::byte{0xA5});
        for (std::size_t r = 0; !many_.empty() && r < ranks; ++r)
            parts_.push_back(list ? many_[r].data() + odd : many_[0].data() + odd + r * bytes);
        if (!many_.empty() && random() % 3 == 0) one = parts_[rank];
        // Where another rank's part is, or across two of them, which only a copy saves.
        else if (!many_.empty() && !list && random() % 8 == 0)
            one = parts_[0] + below(random, (ranks - 1) * bytes + 1);
        if (scatters) {
            for (std::size_t r = 0; r < ranks; ++r) copy(parts_[r], given[r]);
        } else {
            copy(one, given[0]);
        }
        outputs_ = gathers ? parts_ : std::vector<std::byte*>{one};
        if (plan.what == Collective::Barrier) outputs_.clear();
        const auto pick = [&](auto& list_of) {
            for (std::size_t r = 0; r < (list ? ranks : 1); ++r) list_of.push_back(parts_[r]);
        };
        if (gathers) {
            in_.push_back(one);
            pick(out_);
        } else if (scatters) {
            pick(in_);
            out_.push_back(one);
        } else if (plan.what != Collective::Barrier) {
            out_.push_back(one);
        }
    }

    collectives::Request request() const {
        collectives::Request request;
        request.what = plan_.what;
        request.inputs = in_;
        request.outputs = out_;
        request.count = plan_.count;
        request.dtype = plan_.dtype;
        request.op = plan_.op;
        request.root = plan_.root;
        return request;
    }

    bool hold(const std::vector<Bytes>& results) const {
        for (std::size_t i = 0; i < outputs_.size(); ++i)
            if (plan_.count != 0 && std::memcmp(outputs_[i], results[i].data(), plan_.bytes()) != 0)
                return false;
        return true;
    }

  private:
    static void copy(std::byte* to, const Bytes& from) {
        if (!from.empty()) std::memcpy(to, from.data(), from.size());
    }

    const Plan plan_;
    Bytes one_;
    std::vector<Bytes> many_;
    std::vector<std::byte*> parts_, outputs_;
    std::vector<const void*> in_;
    std::vector<void*> out_;
};

// Runs random operations, as many as there are in `all`, on one rank's end of a group. They are
// those of `seed` at all ranks.
struct Program {
    Program(std::uint64_t seed_, int ranks, std::size_t operations, const Edges& edges,
            Random& random, std::span<const Collective> kinds = kAllCollectives)
        : seed(seed_), n(static_cast<std::size_t>(ranks)) {
        for (std::size_t i = 0; i < operations; ++i) {
            plans.push_back(random_plan(random, n, edges, kinds));
            all.push_back(expect(plans.back(), n, random));
        }
    }

    // Returns the bytes of the tensors.
    std::uint64_t run(collectives::Group& group, std::size_t r) const {
        Random own(seed * 1000 + r);
        std::uint64_t bytes = 0;
        for (std::size_t i = 0; i < plans.size(); ++i) {
            const Tensors tensors(plans[i], r, n, all[i].given[r], own);
            if (own() % 8 == 0)
                std::this_thread::sleep_for(std::chrono::microseconds(below(own, 300)));
            collectives::Request request = tensors.request();
            request.fingerprint = i;
            request.history = i * i;
            const std::uint64_t number = group.begin(request);
            CHECK(number == i + 1 && group.in_progress() == number);
            // A timeout of nothing now and then: the operation goes on where it was.
            bool over = false;
            while (!over && own() % 4 == 0)
                over = group.advance(std::chrono::nanoseconds(own() % 1000), number);
            if (!over) finish(group);
            CHECK(group.in_progress() == 0 && group.advance(std::chrono::nanoseconds(0), number));
            if (!tensors.hold(all[i].results[r])) {
                std::fprintf(stderr,
                             "seed %llu: rank %zu of %zu, operation %zu: collective %d dtype %d "
                             "op %d count %zu root %d: wrong\n",
                             static_cast<unsigned long long>(seed), r, n, i,
                             static_cast<int>(plans[i].what), static_cast<int>(plans[i].dtype),
                             static_cast<int>(plans[i].op), plans[i].count, plans[i].root);
                CHECK(false);
            }
            const bool parts = plans[i].what == Collective::AllGather ||
                               plans[i].what == Collective::ReduceScatter;
            bytes += plans[i].bytes() * (parts ? n : 1);
        }
        return bytes;
    }

    const std::uint64_t seed;
    const std::size_t n;
    std::vector<Plan> plans;
    std::vector<Expectation> all;
};

}  // namespace afflux::tests
