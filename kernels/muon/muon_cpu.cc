#include "common/base/status_macros.h"
#include "kernels/core/cpu.h"
#include "kernels/formats/state_piece.h"
#include "kernels/muon/muon.h"

namespace hearth::kernels {
namespace {

constexpr char kOp[] = "muon";
constexpr int64_t kGrain = 4096;

template <typename T>
HEARTH_INLINE void LookAheadImpl(T grad_scale, T mu, int64_t n, T* momentum, T* grad) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const T g = grad[i] * grad_scale;
    const T next = mu * momentum[i] + g;
    momentum[i] = next;
    grad[i] = g + mu * next;
  }
}
HEARTH_SIMD void LookAhead(float grad_scale, float mu, int64_t n, float* momentum, float* grad) {
  LookAheadImpl(grad_scale, mu, n, momentum, grad);
}
HEARTH_SIMD void LookAhead(
    double grad_scale, double mu, int64_t n, double* momentum, double* grad) {
  LookAheadImpl(grad_scale, mu, n, momentum, grad);
}

template <typename T>
HEARTH_INLINE void ApplyImpl(T shrink, T rate, const T* o, int64_t n, T* master) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    master[i] = master[i] * shrink - rate * o[i];
  }
}
HEARTH_SIMD void Apply(float shrink, float rate, const float* o, int64_t n, float* master) {
  ApplyImpl(shrink, rate, o, n, master);
}
HEARTH_SIMD void Apply(double shrink, double rate, const double* o, int64_t n, double* master) {
  ApplyImpl(shrink, rate, o, n, master);
}

template <typename T>
void MomentumOf(const Exec& exec, const MuonMomentumArgs& args, const MuonMomentumTensor& tensor) {
  const auto scale = static_cast<T>(args.grad_scale == nullptr ? 1.0F : *args.grad_scale);
  const auto mu = static_cast<T>(args.mu);
  ForEachStatePiece<kGrain>(exec, tensor.grad.numel(), [&](int64_t begin, int64_t end) {
    StatePiece<T> momentum(tensor.momentum, tensor.blocks, begin, end - begin);
    LookAhead(scale, mu, end - begin, momentum.data(), tensor.grad.as<T>() + begin);
    momentum.Store();
  });
}

template <typename T>
void UpdateOf(const Exec& exec, const MuonUpdateArgs& args, const MuonUpdateTensor& tensor) {
  const double lr =
      (args.inputs == nullptr ? args.lr : args.inputs->learning_rate) * tensor.lr_scale;
  const int64_t step = args.inputs == nullptr ? args.step : args.inputs->step;
  const auto shrink = static_cast<T>(1.0 - lr * tensor.weight_decay);
  const auto rate = static_cast<T>(lr * tensor.rate);
  ForEachStatePiece<kGrain>(exec, tensor.master.numel(), [&](int64_t begin, int64_t end) {
    const int64_t count = end - begin;
    PlainPiece<T> master(tensor.master, begin, count);
    Apply(shrink, rate, tensor.o.as<T>() + begin, count, master.data());
    StoreWeights(args, tensor, static_cast<uint32_t>(step), begin, count, master);
  });
}

}  // namespace

namespace cpu {

absl::Status MuonMomentum(const Exec& exec, const MuonMomentumArgs& args) {
  for (const MuonMomentumTensor& tensor : args.tensors) {
    HEARTH_RETURN_IF_ERROR(RequireStorage(exec, tensor.grad.dtype, kOp));
    if (tensor.momentum.dtype != DType::kBF16 && tensor.momentum.dtype != DType::kU8) {
      HEARTH_RETURN_IF_ERROR(
          RequireCount(tensor.momentum, tensor.grad.dtype, tensor.grad.numel(), kOp, "momentum"));
    }
  }
  const bool skip = args.skip != nullptr && *args.skip != 0;
  for (size_t i = 0; !skip && i < args.tensors.size(); ++i) {
    const MuonMomentumTensor& tensor = args.tensors[i];
    DispatchFloating(tensor.grad.dtype, [&]<typename T>() { MomentumOf<T>(exec, args, tensor); });
  }
  return absl::OkStatus();
}

absl::Status MuonUpdate(const Exec& exec, const MuonUpdateArgs& args) {
  for (const MuonUpdateTensor& tensor : args.tensors) {
    const DType T = tensor.o.dtype;
    HEARTH_RETURN_IF_ERROR(RequireStorage(exec, T, kOp));
    if (!tensor.working.empty()) {
      HEARTH_RETURN_IF_ERROR(RequireCount(tensor.working, T, tensor.o.numel(), kOp, "working"));
    }
    if (tensor.master.dtype != DType::kBF16) {
      HEARTH_RETURN_IF_ERROR(RequireCount(tensor.master, T, tensor.o.numel(), kOp, "master"));
    }
  }
  const bool skip = args.skip != nullptr && *args.skip != 0;
  for (size_t i = 0; !skip && i < args.tensors.size(); ++i) {
    const MuonUpdateTensor& tensor = args.tensors[i];
    DispatchFloating(tensor.o.dtype, [&]<typename T>() { UpdateOf<T>(exec, args, tensor); });
  }
  return absl::OkStatus();
}

}  // namespace cpu

}  // namespace hearth::kernels
