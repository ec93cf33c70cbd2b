#include "common/dataset/report/lengths.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace hearth::dataset {

int Lengths::BucketOf(int64_t length) {
  if (length < kExact) {
    return static_cast<int>(length);
  }
  const int doubling = static_cast<int>(std::bit_width(static_cast<uint64_t>(length))) - 1;  // >= 6
  // The six highest bits: a 1 and the number of the step.
  const int step = static_cast<int>(length >> (doubling - 5)) - kSteps;
  return kExact + (doubling - 6) * kSteps + step;
}

int64_t Lengths::UpperEnd(int bucket) {
  if (bucket < kExact) {
    return bucket;
  }
  const int doubling = (bucket - kExact) / kSteps + 6;
  const int64_t step = (bucket - kExact) % kSteps + kSteps + 1;
  return static_cast<int64_t>((static_cast<uint64_t>(step) << (doubling - 5)) - 1);
}

void Lengths::Add(int64_t length) {
  ++buckets_[static_cast<size_t>(BucketOf(length))];
  ++count_;
  longest_ = std::max(longest_, length);
}

int64_t Lengths::Quantile(double q) const {
  int64_t left = static_cast<int64_t>(std::ceil(q * static_cast<double>(count_)));
  for (int i = 0; i < kBuckets; ++i) {
    left -= buckets_[static_cast<size_t>(i)];
    if (left <= 0) {
      return std::min(UpperEnd(i), longest_);
    }
  }
  return longest_;
}

std::string Lengths::ToText() const {
  std::string text = absl::StrCat(longest_);
  for (int i = 0; i < kBuckets; ++i) {
    if (const int64_t n = buckets_[static_cast<size_t>(i)]; n > 0) {
      absl::StrAppend(&text, " ", i, ":", n);
    }
  }
  return text;
}

absl::StatusOr<Lengths> Lengths::Parse(std::string_view text) {
  Lengths lengths;
  const absl::Status bad = absl::InvalidArgumentError("not a list of lengths");
  bool first = true;
  for (const absl::string_view word :
       absl::StrSplit(absl::string_view(text.data(), text.size()), ' ')) {
    if (first) {
      if (!absl::SimpleAtoi(word, &lengths.longest_)) {
        return bad;
      }
      first = false;
      continue;
    }
    const std::pair<absl::string_view, absl::string_view> entry =
        absl::StrSplit(word, absl::MaxSplits(':', 1));
    int bucket = 0;
    int64_t n = 0;
    if (!absl::SimpleAtoi(entry.first, &bucket) || bucket < 0 || bucket >= kBuckets ||
        !absl::SimpleAtoi(entry.second, &n) || n < 1) {
      return bad;
    }
    lengths.buckets_[static_cast<size_t>(bucket)] = n;
    lengths.count_ += n;
  }
  return lengths;
}

}  // namespace hearth::dataset
