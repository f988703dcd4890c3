#include "nccl/collnet.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>

#include "nccl/comm.hpp"
#include "nccl/link.hpp"
#include "nccl/plugin.hpp"

namespace afflux::nccl::collnet {
namespace {

struct ListenComm {
    int device;
    Listener listener;
};

// The communicator, and the thread that it needs, which lives longer.
struct OpenComm {
    std::shared_ptr<ProgressThread> progress;
    std::unique_ptr<Comm> comm;
};

// After a failed connect NCCL forgets the listener without closing it; others close it then. So
// these are owned here.
class Listeners {
  public:
    ListenComm* add(std::unique_ptr<ListenComm> made) {
        const std::scoped_lock alone(mutex_);
        ListenComm* const key = made.get();
        all_[key] = std::move(made);
        return key;
    }
    void drop(void* key) {
        const std::scoped_lock alone(mutex_);
        all_.erase(key);
    }

  private:
    std::mutex mutex_;
    std::map<void*, std::unique_ptr<ListenComm>> all_;
};

Listeners& listeners() {
    static Listeners all;
    return all;
}

std::optional<arithmetic::Dtype> dtype_of(int data_type) {
    switch (data_type) {
        case abi::Int32:
            return arithmetic::Dtype::Int32;
        case abi::Float16:
            return arithmetic::Dtype::Float16;
        case abi::Float32:
            return arithmetic::Dtype::Float32;
        case abi::Bfloat16:
            return arithmetic::Dtype::Bfloat16;
        default:
            return std::nullopt;
    }
}

// The average arrives as a sum of elements that the GPU has scaled.
std::optional<arithmetic::Op> op_of(int red_op) {
    switch (red_op) {
        case abi::Sum:
            return arithmetic::Op::Sum;
        case abi::Max:
            return arithmetic::Op::Max;
        case abi::Min:
            return arithmetic::Op::Min;
        default:
            return std::nullopt;
    }
}

std::vector<Handle> handles_of(void* const handles[], int ranks) {
    std::vector<Handle> nodes(static_cast<std::size_t>(std::max(ranks, 0)));
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        std::memcpy(&nodes[i], handles[i], sizeof nodes[i]);
    }
    return nodes;
}

// The number of the node that has a listener: NCCL sorts the handles by the ranks of the nodes'
// heads, which need not be the order in which it numbers the nodes.
int place_of(const Handle& own, const std::vector<Handle>& nodes) {
    for (std::size_t place = 0; place < nodes.size(); ++place) {
        if (nodes[place].secret == own.secret) return static_cast<int>(place);
    }
    throw std::runtime_error("the handles of the communicator have not this node's");
}

}  // namespace

abi::Result init(abi::Logger logger) noexcept {
    return guarded(abi::InvalidUsage, [&] {
        Plugin::get().open(logger);
        return abi::Success;
    });
}

abi::Result devices(int* count) noexcept {
    Plugin& plugin = Plugin::get();
    *count = reduces(plugin.settings()) ? plugin.devices() : 0;
    if (*count == 0) {
        inform("AFFLUX_AGGREGATOR is not set: point-to-point only, no all-reduce in the network");
    }
    return abi::Success;
}

abi::Result listen(int device, void* handle, void** listen_comm) noexcept {
    return guarded(abi::SystemError, [&] {
        auto made = std::unique_ptr<ListenComm>(
            new ListenComm{device, Listener(Plugin::get().device(device).interface)});
        std::memset(handle, 0, abi::kHandleBytes);
        std::memcpy(handle, &made->listener.handle(), sizeof(Handle));
        *listen_comm = listeners().add(std::move(made));
        return abi::Success;
    });
}

abi::Result connect(void* handles[], int ranks, int, void* listen_comm, void** comm) noexcept {
    *comm = nullptr;
    const abi::Result result = guarded(abi::RemoteError, [&] {
        const auto* const own = static_cast<const ListenComm*>(listen_comm);
        const std::vector<Handle> nodes = handles_of(handles, ranks);
        const int place = place_of(own->listener.handle(), nodes);
        const Settings& settings = Plugin::get().settings();
        const Interface& interface = Plugin::get().device(own->device).interface;
        auto made = std::make_unique<OpenComm>();
        made->progress = Plugin::get().progress(own->device);
        const std::string sizes = Plugin::get().described_sizes(static_cast<std::size_t>(ranks));
        Formed formed =
            form(nodes, place, own->listener, interface, settings, sizes, *made->progress);
        Plugin::get().note_engine(formed.workers.front()->engine());
        made->comm =
            std::make_unique<Comm>(std::move(formed), interface, *made->progress, settings);
        made->progress->add(*made->comm);
        *comm = made.release();
        return abi::Success;
    });
    if (result != abi::Success) listeners().drop(listen_comm);
    return result;
}

abi::Result reduce_support(int data_type, int red_op, int* supported) noexcept {
    *supported = dtype_of(data_type) && op_of(red_op) ? 1 : 0;
    return abi::Success;
}

abi::Result register_memory(void*, void* data, std::size_t size, int type, void** handle) noexcept {
    return guarded(abi::SystemError, [&] {
        if (type != abi::Host) throw std::invalid_argument("only memory of the host is taken");
        *handle = new Memory{static_cast<std::byte*>(data), size};
        return abi::Success;
    });
}

abi::Result deregister_memory(void* comm, void* handle) noexcept {
    return guarded(abi::InternalError, [&] {
        const std::unique_ptr<Memory> memory(static_cast<Memory*>(handle));
        if (memory) static_cast<OpenComm*>(comm)->comm->forget(*memory);
        return abi::Success;
    });
}

abi::Result all_reduce(void* comm, void* send, void* receive, std::size_t count, int data_type,
                       int red_op, void* send_handle, void** request) noexcept {
    *request = nullptr;
    return guarded(abi::RemoteError, [&] {
        const auto dtype = dtype_of(data_type);
        const auto op = op_of(red_op);
        if (!dtype || !op) {
            throw std::invalid_argument("iallreduce of a type or operation that is not supported");
        }
        const Reduction reduction{.elements = nullptr, .count = count, .dtype = *dtype, .op = *op};
        // Only what NCCL has registered is its own buffer, and may be written to.
        const auto* const memory = static_cast<const Memory*>(send_handle);
        const bool clear =
            memory != nullptr && memory->holds(send, count * arithmetic::size_of(*dtype));
        *request = static_cast<OpenComm*>(comm)->comm->post(send, receive, reduction, clear);
        return abi::Success;
    });
}

abi::Result test(void* request, int* done, int* size) noexcept {
    *done = 0;
    return guarded(abi::RemoteError, [&] {
        auto& tested = *static_cast<Request*>(request);
        std::size_t bytes = 0;
        if (!tested.comm->test(tested, bytes)) return abi::Success;
        *done = 1;
        if (size != nullptr) *size = static_cast<int>(bytes);
        return abi::Success;
    });
}

abi::Result close(void* comm) noexcept {
    return guarded(abi::InternalError, [&] {
        const std::unique_ptr<OpenComm> open(static_cast<OpenComm*>(comm));
        if (open) open->comm->close();
        return abi::Success;
    });
}

abi::Result close_listen(void* listen_comm) noexcept {
    listeners().drop(listen_comm);
    return abi::Success;
}

}  // namespace afflux::nccl::collnet
