// Which products run as thin ones, and their launches.
#include "common/base/status_macros.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/tensor_map.h"
#include "kernels/thin_gemm/thin_gemm.cuh"
#include "kernels/thin_gemm/thin_gemm.h"

namespace hearth::kernels::cuda {
namespace {

constexpr char kOp[] = "thin_gemm";

// `rows` of the matrix in a box, as deep as a stage.
absl::Status Map(const TensorView& view, int rows, CUtensorMap& map) {
  return MakeTensorMap(MatrixBoxes(view.data, 2, view.rows(), view.cols(), view.cols(),
                                   static_cast<uint32_t>(rows), kThinDepth),
                       map);
}

template <int kTokens, int kRows, bool kSwiglu>
absl::Status Launch(const Exec& exec, const ThinGemmArgs& args, const ThinTiling& tiling) {
  thin::Maps maps;
  HEARTH_RETURN_IF_ERROR(Map(args.w, kRows / 2, maps.w));
  HEARTH_RETURN_IF_ERROR(Map(args.x, kTokens, maps.x));
  thin::Params p;
  p.bias = args.bias.as<Bf16>();
  p.y = args.y.as<Bf16>();
  p.gate_up = args.gate_up.as<Bf16>();
  p.tokens = static_cast<int32_t>(args.x.rows());
  p.width = static_cast<int32_t>(args.y.cols());
  p.slices = static_cast<int32_t>(tiling.slices);
  p.splits = tiling.splits;
  p.stages = tiling.stages;
  p.half_stride = kSwiglu ? p.width : kRows / 2;
  const auto kernel = thin::Kernel<kTokens, kRows, kSwiglu>;
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
  shape.threads = kThinThreads;
  shape.shared = static_cast<size_t>(shared);
  shape.attribute = tiling.splits > 1 ? &cluster : nullptr;
  return LaunchInTurn(exec, kOp, kernel, shape, maps, p);
}

struct KernelRow {
  ThinTile tile;
  bool swiglu;
  absl::Status (*launch)(const Exec& exec, const ThinGemmArgs& args, const ThinTiling& tiling);
};

// One for each of kThinTiles, without SwiGLU and with it.
constexpr KernelRow kKernels[] = {
    {{16, 64}, false, Launch<16, 64, false>},   {{16, 64}, true, Launch<16, 64, true>},
    {{32, 64}, false, Launch<32, 64, false>},   {{32, 64}, true, Launch<32, 64, true>},
    {{32, 128}, false, Launch<32, 128, false>}, {{32, 128}, true, Launch<32, 128, true>},
    {{64, 64}, false, Launch<64, 64, false>},   {{64, 64}, true, Launch<64, 64, true>},
    {{64, 128}, false, Launch<64, 128, false>}, {{64, 128}, true, Launch<64, 128, true>},
};

// Whether the program has code for clusters and TMA for the GPU: code for an older one has none.
bool Built() {
  static const bool built = [] {
    const absl::StatusOr<bool> made = MadeForHopper(thin::Kernel<16, 64, false>);
    return made.ok() && *made;
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
      !Suits(args.y) || !Suits(args.gate_up)) {
    return std::nullopt;
  }
  return TileThinGemm({args.x.rows(), args.y.cols(), args.x.cols(), args.swiglu},
                      {gpu.multiprocessors, gpu.shared_memory_bytes}, args.tile_rows, args.splits);
}

// Whether it is x wT, with a bias or without, and nothing more.
bool IsPlain(const GemmArgs& args) {
  const GemmExtents e = ExtentsOf(args);
  return args.transpose_b && !args.transpose_a && args.a.dtype == DType::kBF16 &&
         args.b.dtype == DType::kBF16 && args.c.dtype == DType::kBF16 && args.alpha == 1.0 &&
         args.beta == 0.0 && args.scalars == nullptr && args.batch == 1 && e.lda == e.k &&
         e.ldb == e.k && e.ldc == e.n;
}

ThinGemmArgs ProductOf(const GemmArgs& product) {
  ThinGemmArgs args;
  args.x = product.a;
  args.w = product.b;
  args.bias = product.bias;
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
      activation.has_forms()) {
    return std::nullopt;
  }
  ThinGemmArgs thin = ProductOf(args.product);
  thin.gate_up = args.gate_up_read ? args.product.c : TensorView();
  thin.y = activation.y;
  thin.swiglu = true;
  return IfItRuns(exec, thin);
}

absl::Status ThinGemm(const Exec& exec, const ThinGemmArgs& args) {
  const std::optional<ThinTiling> tiling = TilingOf(exec, args);
  if (!tiling.has_value()) {
    return absl::UnimplementedError(
        "thin_gemm: bf16 on a GPU of compute capability 9.0, at most 64 rows of x, widths that are "
        "multiples of 8, and blocks that all run at once");
  }
  for (const KernelRow& row : kKernels) {
    if (row.tile.tokens == tiling->tile.tokens && row.tile.rows == tiling->tile.rows &&
        row.swiglu == args.swiglu) {
      return row.launch(exec, args, *tiling);
    }
  }
  return absl::InternalError("thin_gemm: a tile without a kernel");
}

}  // namespace hearth::kernels::cuda
