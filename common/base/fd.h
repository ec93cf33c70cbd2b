// A file descriptor that closes itself.
#pragma once

#include <unistd.h>

#include <utility>

namespace hearth {

// A file, folder, pipe or socket; closed by the destructor. -1 = none.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() { Reset(); }
  Fd(Fd&& other) noexcept : fd_(other.Release()) {}
  Fd& operator=(Fd&& other) noexcept {
    Reset(other.Release());
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  // Gives it away unclosed.
  int Release() { return std::exchange(fd_, -1); }
  // Closes it and holds `fd` instead. An error of the close is lost.
  void Reset(int fd = -1) {
    const int old = std::exchange(fd_, fd);
    if (old >= 0) {
      close(old);
    }
  }

 private:
  int fd_ = -1;
};

}  // namespace hearth
