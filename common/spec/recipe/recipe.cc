#include "common/spec/recipe/recipe.h"

#include <algorithm>
#include <functional>
#include <list>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/table_rows.h"
#include "common/spec/recipe/operand_roles.h"
#include "common/spec/violations/text.h"

namespace hearth::spec {
namespace {

Operand Plain(DType dtype) {
  return {.dtype = dtype};
}

Operand PerTensor(DType dtype, Scaling scaling, Source source = Source::kHighPrecision) {
  return {.dtype = dtype, .scaling = scaling, .source = source};
}

Operand Block(DType dtype, BlockLayout layout, bool square = false) {
  return {.dtype = dtype, .scaling = Scaling::kBlock, .layout = layout, .square = square};
}

Recipe Fp32() {
  const Operand fp32 = Plain(DType::kF32);
  return {.name = "fp32",
          .comment = "everything in fp32",
          .fprop = {.a = fp32, .b = fp32, .output = DType::kF32},
          .dgrad = {.a = fp32, .b = fp32, .output = DType::kF32},
          .wgrad = {.a = fp32, .b = fp32, .output = DType::kF32},
          .activation = DType::kF32,
          .parameters = {DType::kF32, DType::kF32, DType::kF32},
          .on_cpu = Execution::kNative};
}

Recipe Bf16() {
  const Operand bf16 = Plain(DType::kBF16);
  return {.name = "bf16",
          .comment = "bf16 GEMMs with fp32 sums, fp32 master weights and gradients",
          .fprop = {.a = bf16, .b = bf16},
          .dgrad = {.a = bf16, .b = bf16},
          .wgrad = {.a = bf16, .b = bf16, .output = DType::kF32}};
}

// E4M3 forward and gradients in `gradients`; backward reuses the forward copies, whose scales are
// per tensor.
Recipe PerTensorFp8(Scaling scaling, DType gradients) {
  const Operand forward = PerTensor(DType::kE4M3, scaling);
  const Operand saved = PerTensor(DType::kE4M3, scaling, Source::kForwardCopy);
  const Operand gradient = PerTensor(gradients, scaling);
  Recipe recipe = Bf16();
  recipe.fprop = {.a = forward, .b = forward, .fast_accumulation = true};
  recipe.dgrad = {.a = gradient, .b = saved};
  recipe.wgrad = {.a = saved, .b = gradient, .output = DType::kF32};
  recipe.fallback = {"bf16"};
  return recipe;
}

Recipe Fp8() {
  Recipe recipe = PerTensorFp8(Scaling::kTensorDelayed, DType::kE5M2);
  recipe.name = "fp8";
  recipe.comment = "per-tensor fp8, delayed scaling: E4M3 forward, E5M2 gradients, history 16";
  recipe.amax_history = 16;
  return recipe;
}

Recipe Fp8Current() {
  Recipe recipe = PerTensorFp8(Scaling::kTensorCurrent, DType::kE5M2);
  recipe.name = "fp8_current";
  recipe.comment = "per-tensor fp8 scaled by each tensor's own maximum";
  return recipe;
}

// What recipes share in which all products read blocks.
Recipe BlockRecipe(const char* name, const char* comment) {
  Recipe recipe = Bf16();
  recipe.on_cuda = Execution::kEmulated;
  recipe.name = name;
  recipe.comment = comment;
  recipe.fallback = {"bf16"};
  return recipe;
}

// A block runs along the contracted dimension, so backward quantises its operands again from high
// precision.
Recipe Mxfp8() {
  const Operand mx = Block(DType::kE4M3, BlockLayout::kMxfp8);
  Recipe recipe = BlockRecipe("mxfp8", "E4M3 in blocks of 32 with power-of-two scales");
  recipe.fprop = {.a = mx, .b = mx};
  recipe.dgrad = {.a = mx, .b = mx};
  recipe.wgrad = {.a = mx, .b = mx, .output = DType::kF32};
  return recipe;
}

// DeepSeek-V3's (arXiv 2412.19437) as Transformer Engine has it: E4M3 everywhere, one scale for 128
// elements of x and dy and for 128 x 128 of a weight, powers of two in fp32.
Recipe Fp8Block() {
  const Operand x = Block(DType::kE4M3, BlockLayout::kFp8Block);
  const Operand w = Block(DType::kE4M3, BlockLayout::kFp8Block, true);
  Operand saved_w = w;
  saved_w.source = Source::kForwardCopy;
  Recipe recipe =
      BlockRecipe("fp8_block", "DeepSeek-V3's: E4M3 in blocks of 128, of weights 128 x 128");
  recipe.fprop = {.a = x, .b = w};
  recipe.dgrad = {.a = x, .b = saved_w};
  recipe.wgrad = {.a = x, .b = x, .output = DType::kF32};
  return recipe;
}

// What recipes share in which all products read NVFP4. The first layer and the last but one cost
// most in trained models, and the first from random weights (docs/precision.md).
Recipe Nvfp4Row(const char* name, const char* comment) {
  Recipe recipe = BlockRecipe(name, comment);
  recipe.high_precision_layers = {0, -2};
  recipe.fallback = {"fp8", "bf16"};
  return recipe;
}

// NVIDIA's recipe: 16x16 weight blocks (the same values forward and backward), stochastic rounding
// of gradients, a fixed Hadamard transform on both inputs of wgrad alone.
Recipe Nvfp4() {
  const Operand x = Block(DType::kE2M1, BlockLayout::kNvfp4);
  const Operand w = Block(DType::kE2M1, BlockLayout::kNvfp4, true);
  Operand saved_w = w;
  saved_w.source = Source::kForwardCopy;
  Operand dy = x;
  dy.rounding = Rounding::kStochastic;
  Operand rotated_x = x;
  rotated_x.hadamard = 16;
  Operand rotated_dy = dy;
  rotated_dy.hadamard = 16;
  Recipe recipe = Nvfp4Row("nvfp4", "NVIDIA's NVFP4 training recipe");
  recipe.fprop = {.a = x, .b = w};
  recipe.dgrad = {.a = dy, .b = saved_w};
  recipe.wgrad = {.a = rotated_x, .b = rotated_dy, .output = DType::kF32};
  return recipe;
}

// Quartet II: four-over-six forward; MS-EDEN on all four backward operands, fresh signs of the
// 128-wide transform each step. Unlike the paper, which takes x and w of the backward products from
// the saved fp4 copies, they are quantised from high precision: one rounding instead of two.
Recipe Nvfp4Eden() {
  Operand forward = Block(DType::kE2M1, BlockLayout::kNvfp4);
  forward.rounding = Rounding::kFourOverSix;
  Operand dy = Block(DType::kE2M1, BlockLayout::kNvfp4);
  dy.rounding = Rounding::kEden;
  dy.hadamard = 128;
  dy.signs = HadamardSigns::kSeeded;
  Recipe recipe = Nvfp4Row("nvfp4_eden", "Quartet II: NVFP4 with unbiased MS-EDEN backward");
  recipe.fprop = {.a = forward, .b = forward};
  recipe.dgrad = {.a = dy, .b = dy};
  recipe.wgrad = {.a = dy, .b = dy, .output = DType::kF32};
  return recipe;
}

const std::vector<Recipe>& Table() {
  static const std::vector<Recipe>& rows = *new std::vector<Recipe>{
      Fp32(), Bf16(), Fp8(), Fp8Current(), Fp8Block(), Mxfp8(), Nvfp4(), Nvfp4Eden()};
  return rows;
}

void SwitchOff(const v1::BlockTechniques& techniques, Operand& operand) {
  const auto replace = [&operand](Rounding rounding) {
    operand.rounding = operand.rounding == rounding ? Rounding::kNearest : operand.rounding;
  };
  if (techniques.has_hadamard() && !techniques.hadamard()) {
    operand.hadamard = 0;
    // MS-EDEN is unbiased only behind the rotation, so it goes with it.
    replace(Rounding::kEden);
  }
  if (techniques.has_stochastic_rounding() && !techniques.stochastic_rounding()) {
    replace(Rounding::kStochastic);
  }
  if (techniques.has_square_weights() && !techniques.square_weights() && operand.square) {
    // A block of one row has other elements in the transpose: without squares, backward cannot use
    // the copy that forward made.
    operand.square = false;
    operand.source = Source::kHighPrecision;
  }
  if (techniques.has_four_over_six() && !techniques.four_over_six()) {
    replace(Rounding::kFourOverSix);
  }
}

void SwitchOn(const v1::BlockTechniques& techniques, Operand& operand) {
  if (techniques.e4m3_gradients() && operand.dtype == DType::kE5M2) {
    operand.dtype = DType::kE4M3;
  }
  if (techniques.current_scales() && operand.tensor_scale()) {
    operand.own_tensor_scale = true;
  }
}

bool InFourBits(const Operand& operand) {
  return operand.scaling == Scaling::kBlock && formats::RowOf(operand.layout).fp4;
}

// A square of weights takes neither a rotation nor four over six.
void Unsquare(Operand& operand) {
  operand.square = false;
  operand.source = Source::kHighPrecision;
}

// As in the weights' gradients of NVIDIA's recipe.
void Rotate(const Recipe& /*recipe*/, Operand& operand, Operand& partner) {
  for (Operand* side : {&operand, &partner}) {
    if (InFourBits(*side) && side->hadamard == 0) {
      side->hadamard = 16;
      Unsquare(*side);
    }
  }
}

void RoundFourOverSix(const Recipe& /*recipe*/, Operand& operand, Operand& /*partner*/) {
  if (InFourBits(operand) && operand.rounding == Rounding::kNearest) {
    operand.rounding = Rounding::kFourOverSix;
    Unsquare(operand);
  }
}

void RoundToNearest(const Recipe& /*recipe*/, Operand& operand, Operand& /*partner*/) {
  if (operand.rounding == Rounding::kStochastic) {
    operand.rounding = Rounding::kNearest;
  }
}

// The rotation stays: it cancels against that of the other operand.
void KeepInMxfp8(const Recipe& /*recipe*/, Operand& operand, Operand& /*partner*/) {
  if (InFourBits(operand)) {
    Operand mx = Block(DType::kE4M3, BlockLayout::kMxfp8);
    mx.hadamard = operand.hadamard;
    mx.signs = operand.signs;
    operand = mx;
  }
}

// Nothing rotates an operand in BF16, so the other one is not rotated either.
void KeepInBf16(const Recipe& recipe, Operand& operand, Operand& partner) {
  if (!operand.quantised()) {
    return;
  }
  operand = Plain(recipe.activation);
  partner.hadamard = 0;
  if (partner.rounding == Rounding::kEden) {
    partner.rounding = Rounding::kNearest;
  }
}

using Names = google::protobuf::RepeatedPtrField<std::string>;

// Lists of precision.techniques and what they do to each operand that they name, in this order.
struct OperandChange {
  const Names& (v1::BlockTechniques::*names)() const;
  // What the list names: operands, or products, of which each operand is meant.
  bool products;
  void (*apply)(const Recipe& recipe, Operand& operand, Operand& partner);
};
constexpr OperandChange kOperandChanges[] = {
    {&v1::BlockTechniques::rotated_products, true, &Rotate},
    {&v1::BlockTechniques::four_over_six_operands, false, &RoundFourOverSix},
    {&v1::BlockTechniques::nearest_operands, false, &RoundToNearest},
    {&v1::BlockTechniques::mxfp8_operands, false, &KeepInMxfp8},
    {&v1::BlockTechniques::bf16_operands, false, &KeepInBf16},
};

void ChangeOperands(const v1::BlockTechniques& techniques, Recipe& recipe) {
  for (const OperandChange& change : kOperandChanges) {
    const Names& names = (techniques.*change.names)();
    for (const OperandRole& role : AllOperandRoles()) {
      const std::string_view name = change.products ? ProductOf(role) : role.name;
      if (std::find(names.begin(), names.end(), name) != names.end()) {
        Gemm& gemm = recipe.*role.product;
        change.apply(recipe, gemm.*role.operand, gemm.*role.partner);
      }
    }
  }
}

bool SameOperands(const Gemm& x, const Gemm& y) {
  return x.a == y.a && x.b == y.b;
}

// Recipes that are no rows of the table, each made once.
class Variants {
 public:
  const Recipe& Find(const Recipe& row, const v1::BlockTechniques& techniques) {
    Recipe recipe = row;
    for (Gemm* gemm : {&recipe.fprop, &recipe.dgrad, &recipe.wgrad}) {
      for (Operand* operand : {&gemm->a, &gemm->b}) {
        SwitchOff(techniques, *operand);
        SwitchOn(techniques, *operand);
      }
    }
    ChangeOperands(techniques, recipe);
    return Made(row, recipe);
  }

  const Recipe& WithPlainOperands(const Recipe& row) {
    Recipe recipe = row;
    for (Gemm* gemm : {&recipe.fprop, &recipe.dgrad, &recipe.wgrad}) {
      gemm->a = gemm->b = Plain(recipe.activation);
    }
    return Made(row, recipe);
  }

 private:
  // `recipe`, which `row` became; `row` itself if they are alike.
  const Recipe& Made(const Recipe& row, Recipe& recipe) {
    // Products of operands in unlike formats have no units.
    if (recipe.quantised() && recipe.mixes() && recipe.on_cuda == Execution::kNative) {
      recipe.on_cuda = Execution::kEmulated;
    }
    const auto same = [&recipe](const Recipe& other) {
      return other.name == recipe.name && SameOperands(other.fprop, recipe.fprop) &&
             SameOperands(other.dgrad, recipe.dgrad) && SameOperands(other.wgrad, recipe.wgrad);
    };
    if (same(row)) {
      return row;
    }
    absl::MutexLock lock(&mu_);
    // Callers keep references: a list never moves its elements, and nothing is removed.
    const auto found = std::find_if(made_.begin(), made_.end(), same);
    return found != made_.end() ? *found : made_.emplace_back(recipe);
  }

  absl::Mutex mu_;
  std::list<Recipe> made_ ABSL_GUARDED_BY(mu_);
};

Variants& AllVariants() {
  static Variants& variants = *new Variants();
  return variants;
}

}  // namespace

absl::Span<const Recipe> Recipes() {
  return Table();
}

const Recipe* FindRecipe(std::string_view name) {
  return FindRow(Table(), &Recipe::name, name);
}

const Recipe* RecipeFor(const v1::PrecisionSpec& precision) {
  const Recipe* row = FindRecipe(precision.recipe());
  return row == nullptr ? nullptr : &AllVariants().Find(*row, precision.techniques());
}

const Recipe& WithPlainOperands(const Recipe& recipe) {
  return AllVariants().WithPlainOperands(recipe);
}

int64_t Recipe::extent_unit() const {
  int64_t unit = 1;
  for (const Operand* operand : operands()) {
    unit = std::max(unit, operand->extent_unit());
  }
  return unit;
}

const Recipe& PlainRecipe() {
  static const Recipe& plain = *FindRecipe("bf16");
  return plain;
}

const Recipe& TensorScaledRecipe() {
  static const Recipe& row =
      *std::find_if(Recipes().begin(), Recipes().end(), std::mem_fn(&Recipe::tensor_scaled));
  return row;
}

std::vector<std::string_view> RecipeNames() {
  return RecipeNames([](const Recipe&) { return true; });
}

absl::StatusOr<ParameterFormats> ResolveFormats(const Recipe& recipe, const v1::JobSpec& job_spec) {
  ParameterFormats formats = recipe.parameters;
  if (job_spec.gradients().has_dtype() &&
      !ParseDType(job_spec.gradients().dtype(), formats.gradient)) {
    return absl::InvalidArgumentError("gradients.dtype: not a number format");
  }
  if (KeepsNoMasters(job_spec)) {
    formats.master = formats.storage;
  }
  return formats;
}

bool KeepsNoMasters(const v1::JobSpec& job_spec) {
  return job_spec.optimizer().master() == "none";
}

std::string_view ExecutionName(Execution execution) {
  static constexpr EnumNames<Execution, Execution::kNative> kNames = {"none", "emulated", "native"};
  return kNames[execution];
}

Execution RecipeExecution(const Recipe& recipe, std::string_view device_kind) {
  return device_kind == "cpu"    ? recipe.on_cpu
         : device_kind == "cuda" ? recipe.on_cuda
                                 : Execution::kNone;
}

std::string RecipeRefusal(const Recipe& recipe, std::string_view device_kind, bool emulate) {
  switch (RecipeExecution(recipe, device_kind)) {
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
