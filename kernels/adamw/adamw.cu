#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/formats/state_blocks.h"
#include "kernels/adamw/adamw.h"
#include "kernels/core/rng.h"
#include "kernels/cuda/util.cuh"

namespace hearth::kernels::cuda {
namespace {

constexpr char kOp[] = "adamw";
constexpr int kThreads = 256;
constexpr int kWidth = 4;   // elements of a thread at a time: 16 bytes of f32, 8 of bf16
constexpr int kUnroll = 2;  // of those in flight together
constexpr int kWarp = 32;
constexpr int64_t kStride = int64_t{kThreads} * kWidth;
// A warp's turn is a run of this many elements, in kUnroll lines of kLine: a block of states of 8
// bits is a run, one of 4 bits a line, so that a warp alone has all of it.
constexpr int64_t kLine = int64_t{kWarp} * kWidth;
constexpr int64_t kRun = kLine * kUnroll;
static_assert(kRun == 256 && kLine == 128, "blocks of common/formats/state_blocks.h");
// Elements of a CUDA block: small enough that the last wave of blocks is a small part of a launch.
constexpr int64_t kChunk = 8192;
static_assert(kChunk % (kStride * kUnroll) == 0);
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

// The step's scalars in fp32, prepared in double as on the CPU.
struct Scalars {
  float grad_scale;
  float shrink;  // 1 - lr * weight_decay
  float beta1;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float step_size;   // lr / (1 - beta1^t)
  float root_bias2;  // 1 / sqrt(1 - beta2^t)
  float eps;
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

// kWidth elements from `at` on; kWhole: all are there and aligned, else those from `end` on are 0.
template <bool kWhole, typename T>
__device__ __forceinline__ void Load(const T* from, int64_t at, int64_t end, float (&x)[kWidth]) {
  if constexpr (kWhole) {
    LoadFloats<kWidth>(from + at, x);
  } else {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      x[i] = at + i < end ? ToFloat(from[at + i]) : 0.0F;
    }
  }
}

// Rounded to T; `x` becomes what was stored.
template <bool kWhole, typename T>
__device__ __forceinline__ void Store(T* to, int64_t at, int64_t end, float (&x)[kWidth]) {
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    x[i] = Rounded<T>(x[i]);
  }
  if constexpr (kWhole) {
    StoreFloats(to + at, x);
  } else {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      if (at + i < end) {
        to[at + i] = FromFloat<T>(x[i]);
      }
    }
  }
}

// A moment in blocks, in place of the type of a plain one.
template <formats::StateCodec kCodec>
struct Blocks {
  using Code = formats::StateCode<kCodec>;
  static constexpr int kBits = formats::RowOf(kCodec).bits;
  static constexpr int kBlock = formats::RowOf(kCodec).block;
  static constexpr int kBytes = kWidth * kBits / 8;  // of a thread's kWidth codes
  using Word = std::conditional_t<kBits == 8, uint32_t, uint16_t>;
};
using Signed8 = Blocks<formats::StateCodec::kDynamicSigned8>;
using Unsigned8 = Blocks<formats::StateCodec::kDynamicUnsigned8>;
using Signed4 = Blocks<formats::StateCodec::kDynamicSigned4>;
using Unsigned4 = Blocks<formats::StateCodec::kLinearUnsigned4>;

template <typename T>
struct IsBlocks : std::false_type {};
template <formats::StateCodec kCodec>
struct IsBlocks<Blocks<kCodec>> : std::true_type {};

// The rows of a moment's map; of plain moments none.
template <typename T>
constexpr formats::StateDecades DecadesOf() {
  if constexpr (IsBlocks<T>::value) {
    return T::Code::Decades();
  } else {
    return {};
  }
}

// A moment of a tensor. `decades` lie in shared memory: threads read different rows at a time.
struct MomentView {
  void* data;
  float* scales;
  const formats::StateDecade* decades;
};

// What a thread has of a moment in a turn.
using Lines = float[kUnroll][kWidth];

template <bool kWhole, typename B>
__device__ __forceinline__ uint32_t LoadCodes(const void* data, int64_t at, int64_t end) {
  const uint8_t* bytes = static_cast<const uint8_t*>(data) + at * B::kBits / 8;
  if constexpr (kWhole) {
    return *reinterpret_cast<const typename B::Word*>(bytes);
  } else {
    uint32_t codes = 0;
#pragma unroll
    for (int i = 0; i < B::kBytes; ++i) {
      codes |= at + i * 8 / B::kBits < end ? uint32_t{bytes[i]} << (8 * i) : 0U;
    }
    return codes;
  }
}

template <bool kWhole, typename B>
__device__ __forceinline__ void StoreCodes(void* data, int64_t at, int64_t end, uint32_t codes) {
  uint8_t* bytes = static_cast<uint8_t*>(data) + at * B::kBits / 8;
  if constexpr (kWhole) {
    *reinterpret_cast<typename B::Word*>(bytes) = static_cast<typename B::Word>(codes);
  } else {
#pragma unroll
    for (int i = 0; i < B::kBytes; ++i) {
      if (at + i * 8 / B::kBits < end) {
        bytes[i] = static_cast<uint8_t>(codes >> (8 * i));
      }
    }
  }
}

// A thread's elements of the moment, from `at` on in its first line.
template <bool kWhole, typename M>
__device__ __forceinline__ void LoadMoment(const MomentView& view,
                                           int64_t at,
                                           int64_t end,
                                           Lines& x) {
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int64_t line = at + u * kLine;
    if constexpr (IsBlocks<M>::value) {
      const uint32_t codes = LoadCodes<kWhole, M>(view.data, line, end);
      const float scale = kWhole || line < end ? view.scales[line / M::kBlock] : 0.0F;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const uint32_t code = codes >> (i * M::kBits) & ((1U << M::kBits) - 1);
        // Behind the end a map without a zero would give a value that counts for the largest.
        const bool there = kWhole || line + i < end;
        x[u][i] = there ? __fmul_rn(M::Code::Decode(code, view.decades), scale) : 0.0F;
      }
    } else {
      Load<kWhole>(static_cast<const M*>(view.data), line, end, x[u]);
    }
  }
}

// The lines [kFirst, kFirst + kCount), which are a block.
template <bool kWhole, typename B, int kFirst, int kCount>
__device__ __forceinline__ void StoreBlock(const MomentView& view,
                                           int64_t at,
                                           int64_t end,
                                           const Lines& x) {
  float largest = 0.0F;
#pragma unroll
  for (int u = kFirst; u < kFirst + kCount; ++u) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      largest = MaxNan(largest, kWhole || at + u * kLine + i < end ? fabsf(x[u][i]) : 0.0F);
    }
  }
  largest = WarpMax(largest);
  // Below it 1 / largest would be infinite, and 0 times that NaN.
  const bool zeros = largest < formats::kLeastStateScale;
  const float inverse = zeros ? 0.0F : __fdiv_rn(1.0F, largest);
#pragma unroll
  for (int u = kFirst; u < kFirst + kCount; ++u) {
    uint32_t codes = 0;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const bool there = kWhole || at + u * kLine + i < end;
      const uint32_t code = B::Code::Encode(__fmul_rn(x[u][i], inverse), view.decades);
      codes |= there ? code << (i * B::kBits) : 0U;
    }
    StoreCodes<kWhole, B>(view.data, at + u * kLine, end, codes);
  }
  const int64_t first = at + kFirst * kLine;
  if (threadIdx.x % kWarp == 0 && first < end) {
    view.scales[first / B::kBlock] = zeros ? 0.0F : largest;
  }
}

template <bool kWhole, typename M>
__device__ __forceinline__ void StoreMoment(const MomentView& view,
                                            int64_t at,
                                            int64_t end,
                                            Lines& x) {
  if constexpr (!IsBlocks<M>::value) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      Store<kWhole>(static_cast<M*>(view.data), at + u * kLine, end, x[u]);
    }
  } else if constexpr (M::kBlock == kRun) {
    StoreBlock<kWhole, M, 0, kUnroll>(view, at, end, x);
  } else {
    static_assert(M::kBlock == kLine && kUnroll == 2);
    StoreBlock<kWhole, M, 0, 1>(view, at, end, x);
    StoreBlock<kWhole, M, 1, 1>(view, at, end, x);
  }
}

// As EncodeBf16Stochastic (common/formats/codecs.h), widened again.
__device__ __forceinline__ float RoundStochastic(float x, uint32_t word) {
  const uint32_t bits = __float_as_uint(x);
  // Adding noise below the kept bits carries into them with the probability of the cut-off part.
  // Infinity and NaN would become other numbers, so they take the plain path.
  const bool finite = (bits & 0x7F800000) != 0x7F800000;
  return finite ? __uint_as_float((bits + (word & 0xFFFF)) & 0xFFFF0000) : Rounded<Bf16>(x);
}

// `at` and `first_element` are multiples of 4: one block of random words for the four.
__device__ __forceinline__ void RoundStochastic(
    const Table& table, const Slot& slot, uint32_t step, int64_t at, float (&x)[kWidth]) {
  static_assert(kWidth == 4);
  const RngKey key = {table.seed, RngPurpose::kStochasticRounding, step, 0, slot.index};
  const std::array<uint32_t, 4> words =
      RngBlock(key, (slot.first_element + static_cast<uint64_t>(at)) / 4);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    x[i] = RoundStochastic(x[i], words[i]);
  }
}

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
                                             const formats::StateDecades* decades,
                                             int64_t begin,
                                             int64_t end) {
  P* masters = static_cast<P*>(slot.master);
  const MomentView ms = {slot.m, slot.m_scales, decades[0].rows};
  const MomentView vs = {slot.v, slot.v_scales, decades[1].rows};
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
    LoadMoment<kWhole, M>(ms, first, end, m);
    LoadMoment<kWhole, V>(vs, first, end, v);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        Update(k, g[u][i], p[u][i], m[u][i], v[u][i]);
      }
    }
    StoreMoment<kWhole, M>(ms, first, end, m);
    StoreMoment<kWhole, V>(vs, first, end, v);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int64_t at = first + u * kLine;
      if (std::is_same<P, Bf16>::value && table.stochastic_rounding) {
        RoundStochastic(table, slot, k.step, at, p[u]);
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
__global__ void __launch_bounds__(kThreads) AdamWKernel(const __grid_constant__ Table table) {
  __shared__ Scalars scalars;
  __shared__ float scratch[32];
  __shared__ formats::StateDecades decades[2];
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
  if constexpr (IsBlocks<M>::value) {
    // One warp writes a row of both maps, beside warp 0, which makes the scalars.
    constexpr formats::StateDecades kFirst = DecadesOf<M>();
    constexpr formats::StateDecades kSecond = DecadesOf<V>();
#pragma unroll
    for (int e = 0; e < formats::kMaxDecades; ++e) {
      if (threadIdx.x == kWarp * (e + 1)) {
        decades[0].rows[e] = kFirst.rows[e];
        decades[1].rows[e] = kSecond.rows[e];
      }
    }
  }
  __syncthreads();
  const Scalars k = scalars;
  const int64_t begin = (chunk - table.first_chunk[low]) * kChunk;
  const int64_t end = slot.count - begin < kChunk ? slot.count : begin + kChunk;
  // Only a whole chunk of aligned views can be read in vectors; the tail of a tensor goes one by
  // one.
  float largest = slot.aligned && end - begin == kChunk
                      ? UpdateChunk<true, P, M, V, G>(table, slot, k, decades, begin, end)
                      : UpdateChunk<false, P, M, V, G>(table, slot, k, decades, begin, end);
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

bool IsAligned(const TensorView& view) {
  const size_t bytes = kWidth * static_cast<size_t>(DTypeBits(view.dtype)) / 8;
  return reinterpret_cast<uintptr_t>(view.data) % bytes == 0;
}

Slot SlotOf(const AdamWTensor& tensor) {
  Slot slot = {};
  slot.master = tensor.master.data;
  slot.m = tensor.m.data;
  slot.v = tensor.v.data;
  slot.m_scales = tensor.m_blocks.scales;
  slot.v_scales = tensor.v_blocks.scales;
  slot.grad = tensor.grad.data;
  slot.working = tensor.working.data;
  slot.amax = tensor.amax;
  slot.count = tensor.master.numel();
  slot.first_element = tensor.first_element;
  slot.lr_scale = tensor.lr_scale;
  slot.weight_decay = tensor.weight_decay;
  slot.index = tensor.index;
  slot.working_bf16 = tensor.working.dtype == DType::kBF16;
  slot.aligned = IsAligned(tensor.master) && IsAligned(tensor.m) && IsAligned(tensor.v) &&
                 IsAligned(tensor.grad) && IsAligned(tensor.working);
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
