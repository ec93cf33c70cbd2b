#include "common/spec/plan/memory_plan.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace hearth::spec {
namespace {

constexpr std::string_view kClassNames[kBufferClassCount] = {
    "parameters", "masters", "gradients", "optimizer", "activations", "workspace"};
constexpr std::string_view kTierNames[kMemoryTierCount] = {"device", "pinned_host"};

int64_t AlignUp(int64_t value, int64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

// A buffer that comes and goes, at its place.
struct Placed {
  int64_t begin;
  int64_t end;
  int32_t first_use;
  int32_t last_use;
};

bool AliveTogether(const Placed& a, const PlannedBuffer& b) {
  return a.first_use <= b.last_use && b.first_use <= a.last_use;
}

// The offset from `base` on in the tightest gap that holds the buffer between those of `placed`
// (its tier's, sorted by begin) that are alive with it, else behind them all.
int64_t BestFit(const std::vector<Placed>& placed, int64_t base, const PlannedBuffer& buffer) {
  int64_t best_offset = -1;
  int64_t best_slack = std::numeric_limits<int64_t>::max();
  int64_t cursor = base;
  for (const Placed& other : placed) {
    if (!AliveTogether(other, buffer)) {
      continue;
    }
    const int64_t offset = AlignUp(cursor, buffer.alignment);
    const int64_t slack = other.begin - (offset + buffer.bytes);
    if (slack >= 0 && slack < best_slack) {
      best_slack = slack;
      best_offset = offset;
    }
    cursor = std::max(cursor, other.end);
  }
  return best_offset >= 0 ? best_offset : AlignUp(cursor, buffer.alignment);
}

using TierBytes = std::array<int64_t, kMemoryTierCount>;

std::string Mebibytes(int64_t bytes) {
  return absl::StrFormat("%.2f", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

std::string_view BufferClassName(BufferClass buffer_class) {
  return kClassNames[static_cast<int>(buffer_class)];
}

std::string_view MemoryTierName(MemoryTier tier) {
  return kTierNames[static_cast<int>(tier)];
}

absl::Status MemoryPlan::Add(PlannedBuffer buffer) {
  if (buffer.bytes <= 0) {
    return absl::InvalidArgumentError(absl::StrCat("buffer ", buffer.name, " has no bytes"));
  }
  if (buffer.alignment <= 0 || (buffer.alignment & (buffer.alignment - 1)) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("buffer ", buffer.name, ": alignment ",
                                                   buffer.alignment, " is not a power of two"));
  }
  if (buffer.first_use > buffer.last_use) {
    return absl::InvalidArgumentError(
        absl::StrCat("buffer ", buffer.name, " is last used before it is first used"));
  }
  if (!by_name_.emplace(buffer.name, buffers_.size()).second) {
    return absl::InvalidArgumentError(absl::StrCat("buffer ", buffer.name, " planned twice"));
  }
  buffers_.push_back(std::move(buffer));
  return absl::OkStatus();
}

void MemoryPlan::Place() {
  std::vector<size_t> order(buffers_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // Long-lived buffers first: they would otherwise split the space that the short-lived ones share.
  std::stable_sort(order.begin(), order.end(), [this](size_t a, size_t b) {
    const int32_t life_a = buffers_[a].last_use - buffers_[a].first_use;
    const int32_t life_b = buffers_[b].last_use - buffers_[b].first_use;
    if (life_a != life_b) {
      return life_a > life_b;
    }
    return buffers_[a].bytes > buffers_[b].bytes;
  });
  int32_t end_of_time = 0;
  for (const PlannedBuffer& buffer : buffers_) {
    end_of_time = std::max(end_of_time, buffer.last_use);
  }
  int64_t base[kMemoryTierCount] = {0, 0};  // end of the buffers that live for ever
  // Sorted by begin as they come: a plan of a thousand layers has ten thousand buffers, and each
  // looks at all before it.
  std::vector<Placed> placed[kMemoryTierCount];
  std::fill(std::begin(arena_bytes_), std::end(arena_bytes_), 0);
  for (const size_t index : order) {
    PlannedBuffer& buffer = buffers_[index];
    const int tier = static_cast<int>(buffer.tier);
    // Stacked at the bottom: these come first in the order, so that gaps are looked for only above
    // them, among buffers that come and go.
    if (buffer.first_use == 0 && buffer.last_use == end_of_time) {
      buffer.offset = AlignUp(base[tier], buffer.alignment);
      base[tier] = buffer.offset + buffer.bytes;
    } else {
      std::vector<Placed>& others = placed[tier];
      buffer.offset = BestFit(others, base[tier], buffer);
      const Placed here{buffer.offset, buffer.offset + buffer.bytes, buffer.first_use,
                        buffer.last_use};
      others.insert(
          std::upper_bound(others.begin(), others.end(), here,
                           [](const Placed& a, const Placed& b) { return a.begin < b.begin; }),
          here);
    }
    arena_bytes_[tier] = std::max(arena_bytes_[tier], buffer.offset + buffer.bytes);
  }
}

absl::StatusOr<const PlannedBuffer*> MemoryPlan::Find(std::string_view name) const {
  const auto it = by_name_.find(std::string(name));
  if (it == by_name_.end()) {
    return absl::NotFoundError(absl::StrCat(
        "no buffer named ", absl::string_view(name.data(), name.size()), " in the memory plan"));
  }
  return &buffers_[it->second];
}

int64_t MemoryPlan::ClassBytes(BufferClass buffer_class) const {
  return ClassBytes(buffer_class, MemoryTier::kDevice) +
         ClassBytes(buffer_class, MemoryTier::kPinnedHost);
}

int64_t MemoryPlan::ClassBytes(BufferClass buffer_class, MemoryTier tier) const {
  int64_t bytes = 0;
  for (const PlannedBuffer& buffer : buffers_) {
    bytes += buffer.buffer_class == buffer_class && buffer.tier == tier ? buffer.bytes : 0;
  }
  return bytes;
}

std::string MemoryPlan::ToTable(bool verbose) const {
  std::string out = absl::StrFormat("%-14s %12s %12s\n", "CLASS", "MIB", "HOST MIB");
  const auto line = [&out](std::string_view name, const TierBytes& bytes) {
    absl::StrAppendFormat(&out, "%-14s %12s %12s\n", std::string(name), Mebibytes(bytes[0]),
                          Mebibytes(bytes[1]));
  };
  TierBytes sum = {0, 0};
  for (int i = 0; i < kBufferClassCount; ++i) {
    TierBytes bytes = {0, 0};
    for (size_t tier = 0; tier < bytes.size(); ++tier) {
      bytes[tier] = ClassBytes(static_cast<BufferClass>(i), static_cast<MemoryTier>(tier));
      sum[tier] += bytes[tier];
    }
    line(kClassNames[i], bytes);
  }
  line("sum", sum);
  line("shared", {sum[0] - arena_bytes_[0], sum[1] - arena_bytes_[1]});
  line("total", {arena_bytes_[0], arena_bytes_[1]});
  if (!verbose) {
    return out;
  }
  absl::StrAppendFormat(&out, "\n%-44s %-12s %-12s %14s %14s %7s %7s\n", "BUFFER", "CLASS", "TIER",
                        "BYTES", "OFFSET", "FIRST", "LAST");
  for (const PlannedBuffer& b : buffers_) {
    absl::StrAppendFormat(&out, "%-44s %-12s %-12s %14d %14d %7d %7d\n", b.name,
                          std::string(BufferClassName(b.buffer_class)),
                          std::string(MemoryTierName(b.tier)), b.bytes, b.offset, b.first_use,
                          b.last_use);
  }
  return out;
}

}  // namespace hearth::spec
