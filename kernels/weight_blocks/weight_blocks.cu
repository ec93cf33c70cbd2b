#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/core/rng.h"
#include "kernels/cuda/util.cuh"
#include "kernels/weight_blocks/weight_blocks.h"

namespace hearth::kernels::cuda {
namespace {

using formats::WeightCode;
using formats::WeightCodec;
using formats::WeightRange;

constexpr char kOp[] = "weight_blocks";
constexpr int kThreads = 256;
constexpr int kRuns = 4;  // of 32 elements, that a warp has under way at once
constexpr int64_t kChunk = int64_t{kThreads} * kRuns;

// Where element `at` lies.
template <WeightCodec kCodec>
struct Place {
  static constexpr formats::WeightCodecRow kRow =
      formats::kWeightCodecRows[static_cast<int>(kCodec)];

  __device__ explicit Place(int64_t at)
      : block(at / kRow.block * kRow.block_bytes), i(static_cast<int>(at % kRow.block)) {}
  __device__ int group() const { return i / kRow.group; }

  int64_t block;  // byte
  int i;          // in it
};

template <WeightCodec kCodec, typename Y>
__global__ void __launch_bounds__(kThreads)
    DecodeKernel(const uint8_t* __restrict__ blocks, Y* __restrict__ y, int64_t count) {
  const int64_t first = blockIdx.x * kChunk + threadIdx.x;
#pragma unroll
  for (int r = 0; r < kRuns; ++r) {
    const int64_t at = first + int64_t{r} * kThreads;
    if (at < count) {
      const Place<kCodec> place(at);
      const uint8_t* const block = blocks + place.block;
      const float d = WeightCode<kCodec>::Scale(block, place.group());
      y[at] = FromFloat<Y>(WeightCode<kCodec>::Value(formats::CodeOf<kCodec>(block, place.i), d));
    }
  }
}

struct Encoding {
  const float* x;
  uint8_t* blocks;
  int64_t count;
  bool keep;
  uint64_t seed;
  uint32_t step;
  uint32_t index;
  uint64_t first_element;
  const StepInputs* inputs;
  const int32_t* skip;
  float* amax;
  bool to_bf16;
};

// The range over the lanes of a group, which is a part of a warp or all of it.
template <int kGroup>
__device__ __forceinline__ WeightRange GroupRange(float x) {
  WeightRange range = {x, x};
#pragma unroll
  for (int offset = kGroup / 2; offset > 0; offset /= 2) {
    const WeightRange other = {__shfl_xor_sync(0xFFFFFFFF, range.least, offset),
                               __shfl_xor_sync(0xFFFFFFFF, range.largest, offset)};
    range = formats::Join(range, other);
  }
  return range;
}

// A warp encodes 32 elements, a lane each; returns the magnitude of the lane's new value. `count`
// is a multiple of 32, so a warp has all of them or none.
template <WeightCodec kCodec>
__device__ __forceinline__ float EncodeRun(const Encoding& e, const RngKey& key, int64_t at) {
  using Code = WeightCode<kCodec>;
  constexpr formats::WeightCodecRow kRow = formats::kWeightCodecRows[static_cast<int>(kCodec)];
  const Place<kCodec> place(at);
  uint8_t* const block = e.blocks + place.block;
  const float x = e.x[at];
  const WeightRange range = GroupRange<kRow.group>(x);
  const float d = Code::NextScale(e.keep ? Code::Scale(block, place.group()) : 0.0F, range);
  const uint32_t code =
      e.keep ? Code::Stochastic(x, d, RngWord(key, e.first_element + static_cast<uint64_t>(at)))
             : Code::Nearest(x, d);
  // All lanes have read the scale before one writes it.
  __syncwarp();
  if (place.i % kRow.group == 0) {
    Code::PutScale(block, place.group(), d);
  }
  if constexpr (Code::kPair == 0) {
    block[formats::CodeByte<kCodec>(place.i)] = static_cast<uint8_t>(code);
  } else {
    const uint32_t high = __shfl_xor_sync(0xFFFFFFFF, code, Code::kPair);
    if (formats::CodeShift<kCodec>(place.i) == 0) {
      block[formats::CodeByte<kCodec>(place.i)] = static_cast<uint8_t>(code | high << 4);
    }
  }
  const float value = Code::Value(code, d);
  return fabsf(e.to_bf16 ? Rounded<Bf16>(value) : value);
}

template <WeightCodec kCodec>
__global__ void __launch_bounds__(kThreads) EncodeKernel(const __grid_constant__ Encoding e) {
  __shared__ float scratch[32];
  if (e.skip != nullptr && *e.skip != 0) {
    return;
  }
  const uint32_t step = e.inputs != nullptr ? static_cast<uint32_t>(e.inputs->step) : e.step;
  const RngKey key = {e.seed, RngPurpose::kStochasticRounding, step, 0, e.index};
  const int64_t first = blockIdx.x * kChunk + threadIdx.x;
  float largest = 0.0F;
#pragma unroll
  for (int r = 0; r < kRuns; ++r) {
    const int64_t at = first + int64_t{r} * kThreads;
    if (at < e.count) {
      largest = MaxNan(largest, EncodeRun<kCodec>(e, key, at));
    }
  }
  if (e.amax != nullptr) {
    largest = BlockMax(largest, scratch);
    if (threadIdx.x == 0) {
      RaiseAmax(e.amax, largest);
    }
  }
}

unsigned BlocksOf(int64_t count) {
  return static_cast<unsigned>(CeilDiv(count, kChunk));
}

template <WeightCodec kCodec>
void LaunchDecode(const Exec& exec, const DecodeWeightsArgs& args) {
  const auto* const blocks = args.blocks.as<uint8_t>();
  const int64_t count = args.y.numel();
  if (args.y.dtype == DType::kBF16) {
    DecodeKernel<kCodec>
        <<<BlocksOf(count), kThreads, 0, StreamOf(exec)>>>(blocks, args.y.as<Bf16>(), count);
  } else {
    DecodeKernel<kCodec>
        <<<BlocksOf(count), kThreads, 0, StreamOf(exec)>>>(blocks, args.y.as<float>(), count);
  }
}

template <WeightCodec kCodec>
void LaunchEncode(const Exec& exec, const Encoding& e) {
  EncodeKernel<kCodec><<<BlocksOf(e.count), kThreads, 0, StreamOf(exec)>>>(e);
}

Encoding EncodingOf(const EncodeWeightsArgs& args) {
  Encoding e = {};
  e.x = args.x.as<float>();
  e.blocks = args.blocks.as<uint8_t>();
  e.count = args.x.numel();
  e.keep = args.keep;
  e.seed = args.seed;
  e.step = static_cast<uint32_t>(args.step);
  e.index = args.index;
  e.first_element = args.first_element;
  e.inputs = args.inputs;
  e.skip = args.skip;
  e.amax = args.amax;
  e.to_bf16 = args.to == DType::kBF16;
  return e;
}

}  // namespace

absl::Status DecodeWeights(const Exec& exec, const DecodeWeightsArgs& args) {
  const bool rounds = args.to == DType::kBF16;
  if (args.y.dtype != (rounds ? DType::kBF16 : DType::kF32)) {
    return absl::UnimplementedError(absl::StrCat(kOp, ": into ", DebugString(args.y), " on a GPU"));
  }
  if (args.y.numel() == 0) {
    return absl::OkStatus();
  }
  formats::DispatchWeightCodec(
      args.codec, [&](auto codec) { LaunchDecode<decltype(codec)::value>(exec, args); });
  return HEARTH_CUDA_LAUNCHED(kOp);
}

absl::Status EncodeWeights(const Exec& exec, const EncodeWeightsArgs& args) {
  if (args.x.dtype != DType::kF32) {
    return absl::UnimplementedError(absl::StrCat(kOp, ": of ", DebugString(args.x), " on a GPU"));
  }
  if (args.x.numel() == 0) {
    return absl::OkStatus();
  }
  const Encoding e = EncodingOf(args);
  formats::DispatchWeightCodec(args.codec,
                               [&](auto codec) { LaunchEncode<decltype(codec)::value>(exec, e); });
  return HEARTH_CUDA_LAUNCHED(kOp);
}

}  // namespace hearth::kernels::cuda
