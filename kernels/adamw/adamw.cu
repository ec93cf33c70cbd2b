#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/adamw/adamw.h"
#include "kernels/adamw/adamw_scalars.h"
#include "kernels/cuda/state_lines.cuh"
#include "kernels/cuda/util.cuh"

namespace hearth::kernels::cuda {
namespace {

constexpr char kOp[] = "adamw";
constexpr int kThreads = 256;
constexpr int64_t kStride = int64_t{kThreads} * kWidth;
// Elements of a CUDA block: small enough that the last wave of blocks is a small part of a launch.
constexpr int64_t kChunk = 8192;
static_assert(kChunk % (kStride * kUnroll) == 0);
// Blocks that a multiprocessor holds at once at least, which bounds the registers of a thread: the
// loads of enough warps have to be under way.
constexpr int kBlocksOfSm = 3;
constexpr int kMaxTensors = 280;  // of one launch

struct Slot {
  void* master;
  void* m;
  void* v;
  float* m_scales;  // of moments in blocks, or null
  float* v_scales;
  const void* grad;
  void* working;  // or null
  float* amax;    // or null
  int64_t count;
  uint64_t first_element;
  double lr_scale;
  double weight_decay;
  uint32_t index;
  bool working_bf16;
  bool aligned;  // all views, for vector access
};

struct Table {
  Slot slots[kMaxTensors];
  int64_t first_chunk[kMaxTensors + 1];  // within the launch; the last is their number
  int tensors;
  uint32_t step;
  const StepInputs* inputs;  // or null
  const float* grad_scale;   // or null
  const int32_t* skip;       // or null
  double learning_rate, bias_correction1, bias_correction2;
  double beta1, beta2, eps;
  uint64_t seed;
  bool stochastic_rounding;
};
static_assert(sizeof(Table) <= 32764, "the most that a kernel's parameters may take");

struct Scalars : AdamWScalars<float> {
  uint32_t step;
};

__device__ Scalars ScalarsOf(const Table& table, const Slot& slot) {
  const StepInputs* inputs = table.inputs;
  const double rate = inputs != nullptr ? inputs->learning_rate : table.learning_rate;
  const double bias1 =
      inputs != nullptr ? inputs->optimizer[kBiasCorrection1] : table.bias_correction1;
  const double bias2 =
      inputs != nullptr ? inputs->optimizer[kBiasCorrection2] : table.bias_correction2;
  // Written out, so that no multiplication is fused into the subtraction below: the CPU's bits.
  const double lr = __dmul_rn(rate, slot.lr_scale);
  Scalars k;
  k.grad_scale = table.grad_scale != nullptr ? *table.grad_scale : 1.0F;
  k.shrink = static_cast<float>(1.0 - __dmul_rn(lr, slot.weight_decay));
  k.beta1 = static_cast<float>(table.beta1);
  k.one_minus_beta1 = static_cast<float>(1.0 - table.beta1);
  k.beta2 = static_cast<float>(table.beta2);
  k.one_minus_beta2 = static_cast<float>(1.0 - table.beta2);
  k.step_size = static_cast<float>(lr / bias1);
  k.root_bias2 = static_cast<float>(1.0 / sqrt(bias2));
  k.eps = static_cast<float>(table.eps);
  k.step = inputs != nullptr ? static_cast<uint32_t>(inputs->step) : table.step;
  return k;
}

using Signed8 = Blocks<formats::StateCodec::kDynamicSigned8>;
using Unsigned8 = Blocks<formats::StateCodec::kDynamicUnsigned8>;
using Signed4 = Blocks<formats::StateCodec::kDynamicSigned4>;
using Unsigned4 = Blocks<formats::StateCodec::kLinearUnsigned4>;

// One element. Every operation is spelled out, so that the bits do not depend on where the compiler
// would fuse.
__device__ __forceinline__ void Update(
    const Scalars& k, float grad, float& master, float& m, float& v) {
  // The corrected moments are m / (1 - beta1^t) and v / (1 - beta2^t): the first is in step_size,
  // the root of the second in root_bias2.
  const float g = __fmul_rn(grad, k.grad_scale);
  m = __fmaf_rn(k.beta1, m, __fmul_rn(k.one_minus_beta1, g));
  v = __fmaf_rn(k.beta2, v, __fmul_rn(__fmul_rn(k.one_minus_beta2, g), g));
  const float denominator = __fmaf_rn(__fsqrt_rn(v), k.root_bias2, k.eps);
  const float change = __fdiv_rn(__fmul_rn(k.step_size, m), denominator);
  // Decoupled decay: it shrinks the weight itself and does not go through m and v.
  master = __fsub_rn(__fmul_rn(master, k.shrink), change);
}

// The elements [begin, end) of a tensor by one CUDA block; returns the largest magnitude of the
// thread's working values.
template <bool kWhole, typename P, typename M, typename V, typename G>
__device__ __forceinline__ float UpdateChunk(const Table& table,
                                             const Slot& slot,
                                             const Scalars& k,
                                             const TablesOf<M>& m_tables,
                                             const TablesOf<V>& v_tables,
                                             int64_t begin,
                                             int64_t end) {
  P* masters = static_cast<P*>(slot.master);
  const StateView<M> ms = {slot.m, slot.m_scales, m_tables};
  const StateView<V> vs = {slot.v, slot.v_scales, v_tables};
  const G* grads = static_cast<const G*>(slot.grad);
  float largest = 0.0F;
  const int64_t lane = threadIdx.x % kWarp * kWidth;
  // A warp goes on as a whole: the largest magnitudes of blocks are its.
#pragma unroll 1
  for (int64_t run = begin + threadIdx.x / kWarp * kRun; run < end; run += kStride * kUnroll) {
    const int64_t first = run + lane;
    // All loads of a turn come before the first update, so that many are under way at once.
    Lines p, m, v, g;
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int64_t at = first + u * kLine;
      Load<kWhole>(masters, at, end, p[u]);
      Load<kWhole>(grads, at, end, g[u]);
    }
    LoadState<kWhole, M>(ms, first, end, m);
    LoadState<kWhole, V>(vs, first, end, v);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        Update(k, g[u][i], p[u][i], m[u][i], v[u][i]);
      }
    }
    StoreState<kWhole, M>(ms, first, end, m);
    StoreState<kWhole, V>(vs, first, end, v);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int64_t at = first + u * kLine;
      if (std::is_same<P, Bf16>::value && table.stochastic_rounding) {
        // first_element and `at` are multiples of 4: one block of random words for the four.
        const RngKey key = {table.seed, RngPurpose::kStochasticRounding, k.step, 0, slot.index};
        RoundStochastic(key, (slot.first_element + static_cast<uint64_t>(at)) / 4, p[u]);
      }
      // Store leaves in p what was stored: the working copy is made of the master as it is kept.
      Store<kWhole>(masters, at, end, p[u]);
      if (slot.working == nullptr) {
        continue;
      }
      if (slot.working == slot.master) {
        // The weights are their own masters: stored above.
      } else if (slot.working_bf16) {
        Store<kWhole>(static_cast<Bf16*>(slot.working), at, end, p[u]);
      } else {
        Store<kWhole>(static_cast<float*>(slot.working), at, end, p[u]);
      }
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        if (kWhole || at + i < end) {
          largest = MaxNan(largest, fabsf(p[u][i]));
        }
      }
    }
  }
  return largest;
}

// A CUDA block a chunk.
template <typename P, typename M, typename V, typename G>
__global__ void __launch_bounds__(kThreads, kBlocksOfSm)
    AdamWKernel(const __grid_constant__ Table table) {
  __shared__ Scalars scalars;
  __shared__ float scratch[32];
  __shared__ TablesOf<M> m_tables;
  __shared__ TablesOf<V> v_tables;
  // The guard decides on the GPU, within the step: a refused step leaves state and weights as they
  // are without a round trip to the host.
  if (table.skip != nullptr && *table.skip != 0) {
    return;
  }
  const int64_t chunk = blockIdx.x;
  // The last tensor whose first chunk is not behind this one. All threads search alike: nine steps
  // at most cost less than a barrier.
  int low = 0;
  int high = table.tensors - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (table.first_chunk[middle] <= chunk) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  const Slot& slot = table.slots[low];
  // In double, as on the CPU, but by one thread: double arithmetic is slow on these GPUs.
  if (threadIdx.x == 0) {
    scalars = ScalarsOf(table, slot);
  }
  SetTables<M>(m_tables);
  SetTables<V>(v_tables);
  __syncthreads();
  const Scalars k = scalars;
  const int64_t begin = (chunk - table.first_chunk[low]) * kChunk;
  const int64_t end = slot.count - begin < kChunk ? slot.count : begin + kChunk;
  // Only a whole chunk of aligned views can be read in vectors; the tail of a tensor goes one by
  // one.
  float largest =
      slot.aligned && end - begin == kChunk
          ? UpdateChunk<true, P, M, V, G>(table, slot, k, m_tables, v_tables, begin, end)
          : UpdateChunk<false, P, M, V, G>(table, slot, k, m_tables, v_tables, begin, end);
  if (slot.amax != nullptr) {
    largest = BlockMax(largest, scratch);
    if (threadIdx.x == 0) {
      RaiseAmax(slot.amax, largest);
    }
  }
}

// The kernels by the types of (master, m, v, grad), bf16 = 1, master the highest bit. Behind them
// those of moments in blocks: 16 + 4 * (4 bits) + 2 * (bf16 master) + (bf16 gradient).
using Kernel = void (*)(Table);
template <int kBit>
using TypeOf = std::conditional_t<kBit != 0, Bf16, float>;
constexpr int kPlainKeys = 16;
constexpr int kKeys = 24;

template <int kKey>
constexpr Kernel KernelOf() {
  if constexpr (kKey < kPlainKeys) {
    return &AdamWKernel<TypeOf<kKey & 8>, TypeOf<kKey & 4>, TypeOf<kKey & 2>, TypeOf<kKey & 1>>;
  } else {
    constexpr bool kFour = (kKey & 4) != 0;
    return &AdamWKernel<TypeOf<kKey & 2>, std::conditional_t<kFour, Signed4, Signed8>,
                        std::conditional_t<kFour, Unsigned4, Unsigned8>, TypeOf<kKey & 1>>;
  }
}
template <int... kAll>
constexpr std::array<Kernel, sizeof...(kAll)> KernelsOf(std::integer_sequence<int, kAll...>) {
  return {KernelOf<kAll>()...};
}

int KeyOf(const AdamWTensor& tensor) {
  const auto bit = [](const TensorView& view) { return view.dtype == DType::kBF16 ? 1 : 0; };
  if (tensor.m_blocks.codec != formats::StateCodec::kNone) {
    const int four = formats::RowOf(tensor.m_blocks.codec).bits == 4 ? 1 : 0;
    return kPlainKeys + four * 4 + bit(tensor.master) * 2 + bit(tensor.grad);
  }
  return bit(tensor.master) * 8 + bit(tensor.m) * 4 + bit(tensor.v) * 2 + bit(tensor.grad);
}

Slot SlotOf(const AdamWTensor& tensor) {
  Slot slot = {};
  SetWeight(tensor, slot);
  slot.m = tensor.m.data;
  slot.v = tensor.v.data;
  slot.m_scales = tensor.m_blocks.scales;
  slot.v_scales = tensor.v_blocks.scales;
  slot.grad = tensor.grad.data;
  slot.aligned = IsAlignedForLines(tensor.master) && IsAlignedForLines(tensor.m) &&
                 IsAlignedForLines(tensor.v) && IsAlignedForLines(tensor.grad) &&
                 IsAlignedForLines(tensor.working);
  return slot;
}

void SetStep(const AdamWArgs& args, Table& table) {
  const double t = static_cast<double>(args.step);
  table.step = static_cast<uint32_t>(args.step);
  table.inputs = args.inputs;
  table.grad_scale = args.grad_scale;
  table.skip = args.skip;
  table.learning_rate = args.lr;
  table.bias_correction1 = 1.0 - std::pow(args.beta1, t);
  table.bias_correction2 = 1.0 - std::pow(args.beta2, t);
  table.beta1 = args.beta1;
  table.beta2 = args.beta2;
  table.eps = args.eps;
  table.seed = args.seed;
  table.stochastic_rounding = args.stochastic_rounding;
}

// The tensors of one kernel, as many to a launch as its parameters hold.
absl::Status LaunchKey(const Exec& exec, const AdamWArgs& args, int key, Table& table) {
  static constexpr std::array<Kernel, kKeys> kKernels =
      KernelsOf(std::make_integer_sequence<int, kKeys>());
  const Kernel kernel = kKernels[static_cast<size_t>(key)];
  table.tensors = 0;
  for (size_t i = 0; i < args.tensors.size(); ++i) {
    const AdamWTensor& tensor = args.tensors[i];
    if (KeyOf(tensor) == key && tensor.master.numel() > 0) {
      const int slot = table.tensors++;
      table.slots[slot] = SlotOf(tensor);
      table.first_chunk[slot + 1] =
          table.first_chunk[slot] + CeilDiv(tensor.master.numel(), kChunk);
    }
    const bool full = table.tensors == kMaxTensors;
    if (full || (i + 1 == args.tensors.size() && table.tensors > 0)) {
      kernel<<<static_cast<unsigned>(table.first_chunk[table.tensors]), kThreads, 0,
               StreamOf(exec)>>>(table);
      HEARTH_RETURN_IF_ERROR(HEARTH_CUDA_LAUNCHED(kOp));
      table.tensors = 0;
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status AdamWStep(const Exec& exec, const AdamWArgs& args) {
  bool present[kKeys] = {};
  for (const AdamWTensor& tensor : args.tensors) {
    for (const TensorView* view :
         {&tensor.master, &tensor.m, &tensor.v, &tensor.grad, &tensor.working}) {
      if (view->dtype == DType::kF64) {
        return absl::UnimplementedError(absl::StrCat(kOp, ": f64 tensors on CUDA"));
      }
    }
    present[KeyOf(tensor)] = true;
  }
  Table table = {};
  SetStep(args, table);
  for (int key = 0; key < kKeys; ++key) {
    if (present[key]) {
      HEARTH_RETURN_IF_ERROR(LaunchKey(exec, args, key, table));
    }
  }
  return absl::OkStatus();
}

}  // namespace hearth::kernels::cuda
