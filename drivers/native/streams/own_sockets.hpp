// Sockets that a forked process does not keep.
#pragma once

#include <vector>

namespace afflux::streams {

// A connection lasts as long as any process has its socket. A copy in a forked process, such as a
// data loader's, would hide from the peers that this process has ended.
class OwnSockets {
  public:
    // Takes over the sockets; -1 stands for none.
    explicit OwnSockets(std::vector<int> sockets);
    // Closes them, in the process that has made this object.
    ~OwnSockets();
    OwnSockets(const OwnSockets&) = delete;
    OwnSockets& operator=(const OwnSockets&) = delete;

    const std::vector<int>& all() const { return sockets_; }

  private:
    const std::vector<int> sockets_;
};

}  // namespace afflux::streams
