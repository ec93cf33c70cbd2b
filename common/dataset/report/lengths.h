// How long documents are.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace hearth::dataset {

// Counts lengths: exactly below 64, in steps of at most 1/32 above. Not thread-safe.
class Lengths {
 public:
  void Add(int64_t length);  // >= 0

  int64_t count() const { return count_; }
  int64_t longest() const { return longest_; }
  // The length that a share `q` of all documents does not exceed, at most 1/32 above the exact one;
  // 0 when there are none.
  int64_t Quantile(double q) const;

  std::string ToText() const;  // for Parse
  // kInvalidArgument: not what ToText writes.
  static absl::StatusOr<Lengths> Parse(std::string_view text);

 private:
  static constexpr int kExact = 64;
  static constexpr int kSteps = 32;  // in a doubling
  static constexpr int kBuckets = kExact + kSteps * (63 - 6);

  static int BucketOf(int64_t length);
  static int64_t UpperEnd(int bucket);

  std::array<int64_t, kBuckets> buckets_{};
  int64_t count_ = 0;
  int64_t longest_ = 0;
};

}  // namespace hearth::dataset
