// Which products run as thin ones, and their launches.
#include "common/base/status_macros.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/tensor_map.h"
#include "kernels/thin_gemm/thin_gemm.h"
#include "kernels/thin_gemm/thin_groups.cuh"
#include "kernels/thin_gemm/thin_warps.cuh"

namespace hearth::kernels::cuda {
namespace {

constexpr char kOp[] = "thin_gemm";
// On an H200 with 64 texts a norm of rows of 768 values is 5 % faster apart (hearth-112m: 180,400
// against 172,400 tok/s), and one of 896 values 7 % faster in the product (Qwen2.5-0.5B: 73,200
// against 68,600).
constexpr int64_t kLeastNormedDepth = 896;

// `rows` of the matrix in a box, as deep as a stage.
absl::Status Map(const TensorView& view, int rows, CUtensorMap& map) {
  return MakeTensorMap(MatrixBoxes(view.data, 2, view.rows(), view.cols(), view.cols(),
                                   static_cast<uint32_t>(rows), kThinDepth),
                       map);
}

using ThinKernel = void (*)(thin::Maps, thin::Params);

// The kernels of a tile: without SwiGLU and with it, without a norm of x and with it.
struct KernelRow {
  ThinTile tile;
  ThinKernel kernels[2][2];  // [SwiGLU][norm]
};

template <int kTokens, int kRows>
constexpr KernelRow Warps() {
  return {{kTokens, kRows},
          {{thin::WarpsKernel<kTokens, kRows, false, false>,
            thin::WarpsKernel<kTokens, kRows, false, true>},
           {thin::WarpsKernel<kTokens, kRows, true, false>,
            thin::WarpsKernel<kTokens, kRows, true, true>}}};
}
template <int kRows>
constexpr KernelRow Groups() {
  KernelRow row = {
      {kThinGroupTokens, kRows, true},
      {{thin::GroupsKernel<kRows, false, false>, thin::GroupsKernel<kRows, false, true>},
       {nullptr, nullptr}}};
  if constexpr (kRows % 16 == 0) {
    row.kernels[1][0] = thin::GroupsKernel<kRows, true, false>;
    row.kernels[1][1] = thin::GroupsKernel<kRows, true, true>;
  }
  return row;
}

constexpr KernelRow kKernels[] = {
    Warps<16, 64>(), Warps<32, 64>(), Warps<32, 128>(), Warps<64, 64>(), Warps<64, 128>(),
    Groups<32>(),    Groups<40>(),    Groups<64>(),     Groups<80>(),
};

absl::Status Launch(const Exec& exec,
                    const ThinGemmArgs& args,
                    const ThinTiling& tiling,
                    ThinKernel kernel) {
  // Gate and up lie apart; thin_warps.cuh reads two halves of a block's rows in any case.
  const bool halves = args.swiglu || !tiling.tile.groups;
  const int rows = halves ? tiling.tile.rows / 2 : tiling.tile.rows;
  thin::Maps maps;
  HEARTH_RETURN_IF_ERROR(Map(args.w, rows, maps.w));
  HEARTH_RETURN_IF_ERROR(Map(args.x, tiling.tile.tokens, maps.x));
  thin::Params p;
  p.bias = args.bias.as<Bf16>();
  p.addend = args.addend.as<Bf16>();
  p.norm_weight = args.input_norm.weight.as<Bf16>();
  p.norm_eps = static_cast<float>(args.input_norm.eps);
  p.y = args.y.as<Bf16>();
  p.gate_up = args.gate_up.as<Bf16>();
  p.tokens = static_cast<int32_t>(args.x.rows());
  p.width = static_cast<int32_t>(args.y.cols());
  p.depth = static_cast<int32_t>(args.x.cols());
  p.slices = static_cast<int32_t>(tiling.slices);
  p.splits = tiling.splits;
  p.stages = tiling.stages;
  p.half_stride = args.swiglu ? p.width : rows;
  const int shared = tiling.shared_bytes();
  HEARTH_CUDA_RETURN_IF_ERROR(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  // With less, fewer blocks run at once. A multiprocessor that must divide its memory differently
  // becomes idle first, so that no block could begin early.
  HEARTH_CUDA_RETURN_IF_ERROR(cudaFuncSetAttribute(
      kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared));
  const cudaLaunchAttribute cluster = ClusterAttribute(tiling.splits);
  TurnShape shape;
  shape.grid = dim3(static_cast<unsigned>(tiling.blocks()));
  shape.threads = static_cast<unsigned>(tiling.tile.threads());
  shape.shared = static_cast<size_t>(shared);
  shape.attribute = tiling.splits > 1 ? &cluster : nullptr;
  return LaunchInTurn(exec, kOp, kernel, shape, maps, p);
}

// Whether the program has code for clusters and TMA for the GPU: code for an older one has none.
bool Built() {
  static const bool built = [] {
    const absl::StatusOr<bool> made = MadeForHopper(thin::WarpsKernel<16, 64, false, false>);
    return made.ok() && *made;
  }();
  return built;
}

// Whether it holds the kernels of groups and not what other architectures than sm_90a get: empty
// ones, which need next to no registers.
bool GroupsBuilt() {
  static const bool built = [] {
    cudaFuncAttributes attributes = {};
    return cudaFuncGetAttributes(&attributes, thin::GroupsKernel<32, false, false>) ==
               cudaSuccess &&
           attributes.numRegs > 32;
  }();
  return built;
}

// What a view must be for copies of 16 bytes.
bool Suits(const TensorView& view) {
  return view.empty() || (view.dtype == DType::kBF16 && Aligned16(view.data));
}

// How the GPU runs `args`, if it can.
std::optional<ThinTiling> TilingOf(const Exec& exec, const ThinGemmArgs& args) {
  const GpuProperties& gpu = exec.cuda->gpu();
  if (gpu.major < 9 || !Built() || !Suits(args.x) || !Suits(args.w) || !Suits(args.bias) ||
      !Suits(args.y) || !Suits(args.gate_up) || !Suits(args.addend) ||
      !Suits(args.input_norm.weight)) {
    return std::nullopt;
  }
  // wgmma is of compute capability 9.0 alone.
  const bool groups =
      gpu.major == 9 && gpu.minor == 0 && !args.warps && !ThinGemmAsked("warps") && GroupsBuilt();
  return TileThinGemm(
      {args.x.rows(), args.y.cols(), args.x.cols(), args.swiglu, !args.input_norm.weight.empty()},
      {gpu.multiprocessors, gpu.shared_memory_bytes, groups}, args.tile_rows, args.splits);
}

// Whether it is x wT, with a bias and an addend or without, and nothing more.
bool IsPlain(const GemmArgs& args) {
  const GemmExtents e = ExtentsOf(args);
  return args.transpose_b && !args.transpose_a && args.a.dtype == DType::kBF16 &&
         args.b.dtype == DType::kBF16 && args.c.dtype == DType::kBF16 && args.alpha == 1.0 &&
         (args.beta == 0.0 || args.beta == 1.0) && args.scalars == nullptr && args.batch == 1 &&
         e.lda == e.k && e.ldb == e.k && e.ldc == e.n;
}

ThinGemmArgs ProductOf(const GemmArgs& product) {
  ThinGemmArgs args;
  args.x = product.a;
  args.w = product.b;
  args.input_norm = product.input_norm;
  args.bias = product.bias;
  if (product.beta != 0.0) {
    args.addend = product.addend.empty() ? product.c : product.addend;
  }
  args.y = product.c;
  args.round = product.round_c;
  return args;
}

std::optional<ThinGemmArgs> IfItRuns(const Exec& exec, const ThinGemmArgs& args) {
  return TilingOf(exec, args).has_value() ? std::optional<ThinGemmArgs>(args) : std::nullopt;
}

}  // namespace

std::optional<ThinGemmArgs> ThinFormOf(const Exec& exec, const GemmArgs& args) {
  return exec.thin_products && IsPlain(args) ? IfItRuns(exec, ProductOf(args)) : std::nullopt;
}

std::optional<ThinGemmArgs> ThinFormOf(const Exec& exec, const GatedGemmForwardArgs& args) {
  const SwigluForwardArgs& activation = args.activation;
  if (!exec.thin_products || !IsPlain(args.product) || !args.product.bias.empty() ||
      args.product.beta != 0.0 || activation.has_forms()) {
    return std::nullopt;
  }
  ThinGemmArgs thin = ProductOf(args.product);
  thin.gate_up = args.gate_up_read ? args.product.c : TensorView();
  thin.y = activation.y;
  thin.swiglu = true;
  return IfItRuns(exec, thin);
}

bool GainsByInputNorm(const Exec& exec, const GemmArgs& args) {
  const std::optional<ThinGemmArgs> thin = ThinFormOf(exec, args);
  if (!thin.has_value() || ThinGemmAsked("apart")) {
    return false;
  }
  // Warps read x again for each 64 or 128 rows of w. With few rows of x that costs little.
  const bool cheap = TilingOf(exec, *thin)->tile.groups || thin->x.rows() <= kThinGroupTokens / 2;
  return ThinGemmAsked("always") || (cheap && thin->x.cols() >= kLeastNormedDepth);
}

absl::Status ThinGemm(const Exec& exec, const ThinGemmArgs& args) {
  const std::optional<ThinTiling> tiling = TilingOf(exec, args);
  if (!tiling.has_value()) {
    return absl::UnimplementedError(
        "thin_gemm: bf16 on a GPU of compute capability 9.0 or later, at most 64 rows of x, widths "
        "that are multiples of 8, and blocks that all run at once");
  }
  for (const KernelRow& row : kKernels) {
    if (row.tile == tiling->tile) {
      return Launch(exec, args, *tiling,
                    row.kernels[args.swiglu ? 1 : 0][args.input_norm.weight.empty() ? 0 : 1]);
    }
  }
  return absl::InternalError("thin_gemm: a tile without a kernel");
}

}  // namespace hearth::kernels::cuda
