// The device "late": torch's open device (PrivateUse1) on the CPU, with streams that are threads.
//
// A copy reads, poisons what it writes, sleeps, and only then writes. So do the kernels that Afflux
// itself queues, which find, take and put blocks. All else is carried out on the CPU at once, when
// the current stream has come to its end.
#include <ATen/ATen.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/as_strided_cpu_dispatch.h>
#include <ATen/ops/set_cpu_dispatch.h>
#include <ATen/ops/view_cpu_dispatch.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;
constexpr int kPoison = 0xFF;

std::atomic<int> copy_us{2000};
std::atomic<std::uint64_t> copies{0}, device_waits{0}, after_free{0};

// A stream: what is added is done in order, by a thread of its own.
class Lane {
  public:
    using Task = std::function<void()>;

    Lane() {
        std::thread([this] { run(); }).detach();
    }
    void add(Task task) {
        {
            const std::scoped_lock lock(mutex_);
            tasks_.push_back(std::move(task));
            ++added_;
        }
        changed_.notify_all();
    }
    bool idle() {
        const std::scoped_lock lock(mutex_);
        return done_ == added_;
    }
    void drain() {
        std::unique_lock lock(mutex_);
        const std::uint64_t goal = added_;
        changed_.wait(lock, [&] { return done_ >= goal; });
    }

  private:
    [[noreturn]] void run() {
        for (;;) {
            Task task;
            {
                std::unique_lock lock(mutex_);
                changed_.wait(lock, [&] { return !tasks_.empty(); });
                task = std::move(tasks_.front());
                tasks_.pop_front();
            }
            task();
            task = {};
            {
                const std::scoped_lock lock(mutex_);
                ++done_;
            }
            changed_.notify_all();
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Task> tasks_;
    std::uint64_t added_ = 0, done_ = 0;
};

// Never freed: their threads run until the process ends.
class Lanes {
  public:
    Lane& at(c10::StreamId id) {
        const std::scoped_lock lock(mutex_);
        return *lanes_.at(static_cast<std::size_t>(id));
    }
    c10::StreamId make() {
        const std::scoped_lock lock(mutex_);
        lanes_.push_back(std::make_unique<Lane>());
        return static_cast<c10::StreamId>(lanes_.size() - 1);
    }
    void drain() {
        for (std::size_t id = 0, all = count(); id < all; ++id)
            at(static_cast<c10::StreamId>(id)).drain();
    }
    void when_all_are_here(std::function<void()> action) {
        const std::size_t all = count();
        const auto left = std::make_shared<std::atomic<std::size_t>>(all);
        for (std::size_t id = 0; id < all; ++id)
            at(static_cast<c10::StreamId>(id)).add([left, action] {
                if (--*left == 0) action();
            });
    }

  private:
    std::size_t count() {
        const std::scoped_lock lock(mutex_);
        return lanes_.size();
    }
    std::mutex mutex_;
    std::vector<std::unique_ptr<Lane>> lanes_;
};

Lanes& lanes() {
    static Lanes* const all = [] {
        auto* const made = new Lanes;
        made->make();
        return made;
    }();
    return *all;
}

thread_local c10::StreamId current = 0;

c10::Stream stream_of(c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, 0), id);
}

struct Event {
    std::mutex mutex;
    std::condition_variable changed;
    std::uint64_t asked = 0, done = 0;

    std::uint64_t latest() {
        const std::scoped_lock lock(mutex);
        return asked;
    }
    void wait(std::uint64_t version) {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return done >= version; });
    }
};
using EventPointer = std::shared_ptr<Event>;

EventPointer event_at(void* event) {
    return *static_cast<EventPointer*>(event);
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
    c10::DeviceType type() const override { return kType; }
    c10::Device exchangeDevice(c10::Device) const override { return {kType, 0}; }
    c10::Device getDevice() const override { return {kType, 0}; }
    void setDevice(c10::Device) const override {}
    void uncheckedSetDevice(c10::Device) const noexcept override {}
    c10::Stream getStream(c10::Device) const override { return stream_of(current); }
    c10::Stream getDefaultStream(c10::Device) const override { return stream_of(0); }
    c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override {
        return stream_of(lanes().make());
    }
    c10::Stream getNewStream(c10::Device, int) const override { return stream_of(lanes().make()); }
    c10::Stream exchangeStream(c10::Stream stream) const override {
        return stream_of(std::exchange(current, stream.id()));
    }
    c10::DeviceIndex deviceCount() const noexcept override { return 1; }

    void record(void** event, const c10::Stream& stream, c10::DeviceIndex,
                c10::EventFlag) const override {
        if (*event == nullptr) *event = new EventPointer(std::make_shared<Event>());
        const EventPointer held = event_at(*event);
        // Whoever finds the version asked for finds it in the lane, too.
        const std::scoped_lock asking(held->mutex);
        const std::uint64_t version = ++held->asked;
        lanes().at(stream.id()).add([held, version] {
            {
                const std::scoped_lock lock(held->mutex);
                held->done = std::max(held->done, version);
            }
            held->changed.notify_all();
        });
    }
    void block(void* event, const c10::Stream& stream) const override {
        if (event == nullptr) return;
        const EventPointer held = event_at(event);
        lanes().at(stream.id()).add([held, version = held->latest()] { held->wait(version); });
    }
    bool queryEvent(void* event) const override {
        if (event == nullptr) return true;
        const EventPointer held = event_at(event);
        const std::scoped_lock lock(held->mutex);
        return held->done >= held->asked;
    }
    void synchronizeEvent(void* event) const override {
        if (event == nullptr) return;
        const EventPointer held = event_at(event);
        held->wait(held->latest());
    }
    void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
        delete static_cast<EventPointer*>(event);
    }
    bool queryStream(const c10::Stream& stream) const override {
        return lanes().at(stream.id()).idle();
    }
    void synchronizeStream(const c10::Stream& stream) const override {
        lanes().at(stream.id()).drain();
    }
    void synchronizeDevice(c10::DeviceIndex) const override {
        ++device_waits;
        lanes().drain();
    }
    void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override;
};

// The device's memory. It is never given back: a block that is freed is poisoned when the streams
// that are known to use it have come so far, as another tensor would then be there.
class Memory final : public c10::Allocator {
  public:
    c10::DataPtr allocate(std::size_t bytes) override {
        void* const data = std::aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
        std::memset(data, kPoison, bytes);
        const std::scoped_lock lock(mutex_);
        blocks_[data] = {bytes, {current}};
        return {data, data, &Memory::free, c10::Device(kType, 0)};
    }
    c10::DeleterFnPtr raw_deleter() const override { return &Memory::free; }
    void copy_data(void* to, const void* from, std::size_t bytes) const override {
        default_copy_data(to, from, bytes);
    }
    // Whether memory has been freed, and may belong to another tensor.
    bool is_free(const void* data) {
        const std::scoped_lock lock(mutex_);
        auto found = free_.upper_bound(data);
        if (found == free_.begin()) return false;
        --found;
        return data < static_cast<const std::byte*>(found->first) + found->second;
    }
    void use(void* data, c10::StreamId stream) {
        const std::scoped_lock lock(mutex_);
        const auto found = blocks_.find(data);
        if (found != blocks_.end()) found->second.streams.push_back(stream);
    }

  private:
    struct Block {
        std::size_t bytes;
        std::vector<c10::StreamId> streams;
    };
    static void free(void* data);
    std::mutex mutex_;
    std::map<void*, Block> blocks_;
    std::map<const void*, std::size_t> free_;
};

Memory& memory() {
    static Memory* const all = new Memory;
    return *all;
}

void Memory::free(void* data) {
    Block block;
    {
        const std::scoped_lock lock(memory().mutex_);
        const auto found = memory().blocks_.find(data);
        if (found == memory().blocks_.end()) return;
        block = found->second;
        memory().blocks_.erase(found);
    }
    const auto left = std::make_shared<std::atomic<std::size_t>>(block.streams.size());
    for (const c10::StreamId stream : block.streams)
        lanes().at(stream).add([left, data, bytes = block.bytes] {
            if (--*left != 0) return;
            std::memset(data, kPoison, bytes);
            const std::scoped_lock lock(memory().mutex_);
            memory().free_[data] = bytes;
        });
}

void Guard::recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const {
    memory().use(data.get_context(), stream.id());
}

// Memory of the CPU that the device reaches, so that copies from and to it need not be waited for.
class Pinned final : public c10::Allocator {
  public:
    c10::DataPtr allocate(std::size_t bytes) override {
        void* const data = std::aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
        const std::scoped_lock lock(mutex_);
        blocks_[static_cast<std::byte*>(data)] = bytes + 64;
        return {data, data, &Pinned::free, c10::Device(c10::DeviceType::CPU)};
    }
    c10::DeleterFnPtr raw_deleter() const override { return &Pinned::free; }
    void copy_data(void* to, const void* from, std::size_t bytes) const override {
        default_copy_data(to, from, bytes);
    }
    bool has(const void* data) {
        const std::scoped_lock lock(mutex_);
        auto found = blocks_.upper_bound(static_cast<std::byte*>(const_cast<void*>(data)));
        if (found == blocks_.begin()) return false;
        --found;
        return static_cast<const std::byte*>(data) < found->first + found->second;
    }

  private:
    // When all streams have come so far: torch's allocators of such memory wait for the copies.
    static void free(void* data);
    std::mutex mutex_;
    std::map<std::byte*, std::size_t> blocks_;
};

Pinned& pinned() {
    static Pinned* const all = new Pinned;
    return *all;
}

void Pinned::free(void* data) {
    {
        const std::scoped_lock lock(pinned().mutex_);
        pinned().blocks_.erase(static_cast<std::byte*>(data));
    }
    lanes().when_all_are_here([data] { std::free(data); });
}

struct Hooks final : at::PrivateUse1HooksInterface {
    bool isBuilt() const override { return true; }
    bool isAvailable() const override { return true; }
    bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
    c10::DeviceIndex deviceCount() const override { return 1; }
    c10::DeviceIndex getCurrentDevice() const override { return 0; }
    void setCurrentDevice(c10::DeviceIndex) const override {}
    c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
    c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
    bool isPinnedPtr(const void* data) const override { return pinned().has(data); }
    c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned(); }
    at::Device getDeviceFromPtr(void*) const override { return {kType, 0}; }
    void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t bytes) const override {
        lanes().at(current).drain();
        c10::DataPtr made = memory().allocate(bytes);
        std::memcpy(made.get(), storage.data(), std::min(bytes, storage.nbytes()));
        c10::StorageImpl* const held = storage.unsafeGetStorageImpl();
        held->set_data_ptr_noswap(std::move(made));
        held->set_nbytes(bytes);
    }
};

at::Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                         std::optional<at::Device>, std::optional<bool>) {
    const auto type = c10::scalarTypeToTypeMeta(dtype.value_or(at::kFloat));
    return at::detail::empty_strided_generic(sizes, strides, &memory(),
                                             c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                             c10::typeMetaToScalarType(type));
}

at::Tensor empty(c10::IntArrayRef sizes, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
    return at::detail::empty_generic(sizes, &memory(),
                                     c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                     dtype.value_or(at::kFloat), format);
}

// The same memory, as a tensor of the CPU. It holds nothing: a stream's thread that dropped the
// last reference to a tensor of Python's would wait for Python's lock.
at::Tensor as_cpu(const at::Tensor& tensor) {
    auto* const data = static_cast<std::byte*>(tensor.storage().mutable_data()) +
                       tensor.storage_offset() * static_cast<std::int64_t>(tensor.element_size());
    at::Tensor same = at::from_blob(
        data, tensor.sizes(), tensor.strides(), [](void*) {},
        at::TensorOptions().dtype(tensor.scalar_type()));
    // Of lazy views it has the bits, and not yet what they show.
    same._set_neg(tensor.is_neg());
    same._set_conj(tensor.is_conj());
    return same;
}

bool host_is_waited_for(const at::Tensor& tensor) {
    return tensor.is_cpu() && !pinned().has(tensor.const_data_ptr());
}

using Tensors = std::vector<at::Tensor>;
using Write = std::function<void(const Tensors& read, at::Tensor& to)>;

// Queues what reads some tensors and writes another one. Whether all of this is written anew says
// `anew`: then it is poisoned until then.
void queue(Tensors from, const at::Tensor& to, bool anew, const Write& write) {
    for (at::Tensor& each : from) each = as_cpu(each);
    const int late_us = copy_us.load();
    lanes().at(current).add([from, target = as_cpu(to), anew, write, late_us] {
        const at::NoGradGuard no_grad;
        const c10::impl::ExcludeDispatchKeyGuard plain(c10::autograd_dispatch_keyset);
        // Read at the beginning, written at the end: as early and as late as a GPU may.
        Tensors read;
        for (const at::Tensor& each : from) read.push_back(each.clone());
        if (anew && target.is_contiguous())
            std::memset(target.mutable_data_ptr(), kPoison, target.nbytes());
        std::this_thread::sleep_for(std::chrono::microseconds(late_us));
        bool freed = memory().is_free(target.const_data_ptr());
        for (const at::Tensor& each : from) freed |= memory().is_free(each.const_data_ptr());
        if (freed) ++after_free;
        at::Tensor result = target;
        try {
            write(read, result);
        } catch (const c10::Error&) {
            // Numbers of rows that had not come: what is to be written stays poisoned.
        }
    });
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
    if (to.numel() == 0) return to;
    Lane& lane = lanes().at(current);
    ++copies;
    queue({from}, to, true, [](const Tensors& read, at::Tensor& target) { target.copy_(read[0]); });
    const bool within = from.device() == to.device();
    if (!within && (!non_blocking || host_is_waited_for(from) || host_is_waited_for(to)))
        lane.drain();
    return to;
}

const at::Tensor& resize(const at::Tensor& tensor, c10::SymIntArrayRef sizes,
                         std::optional<at::MemoryFormat>) {
    const auto wanted = c10::asIntArrayRefSlow(sizes, __FILE__, __LINE__);
    const auto bytes =
        static_cast<std::size_t>(c10::multiply_integers(wanted)) * tensor.element_size();
    c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
    if (storage->nbytes() < bytes) {
        storage->set_data_ptr_noswap(memory().allocate(bytes));
        storage->set_nbytes(bytes);
    }
    tensor.unsafeGetTensorImpl()->set_sizes_contiguous(wanted);
    return tensor;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
    if (to.sizes() != from.sizes()) to.resize_(from.sizes());
    return copy_from(from, to, false);
}

at::Scalar local_scalar(const at::Tensor& tensor) {
    lanes().at(current).drain();
    return as_cpu(tensor).item();
}

at::Tensor as_strided(const at::Tensor& tensor, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                      std::optional<std::int64_t> offset) {
    return at::cpu::as_strided(tensor, sizes, strides, offset);
}

at::Tensor view(const at::Tensor& tensor, c10::SymIntArrayRef sizes) {
    return at::cpu::view(tensor, c10::asIntArrayRefSlow(sizes, __FILE__, __LINE__));
}

at::Tensor& set_storage(at::Tensor& tensor, at::Storage storage, std::int64_t offset,
                        c10::IntArrayRef sizes, c10::IntArrayRef strides) {
    return at::cpu::set_(tensor, std::move(storage), offset, sizes, strides);
}

void record_stream(at::Tensor& tensor, c10::Stream stream) {
    memory().use(tensor.storage().data_ptr().get_context(), stream.id());
}

at::Tensor& any_out(const at::Tensor& tensor, std::int64_t dim, bool keep, at::Tensor& out) {
    queue({tensor}, out, true, [dim, keep](const Tensors& read, at::Tensor& target) {
        target.copy_(at::any(read[0], dim, keep));
    });
    return out;
}

at::Tensor& index_select_out(const at::Tensor& tensor, std::int64_t dim, const at::Tensor& index,
                             at::Tensor& out) {
    queue({tensor, index}, out, true, [dim](const Tensors& read, at::Tensor& target) {
        target.copy_(at::index_select(read[0], dim, read[1]));
    });
    return out;
}

at::Tensor& index_copy(at::Tensor& tensor, std::int64_t dim, const at::Tensor& index,
                       const at::Tensor& source) {
    queue({index, source}, tensor, false, [dim](const Tensors& read, at::Tensor& target) {
        target.index_copy_(dim, read[0], read[1]);
    });
    return tensor;
}

// As a GPU's kernels, it takes no operands of the CPU beside its own, but for numbers and indices.
void check_places(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
    bool here = false, elsewhere = false;
    for (std::size_t n = stack.size() - op.schema().arguments().size(); n < stack.size(); ++n) {
        if (!stack[n].isTensor() || !stack[n].toTensor().defined()) continue;
        const at::Tensor& each = stack[n].toTensor();
        here |= each.device().type() == kType;
        elsewhere |= each.is_cpu() && each.dim() > 0;
    }
    TORCH_CHECK(!here || !elsewhere, op.schema().name(), ": operands on late and on the CPU");
}

void on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
    check_places(op, *stack);
    lanes().at(current).drain();
    at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
    library.fallback(torch::CppFunction::makeFromBoxedFunction<&on_cpu>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
    library.impl("empty.memory_format", TORCH_FN(empty));
    library.impl("empty_strided", TORCH_FN(empty_strided));
    library.impl("_copy_from", TORCH_FN(copy_from));
    library.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
    library.impl("_local_scalar_dense", TORCH_FN(local_scalar));
    library.impl("as_strided", TORCH_FN(as_strided));
    library.impl("view", TORCH_FN(view));
    library.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage));
    library.impl("resize_", TORCH_FN(resize));
    library.impl("record_stream", TORCH_FN(record_stream));
    library.impl("any.out", TORCH_FN(any_out));
    library.impl("index_select.out", TORCH_FN(index_select_out));
    library.impl("index_copy_", TORCH_FN(index_copy));
}

// Else torch would copy a lazy view to show it, and to copy it would show it …
TORCH_LIBRARY_IMPL(aten, Negative, library) {
    library.impl("_copy_from", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Conjugate, library) {
    library.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

}  // namespace

PYBIND11_MODULE(late_device, module) {
    static c10::impl::DeviceGuardImplRegistrar registrar(kType, new Guard);
    at::RegisterPrivateUse1HooksInterface(new Hooks);
    c10::SetAllocator(kType, &memory());
    module.def("set_delay", [](double seconds) { copy_us = static_cast<int>(seconds * 1e6); });
    module.def("copies", [] { return copies.load(); });
    module.def("copies_after_free", [] { return after_free.load(); });
    module.def("device_waits", [] { return device_waits.load(); });
    module.def("current_stream_id", [] { return current; });
}
