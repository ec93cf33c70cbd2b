// The one allocation of a run, cut up by the memory plan.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/spec/memory_plan.h"
#include "kernels/core/tensor.h"

namespace hearth::trainer {

// Host memory, zeroed. Const access is thread-safe.
class Arena {
 public:
  // kResourceExhausted: the machine does not give the memory. `float_dtype` (kF32 or kF64) is that
  // of Floats().
  static absl::StatusOr<std::unique_ptr<Arena>> Allocate(spec::MemoryPlan plan,
                                                         kernels::DType float_dtype);
  // Hands out addresses without memory behind them, to size op workspaces before the real plan is
  // made. Never read through.
  static std::unique_ptr<Arena> WithoutMemory(spec::MemoryPlan plan, kernels::DType float_dtype);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // A planned buffer as a tensor. A name that is not in the plan, or more bytes than planned, is a
  // defect of ours: aborts.
  kernels::TensorView Floats(std::string_view name, std::initializer_list<int64_t> shape) const;
  kernels::TensorView Typed(std::string_view name,
                            kernels::DType dtype,
                            std::initializer_list<int64_t> shape) const;
  void* Bytes(std::string_view name, int64_t bytes) const;
  int64_t BytesOf(std::string_view name) const;
  bool Has(std::string_view name) const { return plan_.Find(name).ok(); }

  const spec::MemoryPlan& plan() const { return plan_; }
  kernels::DType float_dtype() const { return float_dtype_; }

 private:
  Arena(spec::MemoryPlan plan, kernels::DType float_dtype, uint8_t* base, bool owned);

  spec::MemoryPlan plan_;
  kernels::DType float_dtype_;
  uint8_t* base_;
  bool owned_;
};

}  // namespace hearth::trainer
