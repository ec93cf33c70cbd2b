#include "common/spec/recipe.h"

#include <algorithm>
#include <list>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/status_macros.h"
#include "common/spec/text.h"

namespace hearth::spec {
namespace {

Operand Plain(DType dtype) {
  return {.dtype = dtype};
}

Operand PerTensor(DType dtype, Scaling scaling, Source source = Source::kHighPrecision) {
  return {.dtype = dtype, .scaling = scaling, .source = source};
}

Operand Block(DType dtype, int rows, int cols, DType scale_dtype) {
  return {.dtype = dtype,
          .scaling = Scaling::kBlock,
          .block_rows = rows,
          .block_cols = cols,
          .scale_dtype = scale_dtype};
}

Recipe Fp32() {
  const Operand fp32 = Plain(DType::kFp32);
  return {.kind = RecipeKind::kFp32,
          .name = "fp32",
          .comment = "everything in fp32",
          .fprop = {.a = fp32, .b = fp32, .output = DType::kFp32},
          .dgrad = {.a = fp32, .b = fp32, .output = DType::kFp32},
          .wgrad = {.a = fp32, .b = fp32, .output = DType::kFp32},
          .activation = DType::kFp32,
          .parameters = {DType::kFp32, DType::kFp32, DType::kFp32}};
}

Recipe Bf16() {
  const Operand bf16 = Plain(DType::kBf16);
  return {.kind = RecipeKind::kBf16,
          .name = "bf16",
          .comment = "bf16 GEMMs with fp32 sums, fp32 master weights and gradients",
          .fprop = {.a = bf16, .b = bf16},
          .dgrad = {.a = bf16, .b = bf16},
          .wgrad = {.a = bf16, .b = bf16, .output = DType::kFp32}};
}

// E4M3 forward, E5M2 gradients (HYBRID); backward reuses the forward copies, whose scales are per
// tensor.
Recipe PerTensorFp8(RecipeKind kind, Scaling scaling) {
  const Operand forward = PerTensor(DType::kFp8E4M3, scaling);
  const Operand saved = PerTensor(DType::kFp8E4M3, scaling, Source::kForwardCopy);
  const Operand gradient = PerTensor(DType::kFp8E5M2, scaling);
  Recipe recipe = Bf16();
  recipe.kind = kind;
  recipe.fprop = {.a = forward, .b = forward, .fast_accumulation = true};
  recipe.dgrad = {.a = gradient, .b = saved};
  recipe.wgrad = {.a = saved, .b = gradient, .output = DType::kFp32};
  recipe.fallback = {"bf16"};
  return recipe;
}

Recipe Fp8() {
  Recipe recipe = PerTensorFp8(RecipeKind::kFp8, Scaling::kTensorDelayed);
  recipe.name = "fp8";
  recipe.comment = "per-tensor fp8, delayed scaling: E4M3 forward, E5M2 gradients, history 16";
  recipe.amax_history = 16;
  return recipe;
}

Recipe Fp8Current() {
  Recipe recipe = PerTensorFp8(RecipeKind::kFp8Current, Scaling::kTensorCurrent);
  recipe.name = "fp8_current";
  recipe.comment = "per-tensor fp8 scaled by each tensor's own maximum";
  return recipe;
}

// A block runs along the contracted dimension, so backward quantises its operands anew from high
// precision.
Recipe Mxfp8() {
  const Operand mx = Block(DType::kFp8E4M3, 1, 32, DType::kE8M0);
  Recipe recipe = Bf16();
  recipe.kind = RecipeKind::kMxfp8;
  recipe.name = "mxfp8";
  recipe.comment = "E4M3 in blocks of 32 with power-of-two scales";
  recipe.fprop = {.a = mx, .b = mx};
  recipe.dgrad = {.a = mx, .b = mx};
  recipe.wgrad = {.a = mx, .b = mx, .output = DType::kFp32};
  recipe.fallback = {"bf16"};
  return recipe;
}

// Most of what four bits cost hearth-112m is its first layer's; the last ones cost nothing
// (docs/performance.md). NVIDIA's authors keep layers at both ends.
constexpr int kSensitiveLayers = 2;

// NVIDIA's recipe: 16x16 weight blocks (the same values forward and backward), stochastic rounding
// of gradients, a fixed Hadamard transform on both inputs of wgrad alone.
Recipe Nvfp4() {
  const Operand x = Block(DType::kFp4E2M1, 1, 16, DType::kFp8E4M3);
  const Operand w = Block(DType::kFp4E2M1, 16, 16, DType::kFp8E4M3);
  Operand saved_w = w;
  saved_w.source = Source::kForwardCopy;
  Operand dy = x;
  dy.rounding = Rounding::kStochastic;
  Operand rotated_x = x;
  rotated_x.transform = Transform::kRht16;
  Operand rotated_dy = dy;
  rotated_dy.transform = Transform::kRht16;
  Recipe recipe = Bf16();
  recipe.kind = RecipeKind::kNvfp4;
  recipe.name = "nvfp4";
  recipe.comment = "NVIDIA's NVFP4 training recipe";
  recipe.high_precision_first = kSensitiveLayers;
  recipe.fprop = {.a = x, .b = w};
  recipe.dgrad = {.a = dy, .b = saved_w};
  recipe.wgrad = {.a = rotated_x, .b = rotated_dy, .output = DType::kFp32};
  recipe.fallback = {"fp8", "bf16"};
  return recipe;
}

// Quartet II: four-over-six forward; MS-EDEN on all four backward operands, fresh signs of the
// 128-wide transform each step. Unlike the paper, which takes x and w of the backward products from
// the saved fp4 copies, they are quantised from high precision: one rounding instead of two.
Recipe Nvfp4Eden() {
  Operand forward = Block(DType::kFp4E2M1, 1, 16, DType::kFp8E4M3);
  forward.select = Select::kFourOverSix;
  Operand dy = Block(DType::kFp4E2M1, 1, 16, DType::kFp8E4M3);
  dy.select = Select::kMsEden;
  dy.transform = Transform::kRht128;
  dy.signs = Signs::kPerStep;
  Recipe recipe = Bf16();
  recipe.kind = RecipeKind::kNvfp4Eden;
  recipe.name = "nvfp4_eden";
  recipe.comment = "Quartet II: NVFP4 with unbiased MS-EDEN backward";
  recipe.high_precision_first = kSensitiveLayers;
  recipe.fprop = {.a = forward, .b = forward};
  recipe.dgrad = {.a = dy, .b = dy};
  recipe.wgrad = {.a = dy, .b = dy, .output = DType::kFp32};
  recipe.fallback = {"fp8", "bf16"};
  return recipe;
}

const std::vector<Recipe>& Table() {
  static const std::vector<Recipe>& rows =
      *new std::vector<Recipe>{Fp32(), Bf16(), Fp8(), Fp8Current(), Mxfp8(), Nvfp4(), Nvfp4Eden()};
  return rows;
}

void SwitchOff(const v1::BlockTechniques& techniques, Operand& operand) {
  const bool hadamard = !techniques.has_hadamard() || techniques.hadamard();
  if (!hadamard) {
    operand.transform = Transform::kNone;
    operand.select = operand.select == Select::kMsEden ? Select::kPlain : operand.select;
  }
  if (techniques.has_stochastic_rounding() && !techniques.stochastic_rounding()) {
    operand.rounding = Rounding::kNearest;
  }
  if (techniques.has_square_weights() && !techniques.square_weights() && operand.block_rows > 1) {
    operand.block_rows = 1;
    operand.source = Source::kHighPrecision;
  }
  if (techniques.has_four_over_six() && !techniques.four_over_six() &&
      operand.select == Select::kFourOverSix) {
    operand.select = Select::kPlain;
  }
}

// Of a table row, what is left without some of its techniques.
class Variants {
 public:
  const Recipe& Find(const Recipe& row, const v1::BlockTechniques& techniques) {
    Recipe recipe = row;
    for (Gemm* gemm : {&recipe.fprop, &recipe.dgrad, &recipe.wgrad}) {
      SwitchOff(techniques, gemm->a);
      SwitchOff(techniques, gemm->b);
    }
    const auto same = [&recipe](const Recipe& other) {
      const auto equal = [](const Gemm& x, const Gemm& y) { return x.a == y.a && x.b == y.b; };
      return other.kind == recipe.kind && equal(other.fprop, recipe.fprop) &&
             equal(other.dgrad, recipe.dgrad) && equal(other.wgrad, recipe.wgrad);
    };
    if (same(row)) {
      return row;
    }
    absl::MutexLock lock(&mu_);
    const auto found = std::find_if(made_.begin(), made_.end(), same);
    return found != made_.end() ? *found : made_.emplace_back(recipe);
  }

 private:
  absl::Mutex mu_;
  std::list<Recipe> made_ ABSL_GUARDED_BY(mu_);
};

struct Capability {
  RecipeKind recipe;
  std::string_view device_kind;
  Execution execution;
};

// What is not listed does not run.
constexpr Capability kCapabilities[] = {
    {RecipeKind::kFp32, "cpu", Execution::kNative},
    {RecipeKind::kBf16, "cpu", Execution::kEmulated},
    {RecipeKind::kFp8, "cpu", Execution::kEmulated},
    {RecipeKind::kFp8Current, "cpu", Execution::kEmulated},
    {RecipeKind::kFp32, "cuda", Execution::kNative},
    {RecipeKind::kBf16, "cuda", Execution::kNative},
    // Where the GPU has FP8 units (compute capability 8.9 and later); the trainer refuses others.
    {RecipeKind::kFp8, "cuda", Execution::kNative},
    {RecipeKind::kFp8Current, "cuda", Execution::kNative},
    // Natively where the GPU has block-scaled units (10.x, 12.x) and they compute right: the
    // trainer tries them, and says which way it went.
    {RecipeKind::kMxfp8, "cpu", Execution::kEmulated},
    {RecipeKind::kNvfp4, "cpu", Execution::kEmulated},
    {RecipeKind::kNvfp4Eden, "cpu", Execution::kEmulated},
    {RecipeKind::kMxfp8, "cuda", Execution::kEmulated},
    {RecipeKind::kNvfp4, "cuda", Execution::kEmulated},
    {RecipeKind::kNvfp4Eden, "cuda", Execution::kEmulated},
};

}  // namespace

absl::Span<const Recipe> Recipes() {
  return Table();
}

const Recipe* FindRecipe(std::string_view name) {
  for (const Recipe& recipe : Table()) {
    if (recipe.name == name) {
      return &recipe;
    }
  }
  return nullptr;
}

const Recipe* RecipeFor(const v1::PrecisionSpec& precision) {
  static Variants& variants = *new Variants();
  const Recipe* row = FindRecipe(precision.recipe());
  return row == nullptr ? nullptr : &variants.Find(*row, precision.techniques());
}

const Recipe& RecipeOf(RecipeKind kind) {
  for (const Recipe& recipe : Table()) {
    if (recipe.kind == kind) {
      return recipe;
    }
  }
  HEARTH_CHECK(false, "every RecipeKind has a row");
  return Table().front();
}

std::vector<std::string_view> RecipeNames() {
  std::vector<std::string_view> names;
  for (const Recipe& recipe : Table()) {
    names.push_back(recipe.name);
  }
  return names;
}

ParameterFormats ResolveFormats(const v1::JobSpec& job_spec) {
  const Recipe* recipe = FindRecipe(job_spec.precision().recipe());
  ParameterFormats formats = (recipe ? *recipe : RecipeOf(RecipeKind::kBf16)).parameters;
  if (job_spec.gradients().has_dtype()) {
    ParseDType(job_spec.gradients().dtype(), formats.gradient);
  }
  return formats;
}

std::string_view ExecutionName(Execution execution) {
  switch (execution) {
    case Execution::kNative:
      return "native";
    case Execution::kEmulated:
      return "emulated";
    case Execution::kNone:
      break;
  }
  return "none";
}

Execution RecipeExecution(RecipeKind recipe, std::string_view device_kind) {
  for (const Capability& row : kCapabilities) {
    if (row.recipe == recipe && row.device_kind == device_kind) {
      return row.execution;
    }
  }
  return Execution::kNone;
}

std::string RecipeRefusal(const Recipe& recipe, std::string_view device_kind, bool emulate) {
  switch (RecipeExecution(recipe.kind, device_kind)) {
    case Execution::kNative:
      return "";
    case Execution::kEmulated:
      return emulate ? ""
                     : Text(recipe.name, " runs only emulated on ", device_kind,
                            "; set precision.emulate: true or precision.recipe: fp32");
    case Execution::kNone:
      break;
  }
  return Text(recipe.name, " is not implemented on ", device_kind, " in this version");
}

}  // namespace hearth::spec
