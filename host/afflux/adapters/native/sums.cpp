// Sums of floats through Gloo, which moves them only: `afflux.group.reducers.exact_sums`, of which
// this is the all-reduce of a tensor of one chunk or two.
#include <deque>

#include "dispatch.hpp"

namespace afflux {
namespace {

// Gloo's moves of one call. Their waiter sums the elements, and begins the next moves, in the order
// in which Python has them.
class SummingWork : public c10d::Work {
  public:
    using Then = std::function<WorkPointer()>;

    // `then` is called when the move is over, and returns the next Work; none after the last one.
    void add(WorkPointer work, Then then) { moves_.emplace_back(std::move(work), std::move(then)); }

    bool wait(std::chrono::milliseconds timeout) override {
        while (!moves_.empty()) {
            if (!moves_.front().first->wait(timeout)) return false;
            // Once: the sums are in the place of what was summed.
            const Then then = std::move(moves_.front().second);
            moves_.pop_front();
            if (WorkPointer next = then ? then() : WorkPointer()) add(std::move(next), {});
        }
        return true;
    }
    // More follows only upon a success.
    bool isCompleted() override {
        return moves_.empty() ||
               (moves_.front().first->isCompleted() && moves_.front().first->exception());
    }
    bool isSuccess() const override { return moves_.empty(); }
    std::exception_ptr exception() const override {
        return moves_.empty() ? nullptr : moves_.front().first->exception();
    }
    void synchronize() override { wait(kNoTimeout); }

  private:
    std::deque<std::pair<WorkPointer, Then>> moves_;
};

using Sizes = std::vector<std::int64_t>;

// Parts of some bytes each, one after the other.
std::vector<const void*> parts_at(const void* first, std::size_t parts, std::size_t bytes) {
    std::vector<const void*> found;
    for (std::size_t k = 0; k < parts; ++k)
        found.push_back(static_cast<const std::byte*>(first) + k * bytes);
    return found;
}

void copy_behind(void* first, std::size_t copies, const void* from, std::size_t bytes) {
    for (std::size_t k = 0; k < copies; ++k)
        std::memcpy(static_cast<std::byte*>(first) + k * bytes, from, bytes);
}

}  // namespace

WorkPointer AffluxBackend::sum(const Known& call, const Asked& asked) const {
    const at::Tensor& own = asked.result[0];
    const auto ranks = static_cast<std::size_t>(getSize()),
               rank = static_cast<std::size_t>(getRank());
    const std::size_t element = own.element_size();
    const auto options = at::TensorOptions().dtype(own.scalar_type());
    c10d::AllToAllOptions limited;
    limited.timeout = asked.timeout;
    // Gloo takes the contents of the sizes.
    const auto move = [gloo = gloo(), limited](at::Tensor to, at::Tensor from, Sizes out,
                                               Sizes in) {
        return gloo->alltoall_base(to, from, out, in, limited);
    };
    const auto add = [sums = sums_, request = call.request](const std::vector<const void*>& from,
                                                            std::size_t count, void* out) {
        sums->sum(request.dtype, request.reduction, count, static_cast<std::uint32_t>(from.size()),
                  from.data(), out);
    };
    const auto work = c10::make_intrusive<SummingWork>();
    const auto chunk = static_cast<std::int64_t>(call.request.count);
    for (std::int64_t start = 0; start < own.numel(); start += chunk) {
        const std::int64_t count = std::min(chunk, own.numel() - start);
        const auto all = static_cast<std::size_t>(count);
        // Not a view, which autograd and inference mode would know of.
        at::Tensor part = at::from_blob(
            static_cast<std::byte*>(own.mutable_data_ptr()) + start * element, {count},
            [own](void*) {}, options);
        if (call.way == Way::Gathered) {
            const std::size_t others = ranks - 1, bytes = all * element;
            at::Tensor received = at::empty({count * static_cast<std::int64_t>(others)}, options);
            at::Tensor sent = part;
            if (others > 1) {
                sent = at::empty_like(received);
                copy_behind(sent.mutable_data_ptr(), others, part.const_data_ptr(), bytes);
            }
            Sizes sizes(ranks, count);
            sizes[rank] = 0;
            work->add(move(received, sent, sizes, sizes), [=] {
                std::vector<const void*> from = parts_at(received.const_data_ptr(), others, bytes);
                from.push_back(part.const_data_ptr());
                add(from, all, part.mutable_data_ptr());
                return WorkPointer();
            });
            continue;
        }
        Sizes sizes(ranks, static_cast<std::int64_t>(all / ranks));
        for (std::size_t k = 0; k < all % ranks; ++k) ++sizes[k];
        const auto mine = static_cast<std::size_t>(sizes[rank]), bytes = mine * element;
        const Sizes alike(ranks, sizes[rank]);
        at::Tensor pieces = at::empty({static_cast<std::int64_t>(ranks * mine)}, options);
        work->add(move(pieces, part, alike, sizes), [=] {
            void* const first = pieces.mutable_data_ptr();
            add(parts_at(first, ranks, bytes), mine, first);
            copy_behind(static_cast<std::byte*>(first) + bytes, ranks - 1, first, bytes);
            return move(part, pieces, sizes, alike);
        });
    }
    return work;
}

}  // namespace afflux
