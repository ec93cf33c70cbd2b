#include "worker/trainer/cli/bench/memory_calls.h"

#include <cstdint>
#include <initializer_list>

#include "common/base/status_macros.h"
#include "kernels/adamw/adamw.h"
#include "kernels/copy_values/copy_values.h"
#include "kernels/cuda/device.h"
#include "kernels/norm/norm.h"
#include "kernels/swiglu/swiglu.h"

namespace hearth::trainer {
namespace {

using kernels::DType;
using kernels::TensorView;

constexpr DType kBF16 = DType::kBF16;
constexpr DType kF32 = DType::kF32;
constexpr int64_t kCopyValues = int64_t{1} << 29;  // of two bytes
constexpr int64_t kSmallestValues = 8;             // one access of a thread
constexpr int64_t kCachedValues = int64_t{1} << 21;
constexpr int64_t kRows = 32768;  // tokens
constexpr int64_t kHidden = 2048;
constexpr int64_t kFfn = 5632;
constexpr int64_t kParameters = int64_t{1} << 26;

double BytesOf(std::initializer_list<const TensorView*> views) {
  double bytes = 0;
  for (const TensorView* view : views) {
    bytes += static_cast<double>(view->bytes());
  }
  return bytes;
}

absl::StatusOr<MemoryCalls> CopyOf(const kernels::Exec& exec, int64_t values) {
  MemoryCalls made;
  kernels::CopyValuesArgs args;
  HEARTH_ASSIGN_OR_RETURN(args.x, made.tensors.Random(exec, kBF16, {values}));
  HEARTH_ASSIGN_OR_RETURN(args.y, made.tensors.Random(exec, kBF16, {values}));
  made.bytes = BytesOf({&args.x, &args.y});
  made.call = [&exec, args] { return kernels::CopyValues(exec, args); };
  return made;
}

// RMSNorm with the residual before it, and its backward, which adds the stream's gradient.
struct NormArgs {
  kernels::RmsNormForwardArgs forward;
  kernels::RmsNormBackwardArgs backward;

  static absl::StatusOr<NormArgs> Make(const kernels::Exec& exec, DeviceTensors& tensors) {
    NormArgs a;
    for (TensorView* const view : {&a.forward.x, &a.forward.residual, &a.forward.sum, &a.forward.y,
                                   &a.backward.dy, &a.backward.d_sum, &a.backward.dx}) {
      HEARTH_ASSIGN_OR_RETURN(*view, tensors.Random(exec, kBF16, {kRows, kHidden}));
    }
    HEARTH_ASSIGN_OR_RETURN(a.forward.weight, tensors.Random(exec, kBF16, {kHidden}));
    HEARTH_ASSIGN_OR_RETURN(a.forward.rstd, tensors.Random(exec, kF32, {kRows}));
    HEARTH_ASSIGN_OR_RETURN(a.backward.d_weight, tensors.Random(exec, kF32, {kHidden}));
    a.forward.round_sum = a.forward.round_y = a.backward.round_dx = kBF16;
    a.backward.s = a.forward.sum;
    a.backward.rstd = a.forward.rstd;
    a.backward.weight = a.forward.weight;
    return a;
  }
  double bytes() const {
    return BytesOf({&forward.x, &forward.residual, &forward.sum, &forward.y, &backward.dy,
                    &backward.s, &backward.d_sum, &backward.dx});
  }
};

struct SwigluArgs {
  kernels::SwigluForwardArgs forward;
  kernels::SwigluBackwardArgs backward;

  static absl::StatusOr<SwigluArgs> Make(const kernels::Exec& exec, DeviceTensors& tensors) {
    SwigluArgs a;
    HEARTH_ASSIGN_OR_RETURN(a.forward.gate_up, tensors.Random(exec, kBF16, {kRows, 2 * kFfn}));
    HEARTH_ASSIGN_OR_RETURN(a.forward.y, tensors.Random(exec, kBF16, {kRows, kFfn}));
    HEARTH_ASSIGN_OR_RETURN(a.backward.dy, tensors.Random(exec, kBF16, {kRows, kFfn}));
    HEARTH_ASSIGN_OR_RETURN(a.backward.d_gate_up, tensors.Random(exec, kBF16, {kRows, 2 * kFfn}));
    a.forward.round_y = a.backward.round_d_gate_up = kBF16;
    a.backward.gate_up = a.forward.gate_up;
    return a;
  }
  double bytes() const {
    return BytesOf(
        {&forward.gate_up, &forward.y, &backward.dy, &backward.gate_up, &backward.d_gate_up});
  }
};

}  // namespace

absl::StatusOr<MemoryCalls> MakeCopy(const kernels::Exec& exec) {
  return CopyOf(exec, kCopyValues);
}

absl::StatusOr<MemoryCalls> MakeSmallestKernel(const kernels::Exec& exec) {
  return CopyOf(exec, kSmallestValues);
}

absl::StatusOr<MemoryCalls> MakeCachedCopy(const kernels::Exec& exec, int64_t times) {
  return CopyOf(exec, times * kCachedValues);
}

absl::StatusOr<MemoryCalls> MakeLayerPasses(const kernels::Exec& exec) {
  constexpr int kNorms = 2;
  MemoryCalls made;
  HEARTH_ASSIGN_OR_RETURN(const NormArgs norm, NormArgs::Make(exec, made.tensors));
  HEARTH_ASSIGN_OR_RETURN(const SwigluArgs swiglu, SwigluArgs::Make(exec, made.tensors));
  made.bytes = kNorms * norm.bytes() + swiglu.bytes();
  made.call = [&exec, norm, swiglu] {
    for (int i = 0; i < kNorms; ++i) {
      HEARTH_RETURN_IF_ERROR(kernels::RmsNormForward(exec, norm.forward));
    }
    HEARTH_RETURN_IF_ERROR(kernels::SwigluForward(exec, swiglu.forward));
    HEARTH_RETURN_IF_ERROR(kernels::SwigluBackward(exec, swiglu.backward));
    for (int i = 0; i < kNorms; ++i) {
      HEARTH_RETURN_IF_ERROR(kernels::RmsNormBackward(exec, norm.backward));
    }
    return absl::OkStatus();
  };
  return made;
}

absl::StatusOr<MemoryCalls> MakeAdamW(const kernels::Exec& exec) {
  MemoryCalls made;
  kernels::AdamWTensor weight;
  for (TensorView* const view : {&weight.master, &weight.m, &weight.v, &weight.grad}) {
    HEARTH_ASSIGN_OR_RETURN(*view, made.tensors.Random(exec, kF32, {kParameters}));
  }
  HEARTH_ASSIGN_OR_RETURN(weight.working, made.tensors.Random(exec, kBF16, {kParameters}));
  // The second moment is not negative.
  HEARTH_RETURN_IF_ERROR(kernels::Zero(exec, weight.v.data, weight.v.bytes()));
  weight.weight_decay = 0.1;
  made.bytes = 2 * BytesOf({&weight.master, &weight.m, &weight.v}) +
               BytesOf({&weight.grad, &weight.working});
  made.call = [&exec, weight] {
    kernels::AdamWArgs args;
    args.tensors = absl::MakeConstSpan(&weight, 1);
    args.lr = 1e-6;
    args.step = 1000;
    args.round_working = kBF16;
    return kernels::AdamWStep(exec, args);
  };
  return made;
}

}  // namespace hearth::trainer
