// Calls that a group has seen: what is the same for all calls of one kind, made once in Python.
#pragma once

#include <ATen/ATen.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "c_api.h"
#include "python_object.hpp"
#include "turn.h"

namespace afflux {

enum class Method : std::uint8_t {
    AllReduce,
    Broadcast,
    Reduce,
    AllGather,
    AllGatherBase,
    Gather,
    Scatter,
    ReduceScatter,
    ReduceScatterBase,
    AllToAllBase,
    Barrier,
};

// As the methods of `afflux.group.core.Group` are called.
inline constexpr std::array<const char*, 11> kMethodNames{
    "allreduce",     "broadcast",       "reduce",
    "allgather",     "_allgather_base", "gather",
    "scatter",       "reduce_scatter",  "_reduce_scatter_base",
    "alltoall_base", "barrier"};

inline const char* name_of(Method method) {
    return kMethodNames[static_cast<std::size_t>(method)];
}

// The key of a kind of calls.
struct Kind {
    static constexpr std::size_t kMostDimensions = 8;

    Method method;
    int reduction = -1;
    int root = -1;
    int dtype = -1;
    std::size_t dimensions = 0;
    std::array<std::int64_t, kMostDimensions> sizes{};

    // Returns whether the tensor has few enough dimensions.
    bool describe(const at::Tensor& tensor) {
        if (tensor.dim() > static_cast<std::int64_t>(kMostDimensions)) return false;
        dtype = static_cast<int>(tensor.scalar_type());
        dimensions = static_cast<std::size_t>(tensor.dim());
        for (std::size_t d = 0; d < dimensions; ++d)
            sizes[d] = tensor.size(static_cast<std::int64_t>(d));
        return true;
    }
    bool operator==(const Kind&) const = default;
};

struct KindHash {
    std::size_t operator()(const Kind& kind) const {
        std::size_t hash = static_cast<std::size_t>(kind.method);
        const auto mix = [&hash](std::int64_t value) {
            hash = (hash ^ static_cast<std::size_t>(value)) * 0x9E3779B97F4A7C15ULL;
            hash ^= hash >> 32;
        };
        mix(kind.reduction);
        mix(kind.root);
        mix(kind.dtype);
        for (std::size_t d = 0; d < kind.dimensions; ++d) mix(kind.sizes[d]);
        return hash;
    }
};

using Count = std::atomic<std::uint64_t>;

// The last two are sums of which Gloo moves the elements.
enum class Way : std::uint8_t { Native, Gloo, Python, Gathered, Scattered };

struct Known {
    PythonObject python;  // afflux.group.core.KnownCall
    Text text;
    Way way = Way::Python;     // its carrier
    afflux_request request{};  // without tensors
    std::uint64_t agreed = 0;  // for Gloo: what must be the same at all ranks
    std::size_t bytes = 0;     // of the tensors
    Count* count = nullptr;    // of calls to Gloo

    bool sums() const { return way == Way::Gathered || way == Way::Scattered; }
    bool through_gloo() const { return way == Way::Gloo || sums(); }
};

// Any thread.
class KnownCalls {
  public:
    // None if it is not known.
    std::shared_ptr<const Known> find(const Kind& kind) const {
        const std::scoped_lock lock(mutex_);
        const auto found = known_.find(kind);
        return found == known_.end() ? nullptr : found->second;
    }
    std::shared_ptr<const Known> add(const Kind& kind, Known known) {
        auto held = std::make_shared<const Known>(std::move(known));
        const std::scoped_lock lock(mutex_);
        if (known_.size() >= kMost) known_.clear();
        known_.insert_or_assign(kind, held);
        return held;
    }

  private:
    // A training loop has some hundreds.
    static constexpr std::size_t kMost = 4096;
    mutable std::mutex mutex_;
    std::unordered_map<Kind, std::shared_ptr<const Known>, KindHash> known_;
};

// Calls to Gloo, by "<collective> <dtype>". Any thread.
class GlooCounts {
  public:
    Count& slot(const std::string& name) {
        const std::scoped_lock lock(mutex_);
        return counts_[name];
    }
    std::map<std::string, std::uint64_t> read() const {
        const std::scoped_lock lock(mutex_);
        std::map<std::string, std::uint64_t> all;
        for (const auto& [name, count] : counts_)
            if (count.load() != 0) all[name] = count.load();
        return all;
    }

  private:
    mutable std::mutex mutex_;
    std::map<std::string, Count> counts_;
};

}  // namespace afflux
