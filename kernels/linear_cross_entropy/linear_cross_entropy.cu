#include <algorithm>

#include "common/base/status_macros.h"
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/context.h"
#include "kernels/cuda/util.cuh"
#include "kernels/gemm/gemm.h"
#include "kernels/linear_cross_entropy/cuda_layout.h"
#include "kernels/linear_cross_entropy/linear_cross_entropy.h"
#include "kernels/linear_cross_entropy/loss.cuh"

namespace hearth::kernels::cuda {
namespace {

constexpr char kOp[] = "linear_cross_entropy";
constexpr int kSumThreads = 1024;

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

// A thread's part of a loss's two sums.
struct LossSums {
  double loss = 0.0;
  double weights = 0.0;

  __device__ void Add(double weight, double nll) {
    loss += weight * nll;
    weights += weight;
  }
  // The block's sums are added; all of its threads call this.
  __device__ void AddTo(double* loss_sum, double* weight_sum) {
    __shared__ double scratch[32];
    loss = BlockSum(loss, scratch);
    weights = BlockSum(weights, scratch);
    if (threadIdx.x == 0) {
      *loss_sum += loss;
      *weight_sum += weights;
    }
  }
};

// *loss_sum += sum of w * nll, *weight_sum += sum of w; one block, so that the order is fixed.
__global__ void __launch_bounds__(kSumThreads) SumLosses(const double* nll,
                                                         const float* loss_weight,
                                                         int64_t tokens,
                                                         double* loss_sum,
                                                         double* weight_sum) {
  LossSums sums;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < tokens; i += kSumThreads) {
    sums.Add(loss_weight[i], nll[i]);
  }
  sums.AddTo(loss_sum, weight_sum);
}

// sums[2 s], sums[2 s + 1] += the same two of the samples from source s, a block each: no two
// blocks write one number, so the order is fixed. A sample has `length` tokens.
__global__ void __launch_bounds__(kSumThreads) SumSources(const double* nll,
                                                          const float* loss_weight,
                                                          const int32_t* source,
                                                          int64_t samples,
                                                          int64_t length,
                                                          double* sums) {
  LossSums of_source;
  for (int64_t s = 0; s < samples; ++s) {
    if (source[s] != static_cast<int32_t>(blockIdx.x)) {
      continue;
    }
#pragma unroll 2
    for (int64_t i = s * length + threadIdx.x; i < (s + 1) * length; i += kSumThreads) {
      of_source.Add(loss_weight[i], nll[i]);
    }
  }
  of_source.AddTo(&sums[2 * blockIdx.x], &sums[2 * blockIdx.x + 1]);
}

constexpr int kTopThreads = 256;

// LinearCrossEntropyArgs::top of a chunk's tokens, a block each. Its own pass over the logits: the
// loss of training does without it.
template <typename A>
__global__ void __launch_bounds__(kTopThreads) FindTop(const LossArgs<A> args, int32_t* top) {
  const int64_t row = blockIdx.x;
  const int target = args.targets[row];
  const A* x = args.logits + row * args.padded;
  bool beaten = args.loss_weight[row] == 0.0F || target < 0 || target >= args.vocab;
  if (!beaten) {
    const float own = ToFloat(x[target]);
    for (int i = threadIdx.x; i < args.vocab && !beaten; i += kTopThreads) {
      const float other = ToFloat(x[i]);
      // Also true where a logit is NaN.
      beaten = !(other < own) && !(other == own && i >= target);
    }
  }
  const int any = __syncthreads_or(beaten ? 1 : 0);
  if (threadIdx.x == 0) {
    top[row] = any != 0 ? 0 : 1;
  }
}

// How a row's packs are shared out: over as many blocks as it takes to have two of them on each
// multiprocessor, one of which reads while the other computes. Copies to shared memory are of 16
// bytes.
template <typename A, int W>
void ShareRow(const Exec& exec, bool clusters, LossArgs<A>& args) {
  const int64_t packs = args.padded / W;
  args.ranks = 1;
  args.share = static_cast<int>(packs);
  if (W == 1) {
    return;
  }
  // A block's own variables and what the system takes of it.
  const int64_t reserved = 2048;
  const int64_t room = exec.cuda->gpu().shared_memory_bytes;
  const auto fit = [](int64_t bytes) {
    return static_cast<int>(bytes / static_cast<int64_t>(sizeof(Pack<A, W>)));
  };
  while (clusters && args.ranks < kLossRanks && args.share > fit(room / 2 - reserved)) {
    args.ranks *= 2;
    args.share = static_cast<int>(CeilDiv(packs, args.ranks));
  }
  args.kept = std::min(args.share, fit(room - reserved));
}

template <typename A, int W, Mode kMode>
absl::Status LaunchLoss(const Exec& exec, int64_t count, LossArgs<A> args) {
  const auto kernel = LossKernel<A, W, kMode>;
  HEARTH_ASSIGN_OR_RETURN(const bool clusters, MadeForHopper(kernel));
  ShareRow<A, W>(exec, kMode != Mode::kLoss && clusters, args);
  if constexpr (kMode == Mode::kLoss) {
    args.kept = 0;  // each row is read once
  }
  const size_t shared = static_cast<size_t>(args.kept) * sizeof(Pack<A, W>);
  HEARTH_CUDA_RETURN_IF_ERROR(cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)));
  // A row with few packs gets fewer threads. Clusters go on to further rows, so no more are
  // launched than run at once.
  const int64_t wanted = CeilDiv(args.share, 32) * 32;
  const int threads = static_cast<int>(wanted < kLossThreads ? wanted : kLossThreads);
  cudaLaunchAttribute cluster = {};
  cudaLaunchConfig_t config = ClusterLaunch(exec, args.ranks, threads, shared, cluster);
  HEARTH_ASSIGN_OR_RETURN(const int64_t most, ClustersAtOnce(exec, kernel, config, args.ranks));
  config.gridDim = dim3(static_cast<unsigned>(std::min(count, most) * args.ranks));
  HEARTH_CUDA_RETURN_IF_ERROR(cudaLaunchKernelEx(&config, kernel, args));
  return HEARTH_CUDA_LAUNCHED(kOp);
}

template <typename A>
absl::Status Losses(const Exec& exec, int64_t count, const LossArgs<A>& args, Mode mode) {
  constexpr int kWidth = kPackWidth<A>;
  const bool vectors = args.padded % kWidth == 0;
  switch (mode) {
    case Mode::kE4m3:
      return LaunchLoss<A, kWidth, Mode::kE4m3>(exec, count, args);
    case Mode::kE5m2:
      return LaunchLoss<A, kWidth, Mode::kE5m2>(exec, count, args);
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
    HEARTH_RETURN_IF_ERROR(HEARTH_CUDA_LAUNCHED(kOp));
    if (args_.source.empty()) {
      return absl::OkStatus();
    }
    const int64_t samples = args_.source.numel();
    SumSources<<<static_cast<unsigned>(args_.sources), kSumThreads, 0, StreamOf(exec_)>>>(
        static_cast<const double*>(At(layout_.nll)), args_.loss_weight.as<float>(),
        args_.source.as<int32_t>(), samples, tokens_ / samples, args_.source_sums);
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

  Mode LossMode() const {
    if (!gradient()) {
      return Mode::kLoss;
    }
    if (!quantised()) {
      return Mode::kGradient;
    }
    return args_.quant.d_logits == DType::kE4M3 ? Mode::kE4m3 : Mode::kE5m2;
  }

  template <typename A>
  absl::Status Chunk(int64_t begin, int64_t count) {
    HEARTH_RETURN_IF_ERROR(Logits(begin, count));
    const float d_loss = static_cast<float>(args_.d_loss);
    LossArgs<A> loss;
    loss.logits = static_cast<A*>(At(layout_.logits));
    loss.count = count;
    loss.padded = layout_.padded;
    loss.vocab = static_cast<int>(args_.vocab);
    loss.targets = args_.targets.as<int32_t>() + begin;
    loss.loss_weight = args_.loss_weight.as<float>() + begin;
    loss.d_loss = d_loss;
    loss.nll = static_cast<double*>(At(layout_.nll)) + begin;
    loss.nll_out = args_.nll.empty() ? nullptr : args_.nll.as<float>() + begin;
    loss.rows = static_cast<uint8_t*>(At(layout_.rows));
    // softmax - onehot lies within [-1, 1], so the scale follows from d_loss: no pass over the
    // values has to measure them.
    const float largest = MaxFinite(args_.quant.d_logits);
    loss.scale = largest / d_loss;
    loss.unscale = static_cast<float*>(At(layout_.unscale));
    loss.unscale_value = d_loss / largest;
    HEARTH_RETURN_IF_ERROR(Losses<A>(exec_, count, loss, LossMode()));
    if (!args_.top.empty()) {
      FindTop<A><<<static_cast<unsigned>(count), kTopThreads, 0, StreamOf(exec_)>>>(
          loss, args_.top.as<int32_t>() + begin);
      HEARTH_RETURN_IF_ERROR(HEARTH_CUDA_LAUNCHED(kOp));
    }
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
      // Forward alone: on Hopper the sums of fast FP8 products keep 13 bits behind the point, too
      // few for gradients.
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
    gemm.a = TensorView(At(layout_.columns), args_.quant.d_logits, {padded, count});
    gemm.b = TensorView(static_cast<void*>(hidden.as<uint8_t>() + begin), hidden.dtype,
                        {channels_, count});
    // The columns of all tokens lie in one matrix; the chunk's are a stretch of each line.
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
      gemm.a = TensorView(At(layout_.rows), args_.quant.d_logits, {count, layout_.padded});
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
