// An eventfd, with which one thread ends another one's wait.
#pragma once

namespace afflux::streams {

class Wake {
  public:
    Wake();
    ~Wake();
    Wake(const Wake&) = delete;
    Wake& operator=(const Wake&) = delete;

    int fd() const { return fd_; }
    void signal() const;
    // Forgets earlier signals.
    void clear() const;

  private:
    const int fd_;
};

}  // namespace afflux::streams
