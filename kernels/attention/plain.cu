// Attention for the shapes and types that the tensor-core kernels leave out: a warp for each row,
// its lanes over head_dim. Also the row sums that every backward needs.
#include "absl/strings/str_cat.h"
#include "kernels/attention/flash.cuh"
#include "kernels/attention/own.h"

namespace hearth::kernels::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kPer = kPlainMaxHeadDim / 32;  // elements of a lane: lane + 32 i

struct Shape {
  const int32_t* starts;
  int64_t width;
  int64_t out_width;
  int64_t rows;  // of the grid: warps with work
  int sequence;
  int heads;
  int kv_heads;
  int head_dim;
  float scale;
};

Shape ShapeOf(const AttentionDims& d, const TensorView& starts, float scale) {
  Shape s;
  s.starts = starts.as<int32_t>();
  s.width = (d.heads + 2 * d.kv_heads) * d.head_dim;
  s.out_width = d.heads * d.head_dim;
  s.rows = 0;
  s.sequence = static_cast<int>(d.sequence);
  s.heads = static_cast<int>(d.heads);
  s.kv_heads = static_cast<int>(d.kv_heads);
  s.head_dim = static_cast<int>(d.head_dim);
  s.scale = scale;
  return s;
}

// This warp's row of [batch, heads, sequence].
struct Place {
  int64_t batch;
  int head;
  int row;
};
__device__ __forceinline__ int64_t WarpIndex() {
  return static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
}
__device__ __forceinline__ Place PlaceOf(int64_t index, int heads, int sequence) {
  const int64_t head = index / sequence;
  return {head / heads, static_cast<int>(head % heads), static_cast<int>(index % sequence)};
}

template <typename A>
__device__ __forceinline__ void LoadRow(const A* from, int head_dim, float (&out)[kPer]) {
#pragma unroll
  for (int i = 0; i < kPer; ++i) {
    const int d = threadIdx.x % 32 + 32 * i;
    out[i] = d < head_dim ? ToFloat(from[d]) : 0.0F;
  }
}
template <typename A>
__device__ __forceinline__ void StoreRow(A* to,
                                         int head_dim,
                                         float factor,
                                         const float (&x)[kPer]) {
#pragma unroll
  for (int i = 0; i < kPer; ++i) {
    const int d = threadIdx.x % 32 + 32 * i;
    if (d < head_dim) {
      to[d] = FromFloat<A>(x[i] * factor);
    }
  }
}
__device__ __forceinline__ float Dot(const float (&a)[kPer], const float (&b)[kPer]) {
  float sum = 0.0F;
#pragma unroll
  for (int i = 0; i < kPer; ++i) {
    sum = fmaf(a[i], b[i], sum);
  }
  return WarpSum(sum);
}
__device__ __forceinline__ void Add(float factor, const float (&x)[kPer], float (&sum)[kPer]) {
#pragma unroll
  for (int i = 0; i < kPer; ++i) {
    sum[i] = fmaf(factor, x[i], sum[i]);
  }
}

// Offset of a head in the fused row, as if all heads [q | k | v] stood in one list.
__device__ __forceinline__ int64_t Offset(const Shape& s,
                                          int64_t batch,
                                          int64_t row,
                                          int64_t head) {
  return (batch * s.sequence + row) * s.width + head * s.head_dim;
}

template <typename A>
__global__ void __launch_bounds__(kWarps * 32)
    ForwardKernel(const Shape s, const A* qkv, A* out, float* lse) {
  const int64_t index = WarpIndex();
  // Whole warps leave, so the shuffles of those that stay have all their lanes.
  if (index >= s.rows) {
    return;
  }
  const Place at = PlaceOf(index, s.heads, s.sequence);
  const int kv = at.head / (s.heads / s.kv_heads);
  float q[kPer];
  LoadRow(qkv + Offset(s, at.batch, at.row, at.head), s.head_dim, q);
  float sum[kPer] = {};
  float max = -INFINITY;
  float total = 0.0F;
  for (int key = FirstKey(StartsOf(s.starts, at.batch, s.sequence), at.row); key <= at.row; ++key) {
    float x[kPer];
    LoadRow(qkv + Offset(s, at.batch, key, s.heads + kv), s.head_dim, x);
    const float score = Dot(q, x) * s.scale;
    LoadRow(qkv + Offset(s, at.batch, key, s.heads + s.kv_heads + kv), s.head_dim, x);
    // A running softmax: what was summed so far is brought to the new maximum.
    if (score > max) {
      const float correction = expf(max - score);  // 0 the first time
      max = score;
      total *= correction;
#pragma unroll
      for (int i = 0; i < kPer; ++i) {
        sum[i] *= correction;
      }
    }
    const float p = expf(score - max);
    total += p;
    Add(p, x, sum);
  }
  A* to = out + (at.batch * s.sequence + at.row) * s.out_width +
          static_cast<int64_t>(at.head) * s.head_dim;
  StoreRow(to, s.head_dim, 1.0F / total, sum);
  if (lse != nullptr && threadIdx.x % 32 == 0) {
    lse[index] = max + logf(total);
  }
}

template <typename A>
__global__ void __launch_bounds__(kWarps * 32) QueryKernel(
    const Shape s, const A* qkv, const A* d_out, const float* lse, const float* delta, A* d_qkv) {
  const int64_t index = WarpIndex();
  if (index >= s.rows) {
    return;
  }
  const Place at = PlaceOf(index, s.heads, s.sequence);
  const int kv = at.head / (s.heads / s.kv_heads);
  float q[kPer];
  float dy[kPer];
  LoadRow(qkv + Offset(s, at.batch, at.row, at.head), s.head_dim, q);
  LoadRow(d_out + (at.batch * s.sequence + at.row) * s.out_width +
              static_cast<int64_t>(at.head) * s.head_dim,
          s.head_dim, dy);
  float sum[kPer] = {};
  for (int key = FirstKey(StartsOf(s.starts, at.batch, s.sequence), at.row); key <= at.row; ++key) {
    float k[kPer];
    float v[kPer];
    LoadRow(qkv + Offset(s, at.batch, key, s.heads + kv), s.head_dim, k);
    LoadRow(qkv + Offset(s, at.batch, key, s.heads + s.kv_heads + kv), s.head_dim, v);
    const float p = expf(Dot(q, k) * s.scale - lse[index]);
    // dS without the scale, which StoreRow applies once to the whole sum.
    Add(p * (Dot(dy, v) - delta[index]), k, sum);
  }
  StoreRow(d_qkv + Offset(s, at.batch, at.row, at.head), s.head_dim, s.scale, sum);
}

template <typename A>
__global__ void __launch_bounds__(kWarps * 32) KeyKernel(
    const Shape s, const A* qkv, const A* d_out, const float* lse, const float* delta, A* d_qkv) {
  const int64_t index = WarpIndex();
  if (index >= s.rows) {
    return;
  }
  const Place at = PlaceOf(index, s.kv_heads, s.sequence);
  const int group = s.heads / s.kv_heads;
  const int64_t k_at = Offset(s, at.batch, at.row, s.heads + at.head);
  const int64_t v_at = Offset(s, at.batch, at.row, s.heads + s.kv_heads + at.head);
  float k[kPer];
  float v[kPer];
  LoadRow(qkv + k_at, s.head_dim, k);
  LoadRow(qkv + v_at, s.head_dim, v);
  float dk[kPer] = {};
  float dv[kPer] = {};
  const int last = LastQuery(StartsOf(s.starts, at.batch, s.sequence), at.row, s.sequence);
  // One warp sums over all queries of all heads that share the key. Without atomics the sum has the
  // same bits in each run.
  for (int head = at.head * group; head < (at.head + 1) * group; ++head) {
    const int64_t statistics = (at.batch * s.heads + head) * s.sequence;
    for (int query = at.row; query <= last; ++query) {
      float q[kPer];
      float dy[kPer];
      LoadRow(qkv + Offset(s, at.batch, query, head), s.head_dim, q);
      LoadRow(d_out + (at.batch * s.sequence + query) * s.out_width +
                  static_cast<int64_t>(head) * s.head_dim,
              s.head_dim, dy);
      const float p = expf(Dot(q, k) * s.scale - lse[statistics + query]);
      Add(p, dy, dv);
      Add(p * (Dot(dy, v) - delta[statistics + query]), q, dk);
    }
  }
  StoreRow(d_qkv + k_at, s.head_dim, s.scale, dk);
  StoreRow(d_qkv + v_at, s.head_dim, 1.0F, dv);
}

// Eight lanes for a row of a head; `vectors`: 16-byte access, else element by element.
template <typename A>
__global__ void __launch_bounds__(256)
    DeltaKernel(const Shape s, bool vectors, const A* out, const A* d_out, float* delta) {
  constexpr int kWidth = kPackWidth<A>;
  const int64_t index = (static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x) / 8;
  const int lane = threadIdx.x % 8;
  float sum = 0.0F;
  // Index runs over [batch, sequence, heads], as the operands lie in memory. Every lane goes to the
  // shuffles.
  if (index < s.rows) {
    const int64_t from = index * s.head_dim;
    if (vectors) {
      for (int d = lane * kWidth; d < s.head_dim; d += 8 * kWidth) {
        float a[kWidth];
        float b[kWidth];
        LoadFloats<kWidth>(out + from + d, a);
        LoadFloats<kWidth>(d_out + from + d, b);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) {
          sum = fmaf(a[i], b[i], sum);
        }
      }
    } else {
      for (int d = lane; d < s.head_dim; d += 8) {
        sum = fmaf(ToFloat(out[from + d]), ToFloat(d_out[from + d]), sum);
      }
    }
  }
#pragma unroll
  for (int offset = 4; offset > 0; offset /= 2) {
    sum += __shfl_xor_sync(0xFFFFFFFF, sum, offset);
  }
  if (index < s.rows && lane == 0) {
    // delta is [B, Hq, T]; the warps went through [B, T, Hq], the order of the operands.
    const int64_t row = index / s.heads;
    delta[((row / s.sequence) * s.heads + index % s.heads) * s.sequence + row % s.sequence] = sum;
  }
}

absl::Status CheckHeadDim(const AttentionDims& dims) {
  return dims.head_dim <= kPlainMaxHeadDim
             ? absl::OkStatus()
             : absl::UnimplementedError(absl::StrCat("attention: head_dim ", dims.head_dim,
                                                     " on a GPU, at most ", kPlainMaxHeadDim));
}

bool Aligned16(const TensorView& view) {
  return reinterpret_cast<uintptr_t>(view.data) % 16 == 0;
}

template <typename A>
absl::Status Forward(const Exec& exec, const AttentionForwardArgs& args, float scale) {
  Shape s = ShapeOf(args.dims, args.starts, scale);
  s.rows = args.dims.batch * args.dims.heads * args.dims.sequence;
  ForwardKernel<A>
      <<<static_cast<unsigned>(CeilDiv(s.rows, kWarps)), kWarps * 32, 0, StreamOf(exec)>>>(
          s, args.qkv.as<A>(), args.out.as<A>(), args.lse.as<float>());
  return HEARTH_CUDA_LAUNCHED("attention forward");
}

template <typename A>
absl::Status Backward(const Exec& exec,
                      const AttentionBackwardArgs& args,
                      float scale,
                      const float* delta) {
  Shape s = ShapeOf(args.dims, args.starts, scale);
  s.rows = args.dims.batch * args.dims.heads * args.dims.sequence;
  QueryKernel<A>
      <<<static_cast<unsigned>(CeilDiv(s.rows, kWarps)), kWarps * 32, 0, StreamOf(exec)>>>(
          s, args.qkv.as<A>(), args.d_out.as<A>(), args.lse.as<float>(), delta, args.d_qkv.as<A>());
  HEARTH_CUDA_RETURN_IF_ERROR(cudaGetLastError());
  s.rows = args.dims.batch * args.dims.kv_heads * args.dims.sequence;
  KeyKernel<A><<<static_cast<unsigned>(CeilDiv(s.rows, kWarps)), kWarps * 32, 0, StreamOf(exec)>>>(
      s, args.qkv.as<A>(), args.d_out.as<A>(), args.lse.as<float>(), delta, args.d_qkv.as<A>());
  return HEARTH_CUDA_LAUNCHED("attention backward");
}

template <typename A>
absl::Status Delta(const Exec& exec, const AttentionBackwardArgs& args, float* delta) {
  Shape s = ShapeOf(args.dims, args.starts, 1.0F);
  s.rows = args.dims.batch * args.dims.heads * args.dims.sequence;
  const bool vectors =
      s.head_dim % kPackWidth<A> == 0 && Aligned16(args.out) && Aligned16(args.d_out);
  DeltaKernel<A><<<static_cast<unsigned>(CeilDiv(s.rows * 8, 256)), 256, 0, StreamOf(exec)>>>(
      s, vectors, args.out.as<A>(), args.d_out.as<A>(), delta);
  return HEARTH_CUDA_LAUNCHED("attention delta");
}

}  // namespace

absl::Status AttentionDelta(const Exec& exec, const AttentionBackwardArgs& args, float* delta) {
  return args.qkv.dtype == DType::kBF16 ? Delta<Bf16>(exec, args, delta)
                                        : Delta<float>(exec, args, delta);
}

absl::Status PlainForward(const Exec& exec, const AttentionForwardArgs& args, float scale) {
  if (const absl::Status status = CheckHeadDim(args.dims); !status.ok()) {
    return status;
  }
  return args.qkv.dtype == DType::kBF16 ? Forward<Bf16>(exec, args, scale)
                                        : Forward<float>(exec, args, scale);
}

absl::Status PlainBackward(const Exec& exec,
                           const AttentionBackwardArgs& args,
                           float scale,
                           float* delta) {
  if (const absl::Status status = CheckHeadDim(args.dims); !status.ok()) {
    return status;
  }
  if (const absl::Status status = AttentionDelta(exec, args, delta); !status.ok()) {
    return status;
  }
  return args.qkv.dtype == DType::kBF16 ? Backward<Bf16>(exec, args, scale, delta)
                                        : Backward<float>(exec, args, scale, delta);
}

}  // namespace hearth::kernels::cuda
