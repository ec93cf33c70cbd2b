// Where every byte of a run lives. Buffers are declared with the moments of the step between which
// they hold something; offsets follow from the lifetimes, so that buffers which are never alive
// together share bytes. Pure arithmetic.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/spec/model/dtype_alias.h"

namespace hearth::spec {

// What a buffer is for; a row of the printed table.
enum class BufferClass {
  kParameters,   // weights in the working format
  kMasters,      // full precision copies that the optimizer updates
  kGradients,    // accumulated gradients
  kOptimizer,    // optimizer state
  kActivations,  // values that backward needs
  kWorkspace,    // everything short-lived
};
inline constexpr int kBufferClassCount = 6;
std::string_view BufferClassName(BufferClass buffer_class);

enum class MemoryTier { kDevice, kPinnedHost };
inline constexpr int kMemoryTierCount = 2;
std::string_view MemoryTierName(MemoryTier tier);

// Classes whose buffers lie in pinned memory of the host (offload).
class HostClasses {
 public:
  void Add(BufferClass buffer_class) { mask_ |= Bit(buffer_class); }
  bool Has(BufferClass buffer_class) const { return (mask_ & Bit(buffer_class)) != 0; }
  bool any() const { return mask_ != 0; }
  MemoryTier TierOf(BufferClass buffer_class) const {
    return Has(buffer_class) ? MemoryTier::kPinnedHost : MemoryTier::kDevice;
  }

  auto operator<=>(const HostClasses&) const = default;  // NOLINT(modernize-use-nullptr)

 private:
  static uint32_t Bit(BufferClass buffer_class) {
    return uint32_t{1} << static_cast<uint32_t>(buffer_class);
  }

  uint32_t mask_ = 0;
};

// A buffer of a plan, by number.
struct BufferId {
  int32_t index = -1;  // -1: none

  bool exists() const { return index >= 0; }
};

// Bytes [offset, offset + bytes) of the tier's arena hold the buffer from moment `first_use` to
// `last_use`, both included.
struct PlannedBuffer {
  std::string name;  // unique in the plan
  BufferClass buffer_class = BufferClass::kWorkspace;
  int64_t bytes = 0;       // > 0
  int64_t alignment = 64;  // a power of two
  int32_t first_use = 0;   // moments of the step, see StepTimeline
  int32_t last_use = 0;
  MemoryTier tier = MemoryTier::kDevice;
  // Element format of a floating tensor; devices that widen hold it in their storage type, unless
  // it is packed. Empty: bytes or integers.
  std::optional<DType> format = std::nullopt;
  bool packed = false;
  std::vector<int64_t> shape = {};  // empty: bytes
  int64_t offset = 0;               // set by Place()
};

// Not thread-safe while it is being built; const access is.
class MemoryPlan {
 public:
  // kInvalidArgument: a name twice, no bytes, a bad alignment or lifetime.
  absl::Status Add(PlannedBuffer buffer);

  // Gives every buffer its offset: greedy, the largest first, each into the tightest gap between
  // the buffers alive at the same time, else at the lowest free offset. Deterministic in the order
  // of Add().
  void Place();

  // By its name, for people and tests. kNotFound.
  absl::StatusOr<const PlannedBuffer*> Find(std::string_view name) const;
  // `id` is one of this plan's.
  const PlannedBuffer& At(BufferId id) const { return buffers_[static_cast<size_t>(id.index)]; }
  const std::vector<PlannedBuffer>& buffers() const { return buffers_; }

  // Size of a tier's one allocation; valid after Place().
  int64_t arena_bytes(MemoryTier tier = MemoryTier::kDevice) const {
    return arena_bytes_[static_cast<int>(tier)];
  }
  // Sum over the buffers of a class, as if nothing shared bytes: of all tiers, and of one.
  int64_t ClassBytes(BufferClass buffer_class) const;
  int64_t ClassBytes(BufferClass buffer_class, MemoryTier tier) const;

  // The table that `plan` prints, with a column for each tier: a line per class, the sum, what
  // sharing saved and the arena. With `verbose` also a line per buffer: name, class, bytes, offset,
  // first and last use.
  std::string ToTable(bool verbose) const;

 private:
  std::vector<PlannedBuffer> buffers_;
  std::unordered_map<std::string, size_t> by_name_;
  int64_t arena_bytes_[kMemoryTierCount] = {0, 0};
};

}  // namespace hearth::spec
