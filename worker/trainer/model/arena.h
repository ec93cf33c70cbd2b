// The one allocation of a run (and one of pinned memory beside a GPU), cut up by the memory plan.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "common/base/status_macros.h"
#include "common/spec/plan/training_plan.h"
#include "kernels/core/exec.h"
#include "kernels/core/tensor.h"

namespace hearth::trainer {

// Const access is thread-safe.
class Arena {
 public:
  // Host memory for all tiers, zeroed. `wide` (kF32 or kF64) is the storage type of floating
  // tensors.
  // kResourceExhausted: the machine does not give the memory.
  static absl::StatusOr<std::unique_ptr<Arena>> Allocate(spec::TrainingPlan plan,
                                                         kernels::DType wide);
  // Memory of exec's GPU and pinned host memory for that tier, zeroed; floating tensors have the
  // plan's formats. kResourceExhausted as above.
  static absl::StatusOr<std::unique_ptr<Arena>> AllocateOnGpu(spec::TrainingPlan plan,
                                                              const kernels::Exec& exec);
  // Hands out addresses without memory behind them, to size op workspaces before the real plan is
  // made. Never read through.
  static std::unique_ptr<Arena> WithoutMemory(spec::TrainingPlan plan,
                                              kernels::Device device,
                                              kernels::DType wide);
  // In memory of somebody else, of exec's device, 256-byte aligned, which holds the plan's device
  // tier and outlives the arena. The plan has no other tier.
  static std::unique_ptr<Arena> Within(spec::TrainingPlan plan,
                                       const kernels::Exec& exec,
                                       kernels::DType wide,
                                       uint8_t* memory);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // A planned buffer as a tensor of its planned shape: Floats in its format, or on the CPU in the
  // storage type unless it is packed, Typed in the format given, which must fill it. Empty where
  // the plan has none.
  kernels::TensorView Floats(spec::BufferId id) const;
  kernels::TensorView Typed(spec::BufferId id, kernels::DType dtype) const;
  // A planned buffer's bytes; null where the plan has none.
  uint8_t* Bytes(spec::BufferId id) const;
  int64_t BytesOf(spec::BufferId id) const;
  // Whether the plan has it in pinned memory of the host.
  bool OnHost(spec::BufferId id) const {
    return id.exists() && plan_.At(id).tier == spec::MemoryTier::kPinnedHost;
  }
  // The buffer as one T, which fits.
  template <typename T>
  T* As(spec::BufferId id) const {
    HEARTH_CHECK(static_cast<int64_t>(sizeof(T)) <= BytesOf(id), "the plan has room for it");
    return reinterpret_cast<T*>(Bytes(id));
  }

  const spec::StepBuffers& ids() const { return plan_.ids; }
  const spec::TrainingPlan& plan() const { return plan_; }

 private:
  Arena(spec::TrainingPlan plan, kernels::Device device, kernels::DType wide);

  spec::TrainingPlan plan_;
  kernels::Device device_;
  kernels::DType wide_;  // only on the CPU
  uint8_t* base_[spec::kMemoryTierCount] = {nullptr, nullptr};
  bool owned_ = false;
};

}  // namespace hearth::trainer
