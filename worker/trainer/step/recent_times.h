// The times of the last steps of a rank's own work.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

namespace hearth::trainer {

// Allocates nothing. Not thread-safe.
class RecentTimes {
 public:
  static constexpr size_t kWindow = 32;
  // Fewer say little.
  static constexpr size_t kLeast = 4;

  // 0 and less: not measured.
  void Add(double seconds) {
    if (seconds > 0) {
      times_[added_++ % kWindow] = seconds;
    }
  }
  // The upper one of two; 0 = too few were measured.
  double Median() const {
    const size_t count = std::min(added_, kWindow);
    if (count < kLeast) {
      return 0;
    }
    std::array<double, kWindow> sorted = times_;
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(count / 2);
    std::nth_element(sorted.begin(), middle, sorted.begin() + static_cast<std::ptrdiff_t>(count));
    return *middle;
  }

 private:
  std::array<double, kWindow> times_{};
  size_t added_ = 0;
};

}  // namespace hearth::trainer
