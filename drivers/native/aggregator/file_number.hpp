// A file number that is closed with its owner, also if the owner's constructor throws.
#pragma once

#include <unistd.h>

namespace afflux::aggregator {

class FileNumber {
  public:
    // Takes over an open file's number.
    explicit FileNumber(int number) : number_(number) {}
    ~FileNumber() { ::close(number_); }
    FileNumber(const FileNumber&) = delete;
    FileNumber& operator=(const FileNumber&) = delete;

    int get() const { return number_; }

  private:
    int number_;
};

}  // namespace afflux::aggregator
