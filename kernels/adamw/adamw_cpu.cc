#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/adamw/adamw.h"
#include "kernels/adamw/adamw_scalars.h"
#include "kernels/core/cpu.h"
#include "kernels/core/formats.h"
#include "kernels/formats/state_piece.h"

namespace hearth::kernels {
namespace {

constexpr char kOp[] = "adamw";
constexpr int64_t kGrain = 16384;

template <typename T>
HEARTH_INLINE void UpdateImpl(
    const AdamWScalars<T>& k, const T* grad, int64_t n, T* master, T* m, T* v) {
  // A copy, because the stores below could alias `k`: the compiler then keeps the scalars in
  // registers.
  const AdamWScalars<T> c = k;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const T g = grad[i] * c.grad_scale;
    const T first = c.beta1 * m[i] + c.one_minus_beta1 * g;
    const T second = c.beta2 * v[i] + c.one_minus_beta2 * g * g;
    m[i] = first;
    v[i] = second;
    // Decay is decoupled (AdamW): it scales the weight, not the gradient. Bias corrections are
    // folded into step_size and root_bias2, so that nothing is divided twice.
    master[i] =
        master[i] * c.shrink - c.step_size * first / (std::sqrt(second) * c.root_bias2 + c.eps);
  }
}
HEARTH_SIMD void Update(
    const AdamWScalars<float>& k, const float* grad, int64_t n, float* master, float* m, float* v) {
  UpdateImpl(k, grad, n, master, m, v);
}
HEARTH_SIMD void Update(const AdamWScalars<double>& k,
                        const double* grad,
                        int64_t n,
                        double* master,
                        double* m,
                        double* v) {
  UpdateImpl(k, grad, n, master, m, v);
}

// Scalars of the step that all tensors share.
struct Step {
  double learning_rate;
  double bias_correction1;
  double bias_correction2;
  uint32_t number;
};

Step StepOf(const AdamWArgs& args) {
  if (args.inputs != nullptr) {
    return {args.inputs->learning_rate, args.inputs->optimizer[kBiasCorrection1],
            args.inputs->optimizer[kBiasCorrection2], static_cast<uint32_t>(args.inputs->step)};
  }
  // In double: 1 - beta2^t would lose half its digits in float during the first steps.
  const double t = static_cast<double>(args.step);
  return {args.lr, 1.0 - std::pow(args.beta1, t), 1.0 - std::pow(args.beta2, t),
          static_cast<uint32_t>(args.step)};
}

template <typename T>
AdamWScalars<T> ScalarsOf(const AdamWArgs& args, const Step& step, const AdamWTensor& tensor) {
  const double lr = step.learning_rate * tensor.lr_scale;
  return {static_cast<T>(args.grad_scale == nullptr ? 1.0F : *args.grad_scale),
          static_cast<T>(1.0 - lr * tensor.weight_decay),
          static_cast<T>(args.beta1),
          static_cast<T>(1.0 - args.beta1),
          static_cast<T>(args.beta2),
          static_cast<T>(1.0 - args.beta2),
          static_cast<T>(lr / step.bias_correction1),
          static_cast<T>(1.0 / std::sqrt(step.bias_correction2)),
          static_cast<T>(args.eps)};
}

template <typename T>
absl::Status StepImpl(const Exec& exec, const AdamWArgs& args, const AdamWTensor& tensor) {
  const Step step = StepOf(args);
  const AdamWScalars<T> scalars = ScalarsOf<T>(args, step, tensor);
  ForEachStatePiece<kGrain>(exec, tensor.master.numel(), [&](int64_t begin, int64_t end) {
    const int64_t count = end - begin;
    PlainPiece<T> master(tensor.master, begin, count);
    StatePiece<T> m(tensor.m, tensor.m_blocks, begin, count);
    StatePiece<T> v(tensor.v, tensor.v_blocks, begin, count);
    Update(scalars, tensor.grad.as<T>() + begin, count, master.data(), m.data(), v.data());
    m.Store();
    v.Store();
    StoreWeights(args, tensor, step.number, begin, count, master);
  });
  return absl::OkStatus();
}

// What the CPU stores: the gradient's type T, or bf16 for the state.
absl::Status RequireCpuTypes(const AdamWTensor& tensor) {
  const DType T = tensor.grad.dtype;
  if (T == DType::kBF16) {
    return absl::UnimplementedError(absl::StrCat(kOp, ": bf16 gradients on the CPU"));
  }
  const int64_t count = tensor.master.numel();
  for (const TensorView* view : {&tensor.master, &tensor.m, &tensor.v}) {
    if (view->dtype != DType::kBF16 && view->dtype != DType::kU8) {
      HEARTH_RETURN_IF_ERROR(RequireCount(*view, T, count, kOp, "master, m or v"));
    }
  }
  return tensor.working.empty() ? absl::OkStatus()
                                : RequireCount(tensor.working, T, count, kOp, "working");
}

}  // namespace

namespace cpu {

absl::Status AdamWStep(const Exec& exec, const AdamWArgs& args) {
  for (const AdamWTensor& tensor : args.tensors) {
    HEARTH_RETURN_IF_ERROR(RequireCpuTypes(tensor));
  }
  if (args.skip != nullptr && *args.skip != 0) {
    return absl::OkStatus();
  }
  for (const AdamWTensor& tensor : args.tensors) {
    HEARTH_RETURN_IF_ERROR(DispatchFloating(
        tensor.grad.dtype, [&]<typename T>() { return StepImpl<T>(exec, args, tensor); }));
  }
  return absl::OkStatus();
}

}  // namespace cpu

}  // namespace hearth::kernels
