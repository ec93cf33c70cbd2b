#include "kernels/gemm/gemm_key.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace hearth::kernels {
namespace {

// The alignment of `data` and of what lies `stride` elements behind it.
uint32_t Alignment(const void* data, DType dtype = DType::kF32, int64_t stride = 0) {
  const auto bytes = static_cast<uintptr_t>(DTypeBytes(dtype, stride));
  const uintptr_t bits = reinterpret_cast<uintptr_t>(data) | bytes | 16;
  return static_cast<uint32_t>(bits & (~bits + 1));
}

std::string ScaleText(const char* name, const void* scale) {
  return scale == nullptr ? absl::StrCat("no ", name)
                          : absl::StrCat(name, " ", reinterpret_cast<uintptr_t>(scale) % 256,
                                         " bytes behind a multiple of 256");
}

std::string ScalesText(const GemmArgs& args) {
  if (args.block_scales_a == nullptr) {
    return absl::StrCat(ScaleText("scale_a", args.scale_a), ", ",
                        ScaleText("scale_b", args.scale_b));
  }
  return absl::StrCat("blocks of ", RowOf(args.block_layout_a).name, " and ",
                      RowOf(args.block_layout_b).name, ", ",
                      ScaleText("block_scales_a", args.block_scales_a), ", ",
                      ScaleText("block_scales_b", args.block_scales_b));
}

}  // namespace

GemmKey GemmKeyOf(const GemmArgs& args) {
  GemmKey key;
  key.extents = ExtentsOf(args);
  key.a = args.a.dtype;
  key.b = args.b.dtype;
  key.c = args.c.dtype;
  key.transpose_a = args.transpose_a;
  key.transpose_b = args.transpose_b;
  key.bias = !args.bias.empty() && args.bias.dtype == DType::kBF16 && args.c.dtype == DType::kBF16;
  key.accumulate = args.beta != 0.0;
  key.blocks = args.block_scales_a != nullptr;
  key.layout = key.blocks ? args.block_layout_a : key.layout;
  key.fast = args.fast_accumulation && args.scale_a != nullptr && !key.blocks;
  key.scalars = args.scalars != nullptr;
  if (args.batch > 1) {
    key.batch = args.batch;
    key.stride_a = args.stride_a;
    key.stride_b = args.stride_b;
    key.stride_c = args.stride_c;
  }
  key.align_a = Alignment(args.a.data, key.a, key.stride_a);
  key.align_b = Alignment(args.b.data, key.b, key.stride_b);
  key.align_c = std::min(Alignment(args.c.data, key.c, key.stride_c), Alignment(args.addend.data));
  key.align_bias = key.bias ? Alignment(args.bias.data) : 16;
  key.addend = !args.addend.empty() && key.accumulate;
  return key;
}

std::string GemmKeyText(const GemmKey& key, bool deterministic) {
  const GemmExtents& e = key.extents;
  // Plan files outlive a version: "f32", and no words for what a product does not have, are what
  // their keys have said from the first.
  const auto name = [](DType dtype) {
    return dtype == DType::kF32 ? "f32" : std::string(DTypeName(dtype));
  };
  const int block = key.blocks ? RowOf(key.layout).length : 0;
  const std::string scaled =
      key.blocks || key.scalars ? absl::StrFormat("_block%d_scalars%d", block, key.scalars) : "";
  const std::string batch =
      key.batch > 1 || key.addend
          ? absl::StrFormat("_addend%d_batch%d.%d.%d.%d", key.addend, key.batch, key.stride_a,
                            key.stride_b, key.stride_c)
          : "";
  return absl::StrFormat(
      "m%d_n%d_k%d_%s_%s_%s_%s%s_ld%d.%d.%d_bias%d_beta%d_fast%d_align%d.%d.%d.%d_det%d%s%s", e.m,
      e.n, e.k, name(key.a), name(key.b), name(key.c), key.transpose_a ? "t" : "n",
      key.transpose_b ? "t" : "n", e.lda, e.ldb, e.ldc, key.bias, key.accumulate, key.fast,
      key.align_a, key.align_b, key.align_c, key.align_bias, deterministic, scaled, batch);
}

std::string ProductText(const GemmArgs& args, bool deterministic, size_t workspace_bytes) {
  return absl::StrCat("gemm ", GemmKeyText(GemmKeyOf(args), deterministic), " (", ScalesText(args),
                      "; alpha and beta on the ", args.scalars == nullptr ? "host" : "device",
                      "; workspace ", workspace_bytes, " bytes)");
}

}  // namespace hearth::kernels
