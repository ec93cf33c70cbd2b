#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/cuda/util.cuh"
#include "kernels/muon/muon.h"

namespace hearth::kernels::cuda {
namespace {

constexpr char kOp[] = "muon";
constexpr int kThreads = 256;
constexpr int kWidth = 4;        // elements of a thread at a time
constexpr int kMaxTensors = 64;  // of one launch: their slots fit into a kernel's parameters
constexpr int64_t kTurn = int64_t{kThreads} * kWidth;
constexpr unsigned kMaxBlocks = 256;  // of a tensor; each takes every so many-th turn

struct MomentumSlot {
  void* momentum;
  void* grad;
  int64_t count;
  bool aligned;  // both, for vector access
};

struct UpdateSlot {
  float* master;
  const void* o;
  void* working;
  float* amax;  // or null
  int64_t count;
  double rate;
  double lr_scale;
  double weight_decay;
  bool working_bf16;
  bool aligned;
};

template <typename Slot>
struct Table {
  Slot slots[kMaxTensors];
  const StepInputs* inputs;  // or null
  const float* grad_scale;   // or null
  const int32_t* skip;       // or null
  double lr;
  float mu;
};
static_assert(sizeof(Table<UpdateSlot>) <= 8192, "far below what a kernel's parameters may take");

template <typename T>
__device__ __forceinline__ void Load(
    const T* from, int64_t at, int64_t end, bool whole, float (&x)[kWidth]) {
  if (whole) {
    LoadFloats<kWidth>(from + at, x);
    return;
  }
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    x[i] = at + i < end ? ToFloat(from[at + i]) : 0.0F;
  }
}

template <typename T>
__device__ __forceinline__ void Store(
    T* to, int64_t at, int64_t end, bool whole, const float (&x)[kWidth]) {
  if (whole) {
    StoreFloats(to + at, x);
    return;
  }
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    if (at + i < end) {
      to[at + i] = FromFloat<T>(x[i]);
    }
  }
}

// Every operation is spelled out, so that the bits do not depend on where the compiler would fuse.
template <typename M, typename G>
__global__ void __launch_bounds__(kThreads)
    MomentumKernel(const __grid_constant__ Table<MomentumSlot> table) {
  // The guard decides on the GPU, within the step.
  if (table.skip != nullptr && *table.skip != 0) {
    return;
  }
  const MomentumSlot& slot = table.slots[blockIdx.y];
  M* momenta = static_cast<M*>(slot.momentum);
  G* grads = static_cast<G*>(slot.grad);
  const float scale = table.grad_scale != nullptr ? *table.grad_scale : 1.0F;
  for (int64_t at = blockIdx.x * kTurn + threadIdx.x * kWidth; at < slot.count;
       at += gridDim.x * kTurn) {
    const bool whole = slot.aligned && at + kWidth <= slot.count;
    float momentum[kWidth], grad[kWidth];
    Load(momenta, at, slot.count, whole, momentum);
    Load(grads, at, slot.count, whole, grad);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      // Nesterov's form: g + mu m takes the gradient's place, where Newton-Schulz reads it.
      const float g = __fmul_rn(grad[i], scale);
      momentum[i] = __fmaf_rn(table.mu, momentum[i], g);
      grad[i] = __fmaf_rn(table.mu, momentum[i], g);
    }
    Store(momenta, at, slot.count, whole, momentum);
    Store(grads, at, slot.count, whole, grad);
  }
}

template <typename G>
__global__ void __launch_bounds__(kThreads)
    UpdateKernel(const __grid_constant__ Table<UpdateSlot> table) {
  __shared__ float scalars[2];  // 1 - lr wd, lr rate
  __shared__ float scratch[32];
  if (table.skip != nullptr && *table.skip != 0) {
    return;
  }
  const UpdateSlot& slot = table.slots[blockIdx.y];
  // In double, as on the CPU, but by one thread: double arithmetic is slow on these GPUs.
  if (threadIdx.x == 0) {
    const double lr =
        __dmul_rn(table.inputs != nullptr ? table.inputs->learning_rate : table.lr, slot.lr_scale);
    scalars[0] = static_cast<float>(1.0 - __dmul_rn(lr, slot.weight_decay));
    scalars[1] = static_cast<float>(__dmul_rn(lr, slot.rate));
  }
  __syncthreads();
  const G* os = static_cast<const G*>(slot.o);
  float largest = 0.0F;
  for (int64_t at = blockIdx.x * kTurn + threadIdx.x * kWidth; at < slot.count;
       at += gridDim.x * kTurn) {
    const bool whole = slot.aligned && at + kWidth <= slot.count;
    float master[kWidth], o[kWidth];
    Load(slot.master, at, slot.count, whole, master);
    Load(os, at, slot.count, whole, o);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      master[i] = __fsub_rn(__fmul_rn(master[i], scalars[0]), __fmul_rn(scalars[1], o[i]));
      // Elements behind the end are 0 and stay it.
      largest = MaxNan(largest, fabsf(slot.working_bf16 ? Rounded<Bf16>(master[i]) : master[i]));
    }
    Store(slot.master, at, slot.count, whole, master);
    if (slot.working_bf16) {
      Store(static_cast<Bf16*>(slot.working), at, slot.count, whole, master);
    } else if (slot.working != slot.master) {
      Store(static_cast<float*>(slot.working), at, slot.count, whole, master);
    }
  }
  if (slot.amax != nullptr) {
    largest = BlockMax(largest, scratch);
    if (threadIdx.x == 0) {
      RaiseAmax(slot.amax, largest);
    }
  }
}

bool IsAligned(const TensorView& view) {
  const size_t bytes = kWidth * static_cast<size_t>(DTypeBits(view.dtype)) / 8;
  return reinterpret_cast<uintptr_t>(view.data) % bytes == 0;
}

// Launches `kernel` over the slots, kMaxTensors at a time.
template <typename Slot, typename Tensors, typename Pick, typename SlotOf>
absl::Status Launch(const Exec& exec,
                    const Tensors& tensors,
                    const Pick& pick,
                    const SlotOf& slot_of,
                    void (*kernel)(Table<Slot>),
                    Table<Slot>& table) {
  unsigned count = 0;
  int64_t largest = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (pick(tensors[i])) {
      const Slot slot = slot_of(tensors[i]);
      largest = std::max(largest, slot.count);
      table.slots[count++] = slot;
    }
    if (count == kMaxTensors || (i + 1 == tensors.size() && count > 0)) {
      const auto blocks = static_cast<unsigned>(
          std::clamp<int64_t>(CeilDiv(largest, kTurn), 1, int64_t{kMaxBlocks}));
      kernel<<<dim3(blocks, count), kThreads, 0, StreamOf(exec)>>>(table);
      HEARTH_RETURN_IF_ERROR(HEARTH_CUDA_LAUNCHED(kOp));
      count = 0;
      largest = 0;
    }
  }
  return absl::OkStatus();
}

template <typename M, typename G>
absl::Status Momentum(const Exec& exec, const MuonMomentumArgs& args, DType m, DType g) {
  Table<MomentumSlot> table = {};
  table.grad_scale = args.grad_scale;
  table.skip = args.skip;
  table.mu = static_cast<float>(args.mu);
  return Launch(
      exec, args.tensors,
      [m, g](const MuonMomentumTensor& t) {
        return t.momentum.dtype == m && t.grad.dtype == g && t.grad.numel() > 0;
      },
      [](const MuonMomentumTensor& t) {
        return MomentumSlot{t.momentum.data, t.grad.data, t.grad.numel(),
                            IsAligned(t.momentum) && IsAligned(t.grad)};
      },
      &MomentumKernel<M, G>, table);
}

UpdateSlot SlotOf(const MuonUpdateTensor& tensor) {
  UpdateSlot slot = {};
  slot.master = tensor.master.as<float>();
  slot.o = tensor.o.data;
  slot.working = tensor.working.data;
  slot.amax = tensor.amax;
  slot.count = tensor.master.numel();
  slot.rate = tensor.rate;
  slot.lr_scale = tensor.lr_scale;
  slot.weight_decay = tensor.weight_decay;
  slot.working_bf16 = tensor.working.dtype == DType::kBF16;
  slot.aligned = IsAligned(tensor.master) && IsAligned(tensor.o) && IsAligned(tensor.working);
  return slot;
}

template <typename G>
absl::Status Update(const Exec& exec, const MuonUpdateArgs& args, DType g) {
  Table<UpdateSlot> table = {};
  table.inputs = args.inputs;
  table.skip = args.skip;
  table.lr = args.lr;
  return Launch(
      exec, args.tensors,
      [g](const MuonUpdateTensor& t) { return t.o.dtype == g && t.master.numel() > 0; }, SlotOf,
      &UpdateKernel<G>, table);
}

}  // namespace

absl::Status MuonMomentum(const Exec& exec, const MuonMomentumArgs& args) {
  for (const MuonMomentumTensor& tensor : args.tensors) {
    HEARTH_RETURN_IF_ERROR(RequireStorage(exec, tensor.momentum.dtype, kOp));
    HEARTH_RETURN_IF_ERROR(RequireStorage(exec, tensor.grad.dtype, kOp));
  }
  constexpr DType kF32 = DType::kF32;
  constexpr DType kBF16 = DType::kBF16;
  HEARTH_RETURN_IF_ERROR((Momentum<float, float>(exec, args, kF32, kF32)));
  HEARTH_RETURN_IF_ERROR((Momentum<float, Bf16>(exec, args, kF32, kBF16)));
  HEARTH_RETURN_IF_ERROR((Momentum<Bf16, float>(exec, args, kBF16, kF32)));
  return Momentum<Bf16, Bf16>(exec, args, kBF16, kBF16);
}

absl::Status MuonUpdate(const Exec& exec, const MuonUpdateArgs& args) {
  for (const MuonUpdateTensor& tensor : args.tensors) {
    HEARTH_RETURN_IF_ERROR(RequireStorage(exec, tensor.o.dtype, kOp));
    HEARTH_RETURN_IF_ERROR(RequireStorage(exec, tensor.working.dtype, kOp));
    if (tensor.master.dtype != DType::kF32) {
      return absl::UnimplementedError(
          absl::StrCat(kOp, ": the master is ", DebugString(tensor.master), ", must be fp32"));
    }
  }
  HEARTH_RETURN_IF_ERROR(Update<float>(exec, args, DType::kF32));
  return Update<Bf16>(exec, args, DType::kBF16);
}

}  // namespace hearth::kernels::cuda
