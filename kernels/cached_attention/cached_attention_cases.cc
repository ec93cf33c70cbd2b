#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/cached_attention/cached_attention.h"
#include "kernels/harness/cases.h"

namespace hearth::kernels::harness {
namespace {

struct Shape {
  const char* name;
  CacheDims dims;
  int64_t shortest;  // positions are uniform in [shortest, L)
  bool perf;
  int64_t splits = 0;  // 0: as many as the op chooses
  bool rope = false;
};

constexpr Shape kShapes[] = {
    {"1x1x1x1x1", {1, 1, 1, 1, 1}, 0, false},
    {"3x9x2x2x4", {3, 9, 2, 2, 4}, 0, false},
    {"gqa_2x65x6x2x5", {2, 65, 6, 2, 5}, 0, false},
    {"mqa_3x130x5x1x16", {3, 130, 5, 1, 16}, 0, false},
    {"gqa_5x300x12x3x64", {5, 300, 12, 3, 64}, 0, false},
    {"split_1x1031x9x3x64", {1, 1031, 9, 3, 64}, 900, false},
    {"split_1x2000x12x2x128", {1, 2000, 12, 2, 128}, 1900, false},
    {"seven_2x515x14x2x64", {2, 515, 14, 2, 64}, 0, false},
    {"many_2x190x36x1x40", {2, 190, 36, 1, 40}, 0, false},
    {"twelve_2x330x24x2x128", {2, 330, 24, 2, 128}, 0, false},
    {"sixteen_1x1500x16x1x64", {1, 1500, 16, 1, 64}, 1400, false},
    {"wide_2x100x4x2x256", {2, 100, 4, 2, 256}, 0, false},
    {"between_2x140x2x1x96", {2, 140, 2, 1, 96}, 0, false},
    {"start_4x64x4x2x32", {4, 64, 4, 2, 32}, 0, false},
    // Odd lengths; splits without keys in some sequences of a call and not in others; one key.
    {"splits2_3x67x12x3x64", {3, 67, 12, 3, 64}, 0, false, 2},
    {"splits3_5x201x12x3x64", {5, 201, 12, 3, 64}, 0, false, 3},
    {"splits7_2x130x12x2x128", {2, 130, 12, 2, 128}, 0, false, 7},
    {"splits5_3x333x12x2x128", {3, 333, 12, 2, 128}, 0, false, 5},
    {"splits64_1x9000x14x2x64", {1, 9000, 14, 2, 64}, 8900, false, 64},
    {"splits40_1x2700x20x1x128", {1, 2700, 20, 1, 128}, 2600, false, 40},
    {"splits4_one_key_2x1x4x2x64", {2, 1, 4, 2, 64}, 0, false, 4},
    {"splits3_plain_2x300x6x2x5", {2, 300, 6, 2, 5}, 0, false, 3},
    {"splits3_wide_2x100x36x2x256", {2, 100, 36, 2, 256}, 0, false, 3},
    {"splits2_between_3x161x10x2x96", {3, 161, 10, 2, 96}, 0, false, 2},
    // A whole text for a block of eight warps; several chunks of query heads.
    {"undivided_5x300x12x3x64", {5, 300, 12, 3, 64}, 0, false, 1},
    {"undivided_2x515x14x2x128", {2, 515, 14, 2, 128}, 0, false, 1},
    {"undivided_2x290x40x2x96", {2, 290, 40, 2, 96}, 0, false, 1},
    // Shapes of generation: hearth-112m with 64 and 512 texts, Qwen2.5-1.5B with 64 and 1.
    {"perf_64x440x12x3x64", {64, 440, 12, 3, 64}, 439, true},
    {"perf_splits1_64x440x12x3x64", {64, 440, 12, 3, 64}, 439, true, 1},
    {"perf_splits3_64x440x12x3x64", {64, 440, 12, 3, 64}, 439, true, 3},
    {"perf_512x440x12x3x64", {512, 440, 12, 3, 64}, 439, true},
    {"perf_splits2_512x440x12x3x64", {512, 440, 12, 3, 64}, 439, true, 2},
    {"perf_64x384x12x2x128", {64, 384, 12, 2, 128}, 383, true},
    {"perf_splits1_64x384x12x2x128", {64, 384, 12, 2, 128}, 383, true, 1},
    {"perf_splits2_64x384x12x2x128", {64, 384, 12, 2, 128}, 383, true, 2},
    {"perf_1x320x12x2x128", {1, 320, 12, 2, 128}, 319, true},
    {"perf_64x384x12x3x64", {64, 384, 12, 3, 64}, 383, true},
    {"perf_512x384x12x3x64", {512, 384, 12, 3, 64}, 383, true},
    {"perf_rope_64x440x12x3x64", {64, 440, 12, 3, 64}, 439, true, 0, true},
    {"perf_rope_64x384x12x2x128", {64, 384, 12, 2, 128}, 383, true, 0, true},
    {"perf_64x1024x12x2x128", {64, 1024, 12, 2, 128}, 1023, true},
    {"perf_splits1_64x1024x12x2x128", {64, 1024, 12, 2, 128}, 1023, true, 1},
    {"perf_8x8192x32x8x128", {8, 8192, 32, 8, 128}, 8191, true},
};

RopeConfig RopeOf(bool enabled, RopeScalingType scaling) {
  RopeConfig rope;
  rope.enabled = enabled;
  rope.scaling.type = scaling;
  rope.scaling.factor = scaling == RopeScalingType::kNone ? 1.0 : 8.0;
  return rope;
}

CachedAttentionArgs ArgsOf(const Shape& s, const Buffers& b) {
  return {.dims = s.dims,
          .qkv = b["qkv"],
          .positions = b["positions"],
          .keys = b["keys"],
          .values = b["values"],
          .out = b["out"],
          .arrivals = b["arrivals"],
          .rope = RopeOf(s.rope, RopeScalingType::kNone),
          .splits = s.splits};
}

OpCase AttendCase(const Shape& s) {
  const CacheDims& d = s.dims;
  OpCase c;
  c.op = "cached_attention";
  c.name = s.name;
  const std::vector<int64_t> cache = {d.batch, d.kv_heads, d.capacity, d.head_dim};
  c.buffers = {
      {"qkv", {d.batch, d.width()}},
      Indices("positions", {d.batch}, s.shortest, d.capacity),
      {"keys", cache, Role::kAccumulate},
      {"values", cache, Role::kAccumulate},
      {"out", {d.batch, d.heads * d.head_dim}, Role::kOutput},
      // An input: what a call leaves in it must be what it found.
      {"arrivals", {d.batch, d.kv_heads}, Role::kInput, {Fill::kConstant, 0.0}, DType::kI32}};
  c.forward = [s](const Exec& exec, const Buffers& b) {
    return CachedAttention(exec, ArgsOf(s, b));
  };
  c.workspace = [s](const Buffers& b, int threads) {
    return CachedAttentionWorkspaceBytes(ArgsOf(s, b), threads);
  };
  c.reduction = d.capacity + d.head_dim;
  c.perf = s.perf;
  c.early_start = true;
  return c;
}

// With rotation: the bits of the two ops one after the other.
struct RopeShape {
  const char* name;
  CacheDims dims;
  RopeScalingType scaling;
  int64_t splits = 0;
  double theta = 10000.0;
};

constexpr RopeScalingType kPlain = RopeScalingType::kNone;
constexpr RopeShape kRopeShapes[] = {
    // Heads for the tensor cores: whole tiles' widths, others, halves that are not whole packs;
    // divided and not, for one and two halves of a product and for several chunks of heads.
    {"rope_5x300x12x3x64", {5, 300, 12, 3, 64}, kPlain},
    {"rope_undivided_5x300x12x3x64", {5, 300, 12, 3, 64}, kPlain, 1},
    {"rope_splits2_3x530x12x2x128", {3, 530, 12, 2, 128}, kPlain, 2},
    {"rope_undivided_2x515x14x2x128", {2, 515, 14, 2, 128}, kPlain, 1},
    {"rope_undivided_2x290x40x2x96", {2, 290, 40, 2, 96}, kPlain, 1},
    {"rope_twelve_2x330x24x2x128", {2, 330, 24, 2, 128}, kPlain},
    {"rope_many_2x190x36x1x40", {2, 190, 36, 1, 40}, kPlain},
    {"rope_start_9x3x4x2x32", {9, 3, 4, 2, 32}, kPlain},
    {"rope_one_key_2x1x4x2x64", {2, 1, 4, 2, 64}, kPlain, 4},
    {"rope_linear_2x400x6x2x64", {2, 400, 6, 2, 64}, RopeScalingType::kLinear},
    {"rope_llama3_2x400x6x2x128", {2, 400, 6, 2, 128}, RopeScalingType::kLlama3, 0, 500000.0},
    // The kernel for everything else, with access by packs and without.
    {"rope_wide_2x100x4x2x256", {2, 100, 4, 2, 256}, kPlain},
    {"rope_wide_2x100x36x2x256", {2, 100, 36, 2, 256}, kPlain, 3},
    {"rope_odd_half_3x130x5x1x6", {3, 130, 5, 1, 6}, kPlain},
};

// Attention with rotation to out, keys and values; the rotation, then attention to the others.
absl::Status RunBoth(const RopeShape& s, const Exec& exec, const Buffers& b) {
  QkNormRopeForwardArgs rotation;
  rotation.dims = {s.dims.heads, s.dims.kv_heads, s.dims.head_dim};
  rotation.rope = RopeOf(true, s.scaling);
  rotation.rope.theta = s.theta;
  rotation.qkv = b["qkv"];
  rotation.positions = b["positions"];
  rotation.out = b["rotated"];
  CachedAttentionArgs args = ArgsOf({s.name, s.dims, 0, false, s.splits}, b);
  args.rope = rotation.rope;
  HEARTH_RETURN_IF_ERROR(CachedAttention(exec, args));
  HEARTH_RETURN_IF_ERROR(QkNormRopeForward(exec, rotation));
  args.rope.enabled = false;
  args.qkv = b["rotated"];
  args.keys = b["keys_apart"];
  args.values = b["values_apart"];
  args.out = b["out_apart"];
  return CachedAttention(exec, args);
}

size_t WorkspaceOfBoth(const RopeShape& s, const Buffers& b, int threads) {
  CachedAttentionArgs args = ArgsOf({s.name, s.dims, 0, false, s.splits, true}, b);
  QkNormRopeForwardArgs rotation;
  rotation.dims = {s.dims.heads, s.dims.kv_heads, s.dims.head_dim};
  rotation.qkv = b["qkv"];
  return std::max(CachedAttentionWorkspaceBytes(args, threads),
                  QkNormRopeForwardWorkspaceBytes(rotation));
}

OpCase RopeCase(const RopeShape& s) {
  OpCase c = AttendCase({s.name, s.dims, 0, false, s.splits});
  // Both pairs of caches begin with the same values: other fills differ from buffer to buffer.
  const CacheDims& d = s.dims;
  const std::vector<int64_t> cache = {d.batch, d.kv_heads, d.capacity, d.head_dim};
  const Fill same = {Fill::kSteps, 17.0, 6.0};
  for (BufferSpec& spec : c.buffers) {
    if (spec.role == Role::kAccumulate) {
      spec.fill = same;
    }
  }
  c.buffers.push_back({"rotated", {d.batch, d.width()}, Role::kOutput});
  c.buffers.push_back({"keys_apart", cache, Role::kAccumulate, same});
  c.buffers.push_back({"values_apart", cache, Role::kAccumulate, same});
  c.buffers.push_back({"out_apart", {d.batch, d.heads * d.head_dim}, Role::kOutput});
  c.forward = [s](const Exec& exec, const Buffers& b) { return RunBoth(s, exec, b); };
  c.workspace = [s](const Buffers& b, int threads) { return WorkspaceOfBoth(s, b, threads); };
  c.check = [](const Buffers& b) -> std::string {
    for (const char* name : {"out", "keys", "values"}) {
      if (b.Bytes(name) != b.Bytes(absl::StrCat(name, "_apart"))) {
        return absl::StrCat(name, " differs from that of the two ops one after the other");
      }
    }
    return "";
  };
  return c;
}

struct FillShape {
  const char* name;
  CacheDims dims;
  int64_t sequence;
};

constexpr FillShape kFillShapes[] = {
    {"1x1x1x1x1", {1, 1, 1, 1, 1}, 1},
    {"3x17x6x2x5", {3, 17, 6, 2, 5}, 11},
    {"4x40x4x2x64", {4, 40, 4, 2, 64}, 40},
};

OpCase FillCase(const FillShape& s) {
  const CacheDims& d = s.dims;
  OpCase c;
  c.op = "fill_cache";
  c.name = s.name;
  const std::vector<int64_t> cache = {d.batch, d.kv_heads, d.capacity, d.head_dim};
  // Lengths below none and above the capacity are clamped.
  c.buffers = {{"qkv", {d.batch * s.sequence, d.width()}},
               Indices("lengths", {d.batch}, -1, s.sequence + 2),
               {"keys", cache, Role::kAccumulate},
               {"values", cache, Role::kAccumulate}};
  c.forward = [s](const Exec& exec, const Buffers& b) {
    return FillCache(exec, {.dims = s.dims,
                            .sequence = s.sequence,
                            .qkv = b["qkv"],
                            .lengths = b["lengths"],
                            .keys = b["keys"],
                            .values = b["values"]});
  };
  c.slack = 0.0;  // exact
  return c;
}

}  // namespace

std::vector<OpCase> CachedAttentionCases() {
  return CasesOf(kShapes, AttendCase, kRopeShapes, RopeCase, kFillShapes, FillCase);
}

}  // namespace hearth::kernels::harness
