#include <algorithm>
#include <array>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/cuda/state_lines.cuh"
#include "kernels/cuda/util.cuh"
#include "kernels/muon/muon.h"

namespace hearth::kernels::cuda {
namespace {

constexpr char kOp[] = "muon";
constexpr int kThreads = 256;
constexpr int kMaxTensors = 64;  // of one launch: their slots fit into a kernel's parameters
// A CUDA block's turn: a run of each of its warps.
constexpr int64_t kTurn = int64_t{kThreads} * kWidth * kUnroll;
constexpr unsigned kMaxBlocks = 256;  // of a tensor; each takes every so many-th turn

struct MomentumSlot {
  void* momentum;
  float* scales;  // of a momentum in blocks, or null
  void* grad;
  int64_t count;
  bool aligned;  // both, for vector access
};

struct UpdateSlot {
  void* master;
  const void* o;
  void* working;
  float* amax;  // or null
  int64_t count;
  uint64_t first_element;
  uint32_t index;
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
  uint32_t step;
  uint64_t seed;
  bool stochastic_rounding;
};
static_assert(sizeof(Table<UpdateSlot>) <= 8192, "far below what a kernel's parameters may take");

using Linear8 = Blocks<formats::StateCodec::kLinearSigned8>;

// The first element of the calling warp's turn number `turn` of a tensor.
__device__ __forceinline__ int64_t FirstOfTurn(int64_t turn) {
  return (blockIdx.x + turn * gridDim.x) * kTurn + threadIdx.x / kWarp * kRun;
}

// A warp's run from `run` on. Every operation is spelled out, so that the bits do not depend on
// where the compiler would fuse.
template <bool kWhole, typename M, typename G>
__device__ __forceinline__ void MomentumRun(const MomentumSlot& slot,
                                            float mu,
                                            float scale,
                                            int64_t run) {
  const TablesOf<M> tables = {};  // a linear map has none
  const StateView<M> momenta = {slot.momentum, slot.scales, tables};
  G* grads = static_cast<G*>(slot.grad);
  const int64_t first = run + threadIdx.x % kWarp * kWidth;
  Lines momentum, grad;
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    Load<kWhole>(grads, first + u * kLine, slot.count, grad[u]);
  }
  LoadState<kWhole, M>(momenta, first, slot.count, momentum);
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      // Nesterov's form: g + mu m takes the gradient's place, where Newton-Schulz reads it.
      const float g = __fmul_rn(grad[u][i], scale);
      momentum[u][i] = __fmaf_rn(mu, momentum[u][i], g);
      grad[u][i] = __fmaf_rn(mu, momentum[u][i], g);
    }
  }
  StoreState<kWhole, M>(momenta, first, slot.count, momentum);
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    Store<kWhole>(grads, first + u * kLine, slot.count, grad[u]);
  }
}

template <typename M, typename G>
__global__ void __launch_bounds__(kThreads)
    MomentumKernel(const __grid_constant__ Table<MomentumSlot> table) {
  // The guard decides on the GPU, within the step.
  if (table.skip != nullptr && *table.skip != 0) {
    return;
  }
  const MomentumSlot& slot = table.slots[blockIdx.y];
  const float scale = table.grad_scale != nullptr ? *table.grad_scale : 1.0F;
  // A warp goes on as a whole: the largest magnitudes of blocks are its.
#pragma unroll 1
  for (int64_t turn = 0, run = FirstOfTurn(0); run < slot.count; run = FirstOfTurn(++turn)) {
    if (slot.aligned && run + kRun <= slot.count) {
      MomentumRun<true, M, G>(slot, table.mu, scale, run);
    } else {
      MomentumRun<false, M, G>(slot, table.mu, scale, run);
    }
  }
}

// The scalars of a tensor's update.
struct UpdateScalars {
  float shrink;  // 1 - lr wd
  float rate;    // lr rate
  uint32_t step;
};

// Four elements from `element` of the tensor on, rounded to bf16 with the noise of each.
__device__ __forceinline__ void RoundElements(const RngKey& key,
                                              uint64_t element,
                                              float (&x)[kWidth]) {
  if (element % kWidth == 0) {
    RoundStochastic(key, element / kWidth, x);
    return;
  }
  // A matrix may begin inside a block of random words: two blocks have those of its four elements.
  const uint64_t block = element / kWidth;
  const std::array<uint32_t, 4> low = RngBlock(key, block);
  const std::array<uint32_t, 4> high = RngBlock(key, block + 1);
  const uint32_t words[2 * kWidth] = {low[0],  low[1],  low[2],  low[3],
                                      high[0], high[1], high[2], high[3]};
  const uint64_t shift = element % kWidth;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    // Places known when compiled: the words stay in registers.
    const uint32_t word = shift == 1 ? words[i + 1] : shift == 2 ? words[i + 2] : words[i + 3];
    x[i] = RoundStochastic(x[i], word);
  }
}

// A warp's run; returns the largest magnitude of the thread's working values.
template <bool kWhole, typename P, typename G>
__device__ __forceinline__ float UpdateRun(const Table<UpdateSlot>& table,
                                           const UpdateSlot& slot,
                                           const UpdateScalars& k,
                                           int64_t run) {
  P* masters = static_cast<P*>(slot.master);
  const G* os = static_cast<const G*>(slot.o);
  const int64_t first = run + threadIdx.x % kWarp * kWidth;
  float largest = 0.0F;
  Lines master, o;
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    Load<kWhole>(masters, first + u * kLine, slot.count, master[u]);
    Load<kWhole>(os, first + u * kLine, slot.count, o[u]);
  }
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int64_t at = first + u * kLine;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      master[u][i] = __fsub_rn(__fmul_rn(master[u][i], k.shrink), __fmul_rn(k.rate, o[u][i]));
    }
    if (std::is_same<P, Bf16>::value && table.stochastic_rounding) {
      const RngKey key = {table.seed, RngPurpose::kStochasticRounding, k.step, 0, slot.index};
      RoundElements(key, slot.first_element + static_cast<uint64_t>(at), master[u]);
    }
    // Store leaves what was stored: the working copy is made of the master as it is kept.
    Store<kWhole>(masters, at, slot.count, master[u]);
    if (slot.working == nullptr || slot.working == slot.master) {
      // None is wanted, or the weights are their own masters: stored above.
    } else if (slot.working_bf16) {
      Store<kWhole>(static_cast<Bf16*>(slot.working), at, slot.count, master[u]);
    } else {
      Store<kWhole>(static_cast<float*>(slot.working), at, slot.count, master[u]);
    }
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      largest = MaxNan(largest, kWhole || at + i < slot.count ? fabsf(master[u][i]) : 0.0F);
    }
  }
  return largest;
}

template <typename P, typename G>
__global__ void __launch_bounds__(kThreads)
    UpdateKernel(const __grid_constant__ Table<UpdateSlot> table) {
  __shared__ UpdateScalars scalars;
  __shared__ float scratch[32];
  if (table.skip != nullptr && *table.skip != 0) {
    return;
  }
  const UpdateSlot& slot = table.slots[blockIdx.y];
  // In double, as on the CPU, but by one thread: double arithmetic is slow on these GPUs.
  if (threadIdx.x == 0) {
    const StepInputs* inputs = table.inputs;
    const double lr =
        __dmul_rn(inputs != nullptr ? inputs->learning_rate : table.lr, slot.lr_scale);
    scalars.shrink = static_cast<float>(1.0 - __dmul_rn(lr, slot.weight_decay));
    scalars.rate = static_cast<float>(__dmul_rn(lr, slot.rate));
    scalars.step = inputs != nullptr ? static_cast<uint32_t>(inputs->step) : table.step;
  }
  __syncthreads();
  const UpdateScalars k = scalars;
  float largest = 0.0F;
#pragma unroll 1
  for (int64_t turn = 0, run = FirstOfTurn(0); run < slot.count; run = FirstOfTurn(++turn)) {
    const float of_run = slot.aligned && run + kRun <= slot.count
                             ? UpdateRun<true, P, G>(table, slot, k, run)
                             : UpdateRun<false, P, G>(table, slot, k, run);
    largest = MaxNan(largest, of_run);
  }
  if (slot.amax != nullptr) {
    largest = BlockMax(largest, scratch);
    if (threadIdx.x == 0) {
      RaiseAmax(slot.amax, largest);
    }
  }
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

// The type of a momentum as kernels name it.
template <typename M>
bool HoldsMomentum(const MuonMomentumTensor& t) {
  if constexpr (IsBlocks<M>::value) {
    return t.blocks.codec == formats::StateCodec::kLinearSigned8;
  } else {
    return t.blocks.codec == formats::StateCodec::kNone && IsStoredAs<M>(t.momentum.dtype);
  }
}

template <typename M, typename G>
absl::Status Momentum(const Exec& exec, const MuonMomentumArgs& args) {
  Table<MomentumSlot> table = {};
  table.grad_scale = args.grad_scale;
  table.skip = args.skip;
  table.mu = static_cast<float>(args.mu);
  return Launch(
      exec, args.tensors,
      [](const MuonMomentumTensor& t) {
        return HoldsMomentum<M>(t) && IsStoredAs<G>(t.grad.dtype) && t.grad.numel() > 0;
      },
      [](const MuonMomentumTensor& t) {
        return MomentumSlot{t.momentum.data, t.blocks.scales, t.grad.data, t.grad.numel(),
                            IsAlignedForLines(t.momentum) && IsAlignedForLines(t.grad)};
      },
      &MomentumKernel<M, G>, table);
}

UpdateSlot SlotOf(const MuonUpdateTensor& tensor) {
  UpdateSlot slot = {};
  SetWeight(tensor, slot);
  slot.o = tensor.o.data;
  slot.rate = tensor.rate;
  slot.aligned = IsAlignedForLines(tensor.master) && IsAlignedForLines(tensor.o) &&
                 IsAlignedForLines(tensor.working);
  return slot;
}

template <typename P, typename G>
absl::Status Update(const Exec& exec, const MuonUpdateArgs& args) {
  Table<UpdateSlot> table = {};
  table.inputs = args.inputs;
  table.skip = args.skip;
  table.lr = args.lr;
  table.step = static_cast<uint32_t>(args.step);
  table.seed = args.seed;
  table.stochastic_rounding = args.stochastic_rounding;
  return Launch(
      exec, args.tensors,
      [](const MuonUpdateTensor& t) {
        return IsStoredAs<P>(t.master.dtype) && IsStoredAs<G>(t.o.dtype) && t.master.numel() > 0;
      },
      SlotOf, &UpdateKernel<P, G>, table);
}

}  // namespace

absl::Status MuonMomentum(const Exec& exec, const MuonMomentumArgs& args) {
  for (const MuonMomentumTensor& tensor : args.tensors) {
    if (tensor.blocks.codec == formats::StateCodec::kNone) {
      HEARTH_RETURN_IF_ERROR(RequireStorage(exec, tensor.momentum.dtype, kOp));
    }
    HEARTH_RETURN_IF_ERROR(RequireStorage(exec, tensor.grad.dtype, kOp));
  }
  HEARTH_RETURN_IF_ERROR((Momentum<float, float>(exec, args)));
  HEARTH_RETURN_IF_ERROR((Momentum<float, Bf16>(exec, args)));
  HEARTH_RETURN_IF_ERROR((Momentum<Bf16, float>(exec, args)));
  HEARTH_RETURN_IF_ERROR((Momentum<Bf16, Bf16>(exec, args)));
  HEARTH_RETURN_IF_ERROR((Momentum<Linear8, float>(exec, args)));
  return Momentum<Linear8, Bf16>(exec, args);
}

absl::Status MuonUpdate(const Exec& exec, const MuonUpdateArgs& args) {
  for (const MuonUpdateTensor& tensor : args.tensors) {
    for (const TensorView* view : {&tensor.master, &tensor.o, &tensor.working}) {
      HEARTH_RETURN_IF_ERROR(RequireStorage(exec, view->dtype, kOp));
    }
  }
  HEARTH_RETURN_IF_ERROR((Update<float, float>(exec, args)));
  HEARTH_RETURN_IF_ERROR((Update<float, Bf16>(exec, args)));
  HEARTH_RETURN_IF_ERROR((Update<Bf16, float>(exec, args)));
  return Update<Bf16, Bf16>(exec, args);
}

}  // namespace hearth::kernels::cuda
