#include "common/base/status_macros.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/util.cuh"
#include "kernels/gemm/gemm.h"
#include "kernels/linear_cross_entropy/cuda_layout.h"
#include "kernels/linear_cross_entropy/linear_cross_entropy.h"

namespace hearth::kernels::cuda {
namespace {

constexpr char kOp[] = "linear_cross_entropy";
constexpr int kThreads = 512;
constexpr int kInFlight = 4;  // packs that a thread loads before it uses the first
constexpr int kSumThreads = 1024;
constexpr float kLog2E = 1.44269504088896341F;
// Finite, so that differences of maxima are never NaN; no logit is smaller.
constexpr float kNoMaximum = -1e30F;
constexpr float kE5m2Max = 57344.0F;

// What becomes of the logits.
enum class Mode : int {
  kLoss,       // nothing
  kGradient,   // d_logits in their place
  kQuantised,  // d_logits as E5M2 elsewhere
};

// 2^x, relative error 2^-22; 0 for -infinity.
__device__ __forceinline__ float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// One token: its row of logits, and where its results go.
template <typename A>
struct LossArgs {
  A* logits;  // [count, padded]
  int64_t padded;
  int vocab;
  int kept;                  // packs of a row that stay in shared memory between the passes
  const int32_t* targets;    // [count]
  const float* loss_weight;  // [count]
  float d_loss;
  double* nll;     // [count]
  float* nll_out;  // [count], or null
  uint8_t* rows;   // [count, padded]
  float scale;     // of rows
  float* unscale;  // gets its reciprocal, which the products read
  float unscale_value;
};

// Pack i of a row as floats; columns of padding are -infinity.
template <typename A, int W>
__device__ __forceinline__ void Unpack(const Pack<A, W>& pack, int i, int vocab, float (&out)[W]) {
#pragma unroll
  for (int j = 0; j < W; ++j) {
    out[j] = ToFloat(pack.at[j]);
  }
  if ((i + 1) * W > vocab) {
#pragma unroll
    for (int j = 0; j < W; ++j) {
      out[j] = i * W + j < vocab ? out[j] : -INFINITY;
    }
  }
}

template <typename A, int W, Mode kMode>
__device__ __forceinline__ void StoreGradient(const LossArgs<A>& args,
                                              int64_t row,
                                              int i,
                                              const float (&g)[W]) {
  if constexpr (kMode == Mode::kGradient) {
    StoreFloats<W>(args.logits + row * args.padded + static_cast<int64_t>(i) * W, g);
  } else if constexpr (W % 2 == 0) {
    Pack<uint8_t, W> codes;
#pragma unroll
    for (int j = 0; j < W; j += 2) {
      const float2 pair =
          make_float2(Rounded<A>(g[j]) * args.scale, Rounded<A>(g[j + 1]) * args.scale);
      const __nv_fp8x2_storage_t two = __nv_cvt_float2_to_fp8x2(pair, __NV_SATFINITE, __NV_E5M2);
      codes.at[j] = static_cast<uint8_t>(two & 0xFF);
      codes.at[j + 1] = static_cast<uint8_t>(two >> 8);
    }
    StorePack<W>(args.rows + row * args.padded + static_cast<int64_t>(i) * W, codes);
  }
}

// A block a token. First pass: maximum and sum of exponentials, as the row is read. Second pass,
// from shared memory as far as the row fits there (the rest is read again): the gradient. A thread
// reads and writes the same packs in both, so nothing is shared but the two reductions.
template <typename A, int W, Mode kMode>
__global__ void __launch_bounds__(kThreads, 2) LossKernel(const LossArgs<A> args) {
  extern __shared__ __align__(16) unsigned char shared_row[];
  __shared__ float scratch[32];
  Pack<A, W>* kept = reinterpret_cast<Pack<A, W>*>(shared_row);
  const int threads = blockDim.x;
  const int64_t row = blockIdx.x;
  const int packs = static_cast<int>(args.padded / W);
  const A* x = args.logits + row * args.padded;
  const float weight = args.loss_weight[row];
  if (kMode == Mode::kQuantised && row == 0 && threadIdx.x == 0) {
    *args.unscale = args.unscale_value;
  }
  if (weight == 0.0F) {
    if (threadIdx.x == 0) {
      args.nll[row] = 0.0;
      if (args.nll_out != nullptr) {
        args.nll_out[row] = 0.0F;
      }
    }
    if constexpr (kMode != Mode::kLoss) {
      const float zeros[W] = {};
      for (int i = threadIdx.x; i < packs; i += threads) {
        StoreGradient<A, W, kMode>(args, row, i, zeros);
      }
    }
    return;
  }
  const int target = args.targets[row];
  const bool valid = target >= 0 && target < args.vocab;
  const float target_logit = valid ? ToFloat(x[target]) : NAN;

  float max = kNoMaximum;
  float sum = 0.0F;
  for (int first = threadIdx.x; first < packs; first += threads * kInFlight) {
    Pack<A, W> in[kInFlight];
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      const int i = first + u * threads;
      if (i < packs) {
        in[u] = LoadPack<W>(x + static_cast<int64_t>(i) * W);
      }
    }
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      const int i = first + u * threads;
      if (i < packs) {
        if (kMode != Mode::kLoss && i < args.kept) {
          kept[i] = in[u];
        }
        float v[W];
        Unpack<A, W>(in[u], i, args.vocab, v);
        float top = max;
#pragma unroll
        for (int j = 0; j < W; ++j) {
          top = fmaxf(top, v[j]);
        }
        sum *= Exp2((max - top) * kLog2E);
        const float offset = top * kLog2E;
#pragma unroll
        for (int j = 0; j < W; ++j) {
          sum += Exp2(fmaf(v[j], kLog2E, -offset));
        }
        max = top;
      }
    }
  }
  const float row_max = BlockMax(max, scratch);
  const float row_sum = BlockSum(sum * Exp2((max - row_max) * kLog2E), scratch);
  if (threadIdx.x == 0) {
    const double nll = log(static_cast<double>(row_sum)) +
                       (static_cast<double>(row_max) - static_cast<double>(target_logit));
    args.nll[row] = nll;
    if (args.nll_out != nullptr) {
      args.nll_out[row] = static_cast<float>(nll);
    }
  }
  if constexpr (kMode != Mode::kLoss) {
    // A target that does not exist shows as NaN in every gradient.
    const float scale = valid ? args.d_loss * weight : NAN;
    const float offset = fmaf(row_max, kLog2E, log2f(row_sum));
    const int target_pack = target / W;
#pragma unroll 2
    for (int i = threadIdx.x; i < packs; i += threads) {
      const Pack<A, W> in = i < args.kept ? kept[i] : LoadPack<W>(x + static_cast<int64_t>(i) * W);
      float g[W];
      Unpack<A, W>(in, i, args.vocab, g);
#pragma unroll
      for (int j = 0; j < W; ++j) {
        g[j] = scale * Exp2(fmaf(g[j], kLog2E, -offset));
      }
      if (i == target_pack) {
#pragma unroll
        for (int j = 0; j < W; ++j) {
          g[j] = i * W + j == target ? g[j] - scale : g[j];
        }
      }
      StoreGradient<A, W, kMode>(args, row, i, g);
    }
  }
}

// columns[c, r] = rows[r, c] of bytes, R and C multiples of 16. A block has a tile of 128 x 128 in
// 32-bit words of four columns; the words of row r are turned by 4 * (r / 16), so that the reads by
// columns meet every bank once.
constexpr int kTile = 128;
constexpr int kTransposeThreads = 256;

__global__ void __launch_bounds__(kTransposeThreads)
    TransposeBytes(const uint8_t* rows, uint8_t* columns, int64_t row_count, int64_t column_count) {
  __shared__ __align__(16) uint32_t tile[kTile][kTile / 4];
  const int64_t row0 = static_cast<int64_t>(blockIdx.y) * kTile;
  const int64_t column0 = static_cast<int64_t>(blockIdx.x) * kTile;
#pragma unroll
  for (int pass = 0; pass < 4; ++pass) {
    const int r = pass * 32 + threadIdx.x / 8;
    const int word = threadIdx.x % 8 * 4;
    uint4 in = make_uint4(0, 0, 0, 0);
    if (row0 + r < row_count && column0 + word * 4 < column_count) {
      in = *reinterpret_cast<const uint4*>(rows + (row0 + r) * column_count + column0 + word * 4);
    }
    *reinterpret_cast<uint4*>(&tile[r][(word + r / 16 * 4) % 32]) = in;
  }
  __syncthreads();
  // A warp has 16 columns (4 words) of all 8 groups of 16 rows; a lane one word of one group.
  const int group = threadIdx.x % 8;
  const int word = threadIdx.x / 8;
  const int64_t r = row0 + group * 16;
  const int64_t c = column0 + word * 4;
  if (r >= row_count || c >= column_count) {
    return;
  }
  uint32_t out[4][4];  // [column][rows 4k .. 4k + 3]
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    uint32_t in[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      in[j] = tile[group * 16 + k * 4 + j][(word + group * 4) % 32];
    }
    const uint32_t low01 = __byte_perm(in[0], in[1], 0x5140);
    const uint32_t low23 = __byte_perm(in[2], in[3], 0x5140);
    const uint32_t high01 = __byte_perm(in[0], in[1], 0x7362);
    const uint32_t high23 = __byte_perm(in[2], in[3], 0x7362);
    out[0][k] = __byte_perm(low01, low23, 0x5410);
    out[1][k] = __byte_perm(low01, low23, 0x7632);
    out[2][k] = __byte_perm(high01, high23, 0x5410);
    out[3][k] = __byte_perm(high01, high23, 0x7632);
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    *reinterpret_cast<uint4*>(columns + (c + j) * row_count + r) =
        make_uint4(out[j][0], out[j][1], out[j][2], out[j][3]);
  }
}

// *loss_sum += sum of w * nll, *weight_sum += sum of w; one block, so that the order is fixed.
__global__ void __launch_bounds__(kSumThreads) SumLosses(const double* nll,
                                                         const float* loss_weight,
                                                         int64_t tokens,
                                                         double* loss_sum,
                                                         double* weight_sum) {
  __shared__ double scratch[32];
  double loss = 0.0;
  double weights = 0.0;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < tokens; i += kSumThreads) {
    const double weight = loss_weight[i];
    loss += weight * nll[i];
    weights += weight;
  }
  loss = BlockSum(loss, scratch);
  weights = BlockSum(weights, scratch);
  if (threadIdx.x == 0) {
    *loss_sum += loss;
    *weight_sum += weights;
  }
}

// Packs of a row that fit in a block's shared memory.
template <typename A, int W>
int KeptPacks(const Exec& exec, int64_t padded) {
  // The block's own variables and what the system takes of each block.
  const int64_t reserved = 2048;
  const int64_t room =
      (exec.cuda->gpu().shared_memory_bytes - reserved) / static_cast<int64_t>(sizeof(Pack<A, W>));
  const int64_t packs = padded / W;
  return static_cast<int>(packs < room ? packs : room);
}

template <typename A, int W, Mode kMode>
absl::Status LaunchLoss(const Exec& exec, int64_t count, LossArgs<A> args) {
  args.kept = kMode == Mode::kLoss ? 0 : KeptPacks<A, W>(exec, args.padded);
  const size_t shared = static_cast<size_t>(args.kept) * sizeof(Pack<A, W>);
  HEARTH_CUDA_RETURN_IF_ERROR(cudaFuncSetAttribute(LossKernel<A, W, kMode>,
                                                   cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                   static_cast<int>(shared)));
  const int64_t wanted = CeilDiv(CeilDiv(args.padded, W), 32) * 32;
  const int threads = static_cast<int>(wanted < kThreads ? wanted : kThreads);
  LossKernel<A, W, kMode><<<static_cast<unsigned>(count), threads, shared, StreamOf(exec)>>>(args);
  return HEARTH_CUDA_LAUNCHED(kOp);
}

template <typename A>
absl::Status Losses(const Exec& exec, int64_t count, const LossArgs<A>& args, Mode mode) {
  constexpr int kWidth = kPackWidth<A>;
  const bool vectors = args.padded % kWidth == 0;
  switch (mode) {
    case Mode::kQuantised:
      return LaunchLoss<A, kWidth, Mode::kQuantised>(exec, count, args);
    case Mode::kGradient:
      return vectors ? LaunchLoss<A, kWidth, Mode::kGradient>(exec, count, args)
                     : LaunchLoss<A, 1, Mode::kGradient>(exec, count, args);
    case Mode::kLoss:
      return vectors ? LaunchLoss<A, kWidth, Mode::kLoss>(exec, count, args)
                     : LaunchLoss<A, 1, Mode::kLoss>(exec, count, args);
  }
  return absl::OkStatus();
}

// One call of the op: pointers into the workspace, and the products over a chunk's tokens.
class Head {
 public:
  Head(const Exec& exec, const LinearCrossEntropyArgs& args)
      : exec_(exec),
        args_(args),
        layout_(HeadLayoutOf(args)),
        dtype_(args.hidden.dtype),
        tokens_(args.hidden.rows()),
        channels_(args.hidden.cols()),
        gemm_exec_(exec) {
    gemm_exec_.workspace = {At(layout_.gemm), kGemmWorkspaceBytes};
  }

  template <typename A>
  absl::Status Run() {
    for (int64_t begin = 0; begin < tokens_; begin += layout_.chunk) {
      const int64_t rest = tokens_ - begin;
      HEARTH_RETURN_IF_ERROR(Chunk<A>(begin, rest < layout_.chunk ? rest : layout_.chunk));
    }
    SumLosses<<<1, kSumThreads, 0, StreamOf(exec_)>>>(static_cast<const double*>(At(layout_.nll)),
                                                      args_.loss_weight.as<float>(), tokens_,
                                                      args_.loss_sum, args_.weight_sum);
    return HEARTH_CUDA_LAUNCHED(kOp);
  }

 private:
  void* At(size_t offset) const {
    return static_cast<unsigned char*>(exec_.workspace.data) + offset;
  }
  // Rows [begin, begin + count) of a contiguous matrix with `channels_` columns.
  TensorView RowsOf(const TensorView& matrix, int64_t begin, int64_t count) const {
    return TensorView(static_cast<void*>(matrix.as<unsigned char>() +
                                         DTypeBytes(matrix.dtype, begin * channels_)),
                      matrix.dtype, {count, channels_});
  }
  bool quantised() const { return !args_.quant.empty(); }
  bool gradient() const { return !args_.d_hidden.empty() || !args_.d_weight.empty(); }

  template <typename A>
  absl::Status Chunk(int64_t begin, int64_t count) {
    HEARTH_RETURN_IF_ERROR(Logits(begin, count));
    const float d_loss = static_cast<float>(args_.d_loss);
    LossArgs<A> loss;
    loss.logits = static_cast<A*>(At(layout_.logits));
    loss.padded = layout_.padded;
    loss.vocab = static_cast<int>(args_.vocab);
    loss.kept = 0;
    loss.targets = args_.targets.as<int32_t>() + begin;
    loss.loss_weight = args_.loss_weight.as<float>() + begin;
    loss.d_loss = d_loss;
    loss.nll = static_cast<double*>(At(layout_.nll)) + begin;
    loss.nll_out = args_.nll.empty() ? nullptr : args_.nll.as<float>() + begin;
    loss.rows = static_cast<uint8_t*>(At(layout_.rows));
    loss.scale = kE5m2Max / d_loss;
    loss.unscale = static_cast<float*>(At(layout_.unscale));
    loss.unscale_value = d_loss / kE5m2Max;
    const Mode mode =
        !gradient() ? Mode::kLoss : (quantised() ? Mode::kQuantised : Mode::kGradient);
    HEARTH_RETURN_IF_ERROR(Losses<A>(exec_, count, loss, mode));
    // d_weight first: d_hidden may be the same memory as hidden.
    if (!args_.d_weight.empty()) {
      HEARTH_RETURN_IF_ERROR(quantised() ? QuantisedWeightGradient(begin, count)
                                         : WeightGradient(begin, count));
    }
    return args_.d_hidden.empty() ? absl::OkStatus() : HiddenGradient(begin, count);
  }

  absl::Status Logits(int64_t begin, int64_t count) {
    GemmArgs gemm;
    gemm.transpose_b = true;
    gemm.c = TensorView(At(layout_.logits), dtype_, {count, layout_.padded});
    if (quantised()) {
      gemm.a = RowsOf(args_.quant.hidden_rows, begin, count);
      gemm.b = args_.quant.weight_rows;
      gemm.scale_a = args_.quant.hidden_scale;
      gemm.scale_b = args_.quant.weight_scale;
      gemm.fast_accumulation = true;
    } else {
      gemm.a = RowsOf(args_.hidden, begin, count);
      gemm.b = args_.weight;
    }
    return kernels::Gemm(gemm_exec_, gemm);
  }

  double WeightBeta(int64_t begin) const { return args_.accumulate || begin > 0 ? 1.0 : 0.0; }

  absl::Status WeightGradient(int64_t begin, int64_t count) {
    GemmArgs gemm;
    gemm.a = TensorView(At(layout_.logits), dtype_, {count, layout_.padded});
    gemm.transpose_a = true;
    gemm.b = RowsOf(args_.hidden, begin, count);
    gemm.c = args_.d_weight;
    gemm.beta = WeightBeta(begin);
    return kernels::Gemm(gemm_exec_, gemm);
  }

  absl::Status QuantisedWeightGradient(int64_t begin, int64_t count) {
    const int64_t padded = layout_.padded;
    const dim3 grid(static_cast<unsigned>(CeilDiv(padded, kTile)),
                    static_cast<unsigned>(CeilDiv(count, kTile)));
    TransposeBytes<<<grid, kTransposeThreads, 0, StreamOf(exec_)>>>(
        static_cast<const uint8_t*>(At(layout_.rows)), static_cast<uint8_t*>(At(layout_.columns)),
        count, padded);
    HEARTH_RETURN_IF_ERROR(HEARTH_CUDA_LAUNCHED(kOp));
    const TensorView& hidden = args_.quant.hidden_columns;
    GemmArgs gemm;
    gemm.a = TensorView(At(layout_.columns), DType::kE5M2, {padded, count});
    gemm.b = TensorView(static_cast<void*>(hidden.as<uint8_t>() + begin), hidden.dtype,
                        {channels_, count});
    gemm.ldb = tokens_;
    gemm.transpose_b = true;
    gemm.scale_a = static_cast<const float*>(At(layout_.unscale));
    gemm.scale_b = args_.quant.hidden_scale;
    gemm.c = args_.d_weight;
    gemm.beta = WeightBeta(begin);
    return kernels::Gemm(gemm_exec_, gemm);
  }

  absl::Status HiddenGradient(int64_t begin, int64_t count) {
    GemmArgs gemm;
    gemm.c = RowsOf(args_.d_hidden, begin, count);
    if (quantised()) {
      gemm.a = TensorView(At(layout_.rows), DType::kE5M2, {count, layout_.padded});
      gemm.b = args_.quant.weight_columns;
      gemm.transpose_b = true;
      gemm.scale_a = static_cast<const float*>(At(layout_.unscale));
      gemm.scale_b = args_.quant.weight_scale;
    } else {
      gemm.a = TensorView(At(layout_.logits), dtype_, {count, layout_.padded});
      gemm.b = args_.weight;
    }
    return kernels::Gemm(gemm_exec_, gemm);
  }

  const Exec& exec_;
  const LinearCrossEntropyArgs& args_;
  const HeadLayout layout_;
  const DType dtype_;
  const int64_t tokens_;
  const int64_t channels_;
  Exec gemm_exec_;
};

}  // namespace

absl::Status LinearCrossEntropy(const Exec& exec, const LinearCrossEntropyArgs& args) {
  Head head(exec, args);
  return args.hidden.dtype == DType::kBF16 ? head.Run<Bf16>() : head.Run<float>();
}

}  // namespace hearth::kernels::cuda
