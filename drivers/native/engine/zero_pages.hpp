// Memory of zeros, aligned to cache lines, of which the kernel provides only what is used.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace afflux::engine {

class ZeroPages {
  public:
    explicit ZeroPages(std::size_t bytes) : memory_(std::calloc(bytes + kLine, 1)) {
        if (!memory_) throw std::bad_alloc();
        std::size_t room = bytes + kLine;
        data_ = memory_.get();
        std::align(kLine, bytes, data_, room);
    }

    void* data() const { return data_; }

  private:
    static constexpr std::size_t kLine = 64;

    struct Free {
        void operator()(void* memory) const { std::free(memory); }
    };

    std::unique_ptr<void, Free> memory_;
    void* data_;
};

}  // namespace afflux::engine
