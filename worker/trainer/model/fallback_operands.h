// Operands of one linear layer's products in PrecisionPlan::fallback. Layers that run in it keep
// what passes in BF16 keep; weights, inputs and gradients are quantised right before each product,
// into bytes that the job's own recipe uses otherwise.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/core/exec.h"
#include "kernels/core/tensor.h"
#include "worker/trainer/model/quant_state.h"

namespace hearth::trainer {

struct ModelContext;

class FallbackOperands {
 public:
  enum class Role : uint8_t { kX, kDy, kW };

  // None: the job cannot fall back to a quantised recipe, or not in this layer.
  FallbackOperands() = default;
  // `k`: the weight's number in context.quant.
  FallbackOperands(const ModelContext& context, int k);

  bool empty() const { return scales_ == nullptr; }
  // How a product reads `plain`, [R, C]: its rows, [R, C], or with `columns` [C, R]. Only what was
  // quantised last of x and dy, and of weights and columns of x, is valid.
  ProductOperand View(Role role, const kernels::TensorView& plain, bool columns) const;
  // The same once the values are there.
  absl::StatusOr<ProductOperand> Quantize(const kernels::Exec& exec,
                                          Role role,
                                          const kernels::TensorView& plain,
                                          bool columns) const;

 private:
  int64_t Site(Role role) const;

  const TensorScales* scales_ = nullptr;
  int64_t k_ = 0;
  uint8_t* a_ = nullptr;
  uint8_t* b_ = nullptr;
};

}  // namespace hearth::trainer
