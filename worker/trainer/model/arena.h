// The one allocation of a run (and one of pinned memory beside a GPU), cut up by the memory plan.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/spec/memory_plan.h"
#include "kernels/core/exec.h"
#include "kernels/core/tensor.h"

namespace hearth::trainer {

// Const access is thread-safe.
class Arena {
 public:
  // Host memory, zeroed. `wide` (kF32 or kF64) is the storage type of every floating tensor.
  // kResourceExhausted: the machine does not give the memory.
  static absl::StatusOr<std::unique_ptr<Arena>> Allocate(spec::MemoryPlan plan,
                                                         kernels::DType wide);
  // Memory of exec's GPU, zeroed, and pinned host memory for that tier; floating tensors have the
  // plan's formats. kResourceExhausted as above.
  static absl::StatusOr<std::unique_ptr<Arena>> AllocateOnGpu(spec::MemoryPlan plan,
                                                              const kernels::Exec& exec);
  // Hands out addresses without memory behind them, to size op workspaces before the real plan is
  // made. Never read through.
  static std::unique_ptr<Arena> WithoutMemory(spec::MemoryPlan plan,
                                              kernels::Device device,
                                              kernels::DType wide);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // A planned buffer as a tensor: Floats in its format or the storage type, Typed in the format
  // given. A name that is not in the plan, or more bytes than planned, is a defect of ours: aborts.
  kernels::TensorView Floats(std::string_view name, std::initializer_list<int64_t> shape) const;
  kernels::TensorView Typed(std::string_view name,
                            kernels::DType dtype,
                            std::initializer_list<int64_t> shape) const;
  void* Bytes(std::string_view name, int64_t bytes) const;
  int64_t BytesOf(std::string_view name) const;
  bool Has(std::string_view name) const { return plan_.Find(name).ok(); }

  const spec::MemoryPlan& plan() const { return plan_; }

 private:
  Arena(spec::MemoryPlan plan, kernels::Device device, kernels::DType wide);

  spec::MemoryPlan plan_;
  kernels::Device device_;
  kernels::DType wide_;  // CPU alone
  uint8_t* base_[spec::kMemoryTierCount] = {nullptr, nullptr};
  bool owned_ = false;
};

}  // namespace hearth::trainer
