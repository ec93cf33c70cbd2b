#include "worker/trainer/model/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/fault/fault.h"
#include "common/io/checksum.h"
#include "common/io/chunk_threads.h"
#include "kernels/cuda/device.h"
#include "worker/trainer/precision/numerics.h"

namespace hearth::trainer {

using kernels::Device;
using kernels::DType;
using kernels::TensorView;
using spec::MemoryTier;

namespace {

constexpr int kDeviceTier = static_cast<int>(MemoryTier::kDevice);
constexpr int kPinnedTier = static_cast<int>(MemoryTier::kPinnedHost);
constexpr int64_t kZeroedAtOnce = int64_t{64} << 20;

// By several threads, because states in the host's memory may be tens of GB.
absl::Status ZeroHost(uint8_t* data, int64_t bytes) {
  const int64_t chunks = (bytes + kZeroedAtOnce - 1) / kZeroedAtOnce;
  return ForEachChunk(chunks, FileThreads(), [&](int64_t chunk) {
    const int64_t begin = chunk * kZeroedAtOnce;
    std::memset(data + begin, 0, static_cast<size_t>(std::min(kZeroedAtOnce, bytes - begin)));
    return absl::OkStatus();
  });
}

}  // namespace

Arena::Arena(spec::TrainingPlan plan, Device device, DType wide)
    : plan_(std::move(plan)), device_(device), wide_(wide) {}

Arena::~Arena() {
  if (!owned_) {
    return;
  }
  if (device_ == Device::kCuda) {
    kernels::FreeDevice(base_[kDeviceTier]);
    kernels::FreePinned(base_[kPinnedTier]);
    return;
  }
  for (int tier = 0; tier < spec::kMemoryTierCount; ++tier) {
    if (base_[tier] != nullptr) {
      munmap(base_[tier], static_cast<size_t>(plan_.arena_bytes(static_cast<MemoryTier>(tier))));
    }
  }
}

absl::StatusOr<std::unique_ptr<Arena>> Arena::Allocate(spec::TrainingPlan plan, DType wide) {
  HEARTH_RETURN_IF_ERROR(fault::Check("trainer.allocate"));
  std::unique_ptr<Arena> arena(new Arena(std::move(plan), Device::kCpu, wide));
  arena->owned_ = true;
  for (int tier = 0; tier < spec::kMemoryTierCount; ++tier) {
    const int64_t bytes = arena->plan_.arena_bytes(static_cast<MemoryTier>(tier));
    if (bytes == 0) {
      continue;
    }
    void* base = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the machine does not give ", bytes, " bytes of memory"));
    }
    // Fewer TLB misses; a hint that may be refused without harm.
    madvise(base, static_cast<size_t>(bytes), MADV_HUGEPAGE);
    arena->base_[tier] = static_cast<uint8_t*>(base);
  }
  return arena;
}

absl::StatusOr<std::unique_ptr<Arena>> Arena::AllocateOnGpu(spec::TrainingPlan plan,
                                                            const kernels::Exec& exec) {
  std::unique_ptr<Arena> arena(new Arena(std::move(plan), Device::kCuda, DType::kF32));
  arena->owned_ = true;
  const auto device_bytes = static_cast<size_t>(arena->plan_.arena_bytes(MemoryTier::kDevice));
  HEARTH_RETURN_IF_ERROR(fault::Check("trainer.allocate"));
  HEARTH_ASSIGN_OR_RETURN(void* const device, kernels::AllocateDevice(*exec.cuda, device_bytes));
  arena->base_[kDeviceTier] = static_cast<uint8_t*>(device);
  HEARTH_RETURN_IF_ERROR(kernels::Zero(exec, device, device_bytes));
  if (const int64_t pinned = arena->plan_.arena_bytes(MemoryTier::kPinnedHost); pinned > 0) {
    HEARTH_ASSIGN_OR_RETURN(void* const host, kernels::AllocatePinned(static_cast<size_t>(pinned)));
    arena->base_[kPinnedTier] = static_cast<uint8_t*>(host);
    HEARTH_RETURN_IF_ERROR(ZeroHost(arena->base_[kPinnedTier], pinned));
  }
  return arena;
}

std::unique_ptr<Arena> Arena::WithoutMemory(spec::TrainingPlan plan, Device device, DType wide) {
  std::unique_ptr<Arena> arena(new Arena(std::move(plan), device, wide));
  // Any aligned non-null address serves: views must not look absent.
  arena->base_[kDeviceTier] = arena->base_[kPinnedTier] = reinterpret_cast<uint8_t*>(4096);
  return arena;
}

std::unique_ptr<Arena> Arena::Within(spec::TrainingPlan plan,
                                     const kernels::Exec& exec,
                                     DType wide,
                                     uint8_t* memory) {
  std::unique_ptr<Arena> arena(new Arena(std::move(plan), exec.device, wide));
  HEARTH_CHECK(arena->plan_.arena_bytes(MemoryTier::kPinnedHost) == 0, "one tier has memory");
  arena->base_[kDeviceTier] = memory;
  return arena;
}

uint8_t* Arena::Bytes(spec::BufferId id) const {
  if (!id.exists()) {
    return nullptr;
  }
  const spec::PlannedBuffer& buffer = plan_.At(id);
  return base_[static_cast<int>(buffer.tier)] + buffer.offset;
}

int64_t Arena::BytesOf(spec::BufferId id) const {
  return id.exists() ? plan_.At(id).bytes : 0;
}

TensorView Arena::Typed(spec::BufferId id, DType dtype) const {
  TensorView view;
  if (!id.exists()) {
    return view;
  }
  const spec::PlannedBuffer& buffer = plan_.At(id);
  view.data = Bytes(id);
  view.dtype = dtype;
  view.rank = static_cast<int>(buffer.shape.size());
  std::copy(buffer.shape.begin(), buffer.shape.end(), view.shape.begin());
  HEARTH_CHECK(static_cast<int64_t>(view.bytes()) == buffer.bytes, buffer.name.c_str());
  return view;
}

TensorView Arena::Floats(spec::BufferId id) const {
  if (!id.exists()) {
    return {};
  }
  const spec::PlannedBuffer& buffer = plan_.At(id);
  HEARTH_CHECK(buffer.format.has_value(), buffer.name.c_str());
  return Typed(id, device_ == Device::kCpu && !buffer.packed ? wide_ : *buffer.format);
}

}  // namespace hearth::trainer
