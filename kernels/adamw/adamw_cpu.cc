#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/adamw/adamw.h"
#include "kernels/core/cpu.h"
#include "kernels/formats/span.h"

namespace hearth::kernels {
namespace {

constexpr char kOp[] = "adamw";
constexpr int64_t kGrain = 16384;

// The step's scalars in the arithmetic's type.
template <typename T>
struct Scalars {
  T grad_scale;
  T shrink;  // 1 - lr * weight_decay
  T beta1;
  T one_minus_beta1;
  T beta2;
  T one_minus_beta2;
  T step_size;   // lr / (1 - beta1^t)
  T root_bias2;  // 1 / sqrt(1 - beta2^t)
  T eps;
};

template <typename T>
HEARTH_INLINE void UpdateImpl(
    const Scalars<T>& k, const T* grad, int64_t n, T* master, T* m, T* v) {
  const Scalars<T> c = k;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const T g = grad[i] * c.grad_scale;
    const T first = c.beta1 * m[i] + c.one_minus_beta1 * g;
    const T second = c.beta2 * v[i] + c.one_minus_beta2 * g * g;
    m[i] = first;
    v[i] = second;
    master[i] =
        master[i] * c.shrink - c.step_size * first / (std::sqrt(second) * c.root_bias2 + c.eps);
  }
}
HEARTH_SIMD void Update(
    const Scalars<float>& k, const float* grad, int64_t n, float* master, float* m, float* v) {
  UpdateImpl(k, grad, n, master, m, v);
}
HEARTH_SIMD void Update(
    const Scalars<double>& k, const double* grad, int64_t n, double* master, double* m, double* v) {
  UpdateImpl(k, grad, n, master, m, v);
}

template <typename T>
Scalars<T> ScalarsOf(const AdamWArgs& args, const AdamWTensor& tensor) {
  const double lr = args.lr * tensor.lr_scale;
  const double t = static_cast<double>(args.step);
  return {static_cast<T>(args.grad_scale == nullptr ? 1.0F : *args.grad_scale),
          static_cast<T>(1.0 - lr * tensor.weight_decay),
          static_cast<T>(args.beta1),
          static_cast<T>(1.0 - args.beta1),
          static_cast<T>(args.beta2),
          static_cast<T>(1.0 - args.beta2),
          static_cast<T>(lr / (1.0 - std::pow(args.beta1, t))),
          static_cast<T>(1.0 / std::sqrt(1.0 - std::pow(args.beta2, t))),
          static_cast<T>(args.eps)};
}

template <typename T>
absl::Status StepImpl(const Exec& exec, const AdamWArgs& args, const AdamWTensor& tensor) {
  const Scalars<T> scalars = ScalarsOf<T>(args, tensor);
  ParallelFor(exec, tensor.master.numel(), kGrain, [&](int64_t begin, int64_t end) {
    T* master = tensor.master.as<T>() + begin;
    Update(scalars, tensor.grad.as<T>() + begin, end - begin, master, tensor.m.as<T>() + begin,
           tensor.v.as<T>() + begin);
    if (!tensor.working.empty()) {
      T* working = tensor.working.as<T>() + begin;
      if (working != master) {
        std::copy_n(master, end - begin, working);
      }
      RoundSpan(working, end - begin, args.round_working);
    }
  });
  return absl::OkStatus();
}

}  // namespace

absl::Status CanImplement(const AdamWArgs& args) {
  for (const AdamWTensor& tensor : args.tensors) {
    HEARTH_RETURN_IF_ERROR(RequireFloating(tensor.master, kOp, "master"));
    const DType dtype = tensor.master.dtype;
    const int64_t count = tensor.master.numel();
    HEARTH_RETURN_IF_ERROR(RequireCount(tensor.m, dtype, count, kOp, "m"));
    HEARTH_RETURN_IF_ERROR(RequireCount(tensor.v, dtype, count, kOp, "v"));
    HEARTH_RETURN_IF_ERROR(RequireCount(tensor.grad, dtype, count, kOp, "grad"));
    if (!tensor.working.empty()) {
      HEARTH_RETURN_IF_ERROR(RequireCount(tensor.working, dtype, count, kOp, "working"));
    }
  }
  if (args.step < 1 || !(args.beta1 >= 0.0 && args.beta1 < 1.0) ||
      !(args.beta2 >= 0.0 && args.beta2 < 1.0)) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": step ", args.step, ", beta1 ",
                                                   args.beta1, ", beta2 ", args.beta2,
                                                   ": step must be >= 1, betas in [0, 1)"));
  }
  return RequireRound(args.round_working, kOp);
}

size_t AdamWWorkspaceBytes(const AdamWArgs&) {
  return 0;
}

absl::Status AdamWStep(const Exec& exec, const AdamWArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireCpu(exec, kOp));
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  if (args.skip != nullptr && *args.skip != 0) {
    return absl::OkStatus();
  }
  for (const AdamWTensor& tensor : args.tensors) {
    HEARTH_RETURN_IF_ERROR(DispatchFloating(
        tensor.master.dtype, [&]<typename T>() { return StepImpl<T>(exec, args, tensor); }));
  }
  return absl::OkStatus();
}

}  // namespace hearth::kernels
