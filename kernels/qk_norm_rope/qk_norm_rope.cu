#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/cuda/context.h"
#include "kernels/qk_norm_rope/backward.cuh"
#include "kernels/qk_norm_rope/partition.h"
#include "kernels/qk_norm_rope/rotation.cuh"
#include "kernels/qk_norm_rope/tile.cuh"

namespace hearth::kernels::cuda {

absl::Status RequireRopeShape(const QkHeads& dims) {
  if (dims.head_dim > kMaxHeadDim) {
    return absl::UnimplementedError(
        absl::StrCat("qk_norm_rope: head_dim ", dims.head_dim, " on a GPU, at most ", kMaxHeadDim));
  }
  return absl::OkStatus();
}

namespace {

constexpr char kOp[] = "qk_norm_rope";
constexpr int kAnyThreads = 128;

// Any head size and alignment: a warp per row and head. Pairs are (i, i + lo); of an odd head,
// which is never rotated, the last pair lacks its second element.
template <typename A>
__global__ void __launch_bounds__(kAnyThreads)
    ForwardAnyKernel(RopeParams<A> p, const __grid_constant__ Rotation rotation) {
  const int lane = threadIdx.x % 32;
  const int64_t task = static_cast<int64_t>(blockIdx.x) * (kAnyThreads / 32) + threadIdx.x / 32;
  const int64_t row = task / p.total;
  const int head = static_cast<int>(task % p.total);
  if (row >= p.rows) {
    return;
  }
  const int lo = (p.dim + 1) / 2;
  const A* from = p.in + row * p.width + head * p.dim;
  A* to = p.out + row * p.width + head * p.dim;
  const bool norm = p.q_weight != nullptr && head < p.rotated;
  const A* weight = head < p.heads ? p.q_weight : p.k_weight;
  // The statistics first: the norm of a head needs all of it before its first pair is turned.
  float rstd = 1.0F;
  if (norm) {
    float sum = 0.0F;
    for (int i = lane; i < p.dim; i += 32) {
      const float x = ToFloat(from[i]);
      sum += x * x;
    }
    rstd = 1.0F / sqrtf(WarpSum(sum) / static_cast<float>(p.dim) + p.eps);
    if (lane == 0) {
      p.rstd[row * p.rotated + head] = rstd;
    }
  }
  for (int i = lane; i < lo; i += 32) {
    const bool paired = i + lo < p.dim;
    float a = ToFloat(from[i]);
    float b = paired ? ToFloat(from[i + lo]) : 0.0F;
    if (norm) {
      a = a * rstd * ToFloat(weight[i]);
      b = paired ? b * rstd * ToFloat(weight[i + lo]) : 0.0F;
    }
    if (rotation.enabled && head < p.rotated) {
      float c;
      float s;
      CosSin<A>(rotation.turns[i], rotation.positions[row], c, s);
      RotatePair(c, s, a, b);
    }
    to[i] = FromFloat<A>(a);
    if (paired) {
      to[i + lo] = FromFloat<A>(b);
    }
  }
}

// Rows of a block: a whole tile, or fewer where there are so few that multiprocessors would have
// nothing to do (generated tokens). Rows do not depend on one another. Bytes by columns want tiles.
template <typename A>
int BlockRows(const Exec& exec, const RopeParams<A>& p, int64_t groups) {
  int rows = kRopeRows<A>;
  while (rows > kRopeThreads / kRopeRowThreads && p.quant.columns == nullptr &&
         CeilDiv(p.rows, rows) * groups < exec.cuda->gpu().multiprocessors) {
    rows /= 2;
  }
  return rows;
}

template <typename A, bool kNorm, bool kQuant>
absl::Status LaunchTiles(const Exec& exec, RopeParams<A> p, const Rotation& rotation) {
  const auto kernel = RopeTileKernel<A, kNorm, kQuant>;
  const int lanes = GroupLanes(p.dim);
  const int slots = kRopeRowThreads / lanes;
  const bool tiled = p.quant.columns != nullptr && p.rows % 16 == 0 && Aligned16(p.quant.columns);
  const size_t shared = RopeTileBytes<A>(p.dim, slots * p.dim, tiled);
  if (shared > 48 * 1024) {
    HEARTH_CUDA_RETURN_IF_ERROR(cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)));
  }
  const int64_t groups = CeilDiv(p.total, slots);
  p.block_rows = BlockRows(exec, p, groups);
  const auto blocks = static_cast<unsigned>(CeilDiv(p.rows, p.block_rows) * groups);
  return LaunchInTurn(exec, kOp, kernel, {dim3(blocks), kRopeThreads, shared}, p, rotation,
                      __builtin_ctz(lanes), static_cast<uint32_t>(groups), tiled);
}

template <typename A>
absl::Status Forward(const Exec& exec, const QkNormRopeForwardArgs& args) {
  const QkHeads& dims = args.dims;
  const bool norm = !args.q_weight.empty();
  const bool in_place = args.out.data == args.qkv.data;
  RopeParams<A> p = {};
  p.in = args.qkv.as<A>();
  p.out = args.out.as<A>();
  p.q_weight = args.q_weight.as<A>();
  p.k_weight = args.k_weight.as<A>();
  p.rstd = args.rstd.as<float>();
  p.sign = 1.0F;
  p.rows = args.qkv.rows();
  p.width = args.qkv.cols();
  p.heads = static_cast<int>(dims.heads);
  p.rotated = static_cast<int>(dims.heads + dims.kv_heads);
  p.total = p.rotated + (in_place ? 0 : static_cast<int>(dims.kv_heads));
  p.dim = static_cast<int>(dims.head_dim);
  p.eps = static_cast<float>(args.eps);
  if (p.rows == 0 || (in_place && !norm && !args.rope.enabled)) {
    return absl::OkStatus();
  }
  const Rotation rotation = RotationOf(args.rope, dims, args.positions);
  const bool vectors = p.dim % 16 == 0 && Aligned16(p.in) && Aligned16(p.out) &&
                       Aligned16(p.q_weight) && Aligned16(p.k_weight);
  if (!vectors) {
    const auto blocks = static_cast<unsigned>(CeilDiv(p.rows * p.total, kAnyThreads / 32));
    ForwardAnyKernel<A><<<blocks, kAnyThreads, 0, StreamOf(exec)>>>(p, rotation);
    return HEARTH_CUDA_LAUNCHED(kOp);
  }
  return norm ? LaunchTiles<A, true, false>(exec, p, rotation)
              : LaunchTiles<A, false, false>(exec, p, rotation);
}

template <typename A>
RopeBackwardParams<A> ParamsOf(const Exec& exec, const QkNormRopeBackwardArgs& args) {
  RopeBackwardParams<A> p;
  p.d_out = args.d_out.as<A>();
  p.qkv = args.qkv.as<A>();
  p.q_weight = args.q_weight.as<A>();
  p.k_weight = args.k_weight.as<A>();
  p.rstd = args.rstd.as<float>();
  p.d_qkv = args.d_qkv.as<A>();
  p.quant = args.d_qkv_quant;
  p.partial = static_cast<float*>(exec.workspace.data);
  p.rows = args.d_out.rows();
  p.width = args.d_out.cols();
  p.heads = static_cast<int>(args.dims.heads);
  p.rotated = static_cast<int>(args.dims.heads + args.dims.kv_heads);
  // In place, the value heads are what they should be.
  const bool values = p.d_qkv != p.d_out || !p.quant.empty() || !args.d_qkv_blocks.empty();
  p.total = p.rotated + (values ? static_cast<int>(args.dims.kv_heads) : 0);
  p.dim = static_cast<int>(args.dims.head_dim);
  return p;
}

template <typename A>
bool AlignedBackward(const RopeBackwardParams<A>& p) {
  return p.dim % 16 == 0 && Aligned16(p.d_out) && Aligned16(p.qkv) && Aligned16(p.q_weight) &&
         Aligned16(p.k_weight) && Aligned16(p.d_qkv) && Aligned16(p.quant.rows);
}

template <typename A, bool kNorm>
absl::Status LaunchBackwardBlocks(const Exec& exec,
                                  const RopeBackwardParams<A>& p,
                                  const BlockQuantView& blocks,
                                  const Rotation& rotation) {
  if (!AlignedBackward(p) || kBlockTile % p.dim != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOp, ": block forms of heads of ", p.dim,
                     ", or of operands that are not aligned to 16 bytes"));
  }
  const auto launch = [&](auto kernel) -> absl::Status {
    const size_t sums = kNorm ? sizeof(float) * kRopeThreads / 32 * static_cast<size_t>(p.dim) : 0;
    const size_t shared = sizeof(BlockTile<A>) + sums;
    if (shared > 48 * 1024) {
      HEARTH_CUDA_RETURN_IF_ERROR(cudaFuncSetAttribute(
          kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)));
    }
    const dim3 grid(static_cast<unsigned>(CeilDiv(p.rows, kBlockTile)),
                    static_cast<unsigned>(CeilDiv(p.width, kBlockTile)));
    kernel<<<grid, kRopeThreads, shared, StreamOf(exec)>>>(p, blocks, rotation, GroupLanes(p.dim));
    return HEARTH_CUDA_LAUNCHED(kOp);
  };
  return VisitLayout(blocks.layout, [&](auto layout) {
    return launch(RopeBackwardBlocksKernel<A, kNorm, decltype(layout)::value>);
  });
}

template <typename A>
absl::Status LaunchBackward(const Exec& exec,
                            const RopeBackwardParams<A>& p,
                            const BlockQuantView& blocks,
                            const Rotation& rotation) {
  if constexpr (kHasForms<A>) {
    if (!blocks.empty()) {
      return p.q_weight != nullptr ? LaunchBackwardBlocks<A, true>(exec, p, blocks, rotation)
                                   : LaunchBackwardBlocks<A, false>(exec, p, blocks, rotation);
    }
  }
  const bool columns =
      kHasForms<A> && p.quant.columns != nullptr && p.rows % 16 == 0 && Aligned16(p.quant.columns);
  const bool vectors = AlignedBackward(p);
  const int64_t tiles = CeilDiv(p.rows, kRopeTileRows);
  if (!vectors) {
    const auto blocks = static_cast<unsigned>(CeilDiv(tiles * p.total, kRopeAnyThreads / 32));
    RopeBackwardAnyKernel<A><<<blocks, kRopeAnyThreads, 0, StreamOf(exec)>>>(p, rotation);
    return HEARTH_CUDA_LAUNCHED(kOp);
  }
  if (p.q_weight == nullptr) {
    // Without a norm, backward is forward with the angles reversed.
    RopeParams<A> turn = {};
    turn.in = p.d_out;
    turn.out = p.d_qkv;
    turn.quant = p.quant;
    turn.sign = -1.0F;
    turn.rows = p.rows;
    turn.width = p.width;
    turn.heads = p.heads;
    turn.rotated = p.rotated;
    turn.total = p.total;
    turn.dim = p.dim;
    if constexpr (kHasForms<A>) {
      if (!p.quant.empty()) {
        return LaunchTiles<A, false, true>(exec, turn, rotation);
      }
    }
    return LaunchTiles<A, false, false>(exec, turn, rotation);
  }
  const int tile_heads = std::max(1, 128 / p.dim);
  const dim3 grid(static_cast<unsigned>(tiles),
                  static_cast<unsigned>(CeilDiv(p.total, tile_heads)));
  const size_t tile_bytes =
      columns ? sizeof(uint32_t) * QuantTile<kRopeTileRows>::Words(tile_heads * p.dim) : 0;
  const size_t sum_bytes = sizeof(float) * kRopeThreads / 32 * p.dim;
  auto kernel = RopeNormBackwardKernel<A, false>;
  if constexpr (kHasForms<A>) {
    kernel = columns ? RopeNormBackwardKernel<A, true> : kernel;
  }
  kernel<<<grid, kRopeThreads, tile_bytes + sum_bytes, StreamOf(exec)>>>(
      p, rotation, GroupLanes(p.dim), tile_heads);
  return HEARTH_CUDA_LAUNCHED(kOp);
}

template <typename A>
absl::Status Backward(const Exec& exec, const QkNormRopeBackwardArgs& args) {
  const RopeBackwardParams<A> p = ParamsOf<A>(exec, args);
  const bool norm = p.q_weight != nullptr;
  if (p.rows == 0 || (p.d_qkv == p.d_out && !norm && !args.rope.enabled && p.quant.empty() &&
                      args.d_qkv_blocks.empty())) {
    return absl::OkStatus();
  }
  HEARTH_RETURN_IF_ERROR(
      LaunchBackward(exec, p, args.d_qkv_blocks, RotationOf(args.rope, args.dims, args.positions)));
  if (!norm) {
    return absl::OkStatus();
  }
  const dim3 grid(static_cast<unsigned>(CeilDiv(p.dim, 32)), 2);
  RopeWeightKernel<<<grid, dim3(32, 32), 0, StreamOf(exec)>>>(
      p.partial, static_cast<int>(CeilDiv(p.rows, kRopeTileRows)), p.heads, p.rotated, p.dim,
      args.d_q_weight.data, args.d_k_weight.data, args.d_q_weight.dtype == DType::kBF16);
  return HEARTH_CUDA_LAUNCHED(kOp);
}

}  // namespace

absl::Status QkNormRopeForward(const Exec& exec, const QkNormRopeForwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireRopeShape(args.dims));
  return args.qkv.dtype == DType::kBF16 ? Forward<Bf16>(exec, args) : Forward<float>(exec, args);
}

absl::Status QkNormRopeBackward(const Exec& exec, const QkNormRopeBackwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireRopeShape(args.dims));
  return args.d_out.dtype == DType::kBF16 ? Backward<Bf16>(exec, args)
                                          : Backward<float>(exec, args);
}

}  // namespace hearth::kernels::cuda
