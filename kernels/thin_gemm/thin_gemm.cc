#include "kernels/thin_gemm/thin_gemm.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/system.h"
#include "kernels/core/cpu.h"
#include "kernels/thin_gemm/thin_tiling.h"

namespace hearth::kernels {
namespace {

constexpr char kOp[] = "thin_gemm";
// A block with so few stages has all of them on their way at once, and most of its time goes into
// its begin and end: more blocks gain nothing.
constexpr int64_t kEnoughStages = 6;
// With fewer, the blocks of a cluster add sums for longer than they multiply. On an H200 a product
// of 64 x 768 with a weight of 1152 x 768 takes 4.3, 4.1 and 5.5 us with 6, 3 and 1.5 stages a
// block.
constexpr int64_t kLeastStages = 3;

// The ring that fits where all blocks run at once, if they do.
std::optional<ThinTiling> WithRing(ThinTiling tiling, const ThinGpu& gpu) {
  const int64_t resident = CeilDiv(tiling.blocks(), gpu.multiprocessors);
  // Beside a block of groups there is room for one of the kernel before or after.
  const int64_t share = tiling.tile.groups ? std::max<int64_t>(resident, 2) : resident;
  const int64_t room = (gpu.shared_bytes + 1024) / share - 1024;
  const int64_t fit = (room - kThinAlignment - tiling.tile.fixed_bytes() - tiling.norm_bytes()) /
                      tiling.tile.stage_bytes();
  const int64_t longest = tiling.longest();
  tiling.stages = static_cast<int>(std::min<int64_t>({fit, longest, tiling.tile.most_stages()}));
  const bool fits = resident <= tiling.tile.most_resident() &&
                    tiling.stages >= std::min<int64_t>(longest, 2) && tiling.block_bytes() <= room;
  return fits ? std::optional<ThinTiling>(tiling) : std::nullopt;
}

// Whether twice as many blocks are better: as long as multiprocessors are without one, and, if the
// slices are long, up to two on each.
bool WantsMore(const ThinTiling& tiling, const ThinGpu& gpu) {
  const int64_t twice = 2 * tiling.blocks();
  return int64_t{2} * tiling.splits <=
             std::min<int64_t>(kThinMostSplits, tiling.slices / kLeastStages) &&
         (4 * twice <= 5 * gpu.multiprocessors ||
          (tiling.longest() > kEnoughStages && twice <= 2 * gpu.multiprocessors));
}

std::optional<ThinTiling> Divide(ThinTiling tiling, const ThinGpu& gpu) {
  std::optional<ThinTiling> best = WithRing(tiling, gpu);
  while (best.has_value() && WantsMore(*best, gpu)) {
    tiling.splits *= 2;
    const std::optional<ThinTiling> more = WithRing(tiling, gpu);
    if (!more.has_value()) {
      break;
    }
    best = more;
  }
  return best;
}

// What a division among groups takes, in bytes that a multiprocessor reads meanwhile: operands and
// sums, twice as much with two blocks but half of it beside the other's; and what each block,
// clusters, and clusters of eight cost. Fitted to the products of `ops perf -o thin_gemm` on an
// H200, about 150 kB a microsecond.
constexpr int64_t kBytesOfBlock = 500;
constexpr int64_t kBytesOfCluster = 50'000;
constexpr int64_t kBytesOfEight = 60'000;

int64_t CostOf(const ThinTiling& t, const ThinGpu& gpu) {
  const int64_t resident = CeilDiv(t.blocks(), gpu.multiprocessors);
  const int64_t sums = int64_t{t.tile.tokens} * t.tile.rows * 4;
  return (1 + resident) * (t.longest() * t.tile.stage_bytes() + sums) / 2 +
         t.blocks() * kBytesOfBlock + (t.splits > 1 ? kBytesOfCluster : 0) +
         (t.splits == kThinMostSplits ? kBytesOfEight : 0);
}

std::optional<ThinTiling> DivideAmongGroups(const ThinShape& shape,
                                            const ThinGpu& gpu,
                                            int tile_rows,
                                            int splits) {
  if (!gpu.groups || shape.tokens <= kThinGroupTokens / 2 || shape.tokens > kThinGroupTokens) {
    return std::nullopt;
  }
  std::optional<ThinTiling> best;
  for (const int rows : kThinGroupRows) {
    // Boxes of gate and of up have a multiple of 8 rows.
    if ((tile_rows != 0 && rows != tile_rows) || (shape.swiglu && rows % 16 != 0)) {
      continue;
    }
    ThinTiling tiling;
    tiling.tile.tokens = kThinGroupTokens;
    tiling.tile.rows = rows;
    tiling.tile.groups = true;
    tiling.tiles = CeilDiv(shape.width, shape.swiglu ? rows / 2 : rows);
    tiling.slices = CeilDiv(shape.depth, kThinDepth);
    tiling.norm = shape.norm;
    for (tiling.splits = 1; tiling.splits <= std::min<int64_t>(kThinMostSplits, tiling.slices);
         tiling.splits *= 2) {
      if (splits != 0 && tiling.splits != splits) {
        continue;
      }
      const std::optional<ThinTiling> found = WithRing(tiling, gpu);
      if (found.has_value() && (!best.has_value() || CostOf(*found, gpu) < CostOf(*best, gpu))) {
        best = found;
      }
    }
  }
  return best;
}

absl::Status CheckOutputs(const ThinGemmArgs& args) {
  const DType dtype = args.x.dtype;
  const int64_t rows = args.x.rows();
  const int64_t width = args.w.rows();
  if (!args.swiglu) {
    if (!args.gate_up.empty()) {
      return absl::InvalidArgumentError("thin_gemm: gate_up comes with swiglu");
    }
    if (!args.addend.empty()) {
      HEARTH_RETURN_IF_ERROR(RequireView(args.addend, dtype, {rows, width}, kOp, "addend"));
    }
    return RequireView(args.y, dtype, {rows, width}, kOp, "y");
  }
  if (width % 2 != 0 || !args.bias.empty() || !args.addend.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        kOp, ": swiglu has gate and up, no bias and no addend: w is ", DebugString(args.w)));
  }
  if (!args.gate_up.empty()) {
    HEARTH_RETURN_IF_ERROR(RequireView(args.gate_up, dtype, {rows, width}, kOp, "gate_up"));
  }
  return RequireView(args.y, dtype, {rows, width / 2}, kOp, "y");
}

}  // namespace

std::optional<ThinTiling> TileThinGemm(const ThinShape& shape,
                                       const ThinGpu& gpu,
                                       int tile_rows,
                                       int splits) {
  if (shape.tokens < 1 || shape.width < 8 || shape.depth < 8 || shape.width % 8 != 0 ||
      shape.depth % 8 != 0) {
    return std::nullopt;
  }
  if (std::optional<ThinTiling> groups = DivideAmongGroups(shape, gpu, tile_rows, splits)) {
    return groups;
  }
  int tokens = 0;
  for (const ThinTile& tile : kThinTiles) {
    // The fewest that are enough.
    const bool suits = tokens == 0 ? shape.tokens <= tile.tokens : tile.tokens == tokens;
    if (!suits || (tile_rows != 0 && tile.rows != tile_rows)) {
      continue;
    }
    tokens = tile.tokens;
    ThinTiling tiling;
    tiling.tile = tile;
    tiling.tiles = CeilDiv(shape.width, shape.swiglu ? tile.rows / 2 : tile.rows);
    tiling.slices = CeilDiv(shape.depth, kThinDepth);
    tiling.norm = shape.norm;
    tiling.splits = std::max(splits, 1);
    const std::optional<ThinTiling> found = splits == 0               ? Divide(tiling, gpu)
                                            : splits <= tiling.slices ? WithRing(tiling, gpu)
                                                                      : std::nullopt;
    if (found.has_value()) {
      return found;
    }
  }
  return std::nullopt;
}

bool ThinGemmAsked(absl::string_view how) {
  const char* given = GetEnv("HEARTH_THIN_GEMM");
  return given != nullptr && how == given;
}

absl::Status CanImplement(const ThinGemmArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireFloating(args.x, kOp, "x"));
  HEARTH_RETURN_IF_ERROR(
      RequireView(args.w, args.x.dtype, {args.w.rows(), args.x.cols()}, kOp, "w"));
  if (!args.bias.empty()) {
    HEARTH_RETURN_IF_ERROR(RequireCount(args.bias, args.x.dtype, args.w.rows(), kOp, "bias"));
  }
  if (!args.input_norm.weight.empty()) {
    HEARTH_RETURN_IF_ERROR(RequireCount(args.input_norm.weight, args.x.dtype, args.x.cols(), kOp,
                                        "the norm's weight"));
  }
  HEARTH_RETURN_IF_ERROR(CheckOutputs(args));
  const int splits = args.splits;
  if (splits < 0 || splits > kThinMostSplits || (splits & (splits - 1)) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOp, ": splits is ", splits, ", expected 0, 1, 2, 4 or 8"));
  }
  return RequireRound(args.round, kOp);
}

size_t ThinGemmWorkspaceBytes(const ThinGemmArgs& args) {
  return args.swiglu && args.gate_up.empty()
             ? static_cast<size_t>(DTypeBytes(args.x.dtype, args.x.rows() * args.w.rows()))
             : 0;
}

absl::Status ThinGemm(const Exec& exec, const ThinGemmArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.x.dtype, kOp));
  return RunOnDevice<cpu::ThinGemm, cuda::ThinGemm>(exec, kOp, args);
}

}  // namespace hearth::kernels
