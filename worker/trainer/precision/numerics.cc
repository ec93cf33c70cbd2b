#include "worker/trainer/precision/numerics.h"

#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace hearth::trainer {
namespace {

// kUnimplemented for formats that are not held by rounding wide values.
absl::StatusOr<kernels::DType> Rounding(spec::DType format,
                                        kernels::DType storage,
                                        const spec::Recipe& recipe,
                                        std::string_view what) {
  if (format == spec::DType::kF32) {
    return storage;
  }
  if (format == spec::DType::kBF16) {
    return kernels::DType::kBF16;
  }
  const std::string_view name = spec::DTypeName(format);
  return absl::UnimplementedError(
      absl::StrCat("recipe ", absl::string_view(recipe.name.data(), recipe.name.size()), ": ",
                   absl::string_view(what.data(), what.size()), " in ",
                   absl::string_view(name.data(), name.size()), " has no implementation"));
}

// Plain operands are read as their producers wrote them, so each must have the format of its
// producer; operands with scales are made by precision/operand.h.
absl::Status CheckOperand(const spec::Operand& operand,
                          kernels::DType produced,
                          kernels::DType storage,
                          const spec::Recipe& recipe,
                          std::string_view what) {
  if (operand.quantised()) {
    return absl::OkStatus();
  }
  HEARTH_ASSIGN_OR_RETURN(const kernels::DType wanted,
                          Rounding(operand.dtype, storage, recipe, what));
  if (wanted != produced) {
    return absl::UnimplementedError(absl::StrCat(
        "recipe ", absl::string_view(recipe.name.data(), recipe.name.size()), ": operand ",
        absl::string_view(what.data(), what.size()), " would have to be quantised on its own"));
  }
  return absl::OkStatus();
}

}  // namespace

std::optional<formats::UnitProducts> UnitProductsOf(const spec::Recipe& recipe) {
  if (recipe.tensor_scaled() && !recipe.mixes()) {
    return formats::UnitProducts{};
  }
  const spec::Operand& x = recipe.fprop.a;
  const bool several =
      recipe.Any([&x](const spec::Operand& o) { return !o.quantised() || o.layout != x.layout; });
  return several ? std::nullopt : std::optional(formats::UnitProducts{&kernels::RowOf(x.layout)});
}

absl::StatusOr<Numerics> MakeNumerics(const spec::Recipe& recipe,
                                      absl::Span<const spec::DType> gradients,
                                      kernels::DType storage) {
  Numerics n;
  n.storage = storage;
  const std::pair<spec::DType, kernels::DType*> formats[] = {{recipe.parameters.storage, &n.weight},
                                                             {recipe.activation, &n.activation},
                                                             {recipe.fprop.output, &n.fprop},
                                                             {recipe.dgrad.output, &n.dgrad},
                                                             {recipe.activation, &n.head}};
  for (const auto& [format, out] : formats) {
    HEARTH_ASSIGN_OR_RETURN(*out, Rounding(format, storage, recipe, "a tensor"));
  }
  for (const spec::DType gradient : gradients) {
    HEARTH_RETURN_IF_ERROR(Rounding(gradient, storage, recipe, "a gradient").status());
  }
  const struct {
    const spec::Operand& operand;
    kernels::DType produced;
    std::string_view what;
  } operands[] = {
      {recipe.fprop.a, n.activation, "fprop.x"}, {recipe.fprop.b, n.weight, "fprop.w"},
      {recipe.dgrad.a, n.dgrad, "dgrad.dy"},     {recipe.dgrad.b, n.weight, "dgrad.w"},
      {recipe.wgrad.a, n.activation, "wgrad.x"}, {recipe.wgrad.b, n.dgrad, "wgrad.dy"},
  };
  for (const auto& row : operands) {
    HEARTH_RETURN_IF_ERROR(CheckOperand(row.operand, row.produced, storage, recipe, row.what));
  }
  return n;
}

}  // namespace hearth::trainer
