// The function of a feed-forward block, each way together with the product before it, so that one
// kernel can do both. A row for each of formats::Activation.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "common/formats/model_functions.h"
#include "kernels/core/activation.h"
#include "kernels/core/exec.h"
#include "kernels/core/kept_input.h"
#include "kernels/core/tensor.h"
#include "kernels/gemm/gemm.h"
#include "worker/trainer/precision/operand.h"

namespace hearth::trainer {

struct ActivationForward {
  kernels::ActivationOutputs outputs;        // of [N, F]
  kernels::TensorView input;                 // [N, in]
  std::optional<kernels::GemmArgs> product;  // writes the input first
  bool input_read = true;  // afterwards; if not, a product may leave its contents undefined
};

struct ActivationBackward {
  kernels::GemmArgs product;  // writes the gradient of the output
  kernels::TensorView input;
  OperandTarget gradient;  // of the input
  kernels::KeptInput kept;
  kernels::DType round = kernels::DType::kF32;  // of the gradient, and of the output
  // The output once more; empty: not wanted. Only functions whose down projection waits for it
  // (spec::GemmSites::dy_waits) have it.
  kernels::QuantView output;
};

struct ActivationFunction {
  formats::Activation kind;
  absl::Status (*forward)(const kernels::Exec& exec,
                          formats::Activation kind,
                          const ActivationForward& args);
  absl::Status (*backward)(const kernels::Exec& exec,
                           formats::Activation kind,
                           const ActivationBackward& args);

  absl::Status Forward(const kernels::Exec& exec, const ActivationForward& args) const {
    return forward(exec, kind, args);
  }
  absl::Status Backward(const kernels::Exec& exec, const ActivationBackward& args) const {
    return backward(exec, kind, args);
  }
};

// Lives for ever.
const ActivationFunction& FunctionOf(formats::Activation kind);

}  // namespace hearth::trainer
