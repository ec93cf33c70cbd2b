// What `bench --calibrate` measures, and in which company: tables, without a GPU.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "common/spec/gpus/gpus.h"
#include "common/spec/recipe/recipe.h"
#include "worker/trainer/cli/bench/kernel_meter.h"

namespace hearth::trainer {

// How a kernel is timed so that it runs at the clock that it has in a step: rounds of it and of
// what else a step has, one after the other. A GPU at its power limit has the clock that the mean
// of some milliseconds allows.
struct LoadScheme {
  std::string_view name;
  // A round has so much of each. The products are those of a layer, in the format of the kernel
  // that is timed.
  double kernel_ms;
  double products_ms;
  double memory_ms;
  std::string_view about;
};
// The first is what a file is made with unless another one is asked for.
absl::Span<const LoadScheme> LoadSchemes();
// Null: none of that name.
const LoadScheme* FindLoadScheme(std::string_view name);

// What a round has, after the kernels that are timed were named: "6.4 ms of them and 1.6 ms of
// memory-bound kernels". A part that the scheme lacks is left out.
std::string RoundText(const LoadScheme& scheme);

// A product that is measured, and the table that it goes into.
struct ListedProduct {
  ProductShape shape;
  spec::MatrixFormat format;
};
// For a GPU of this compute capability (90); each once, the most wanted first: the products of the
// models of tests/bench/plan.rows and of larger ones with the micro-batches that such jobs have,
// then the same weights with others. What the time does not suffice for is left out.
std::vector<ListedProduct> CalibrationProducts(int capability);
// A minute should suffice for so many: what plans need stands there.
inline constexpr int kCertainProducts = 132;

// All products of a layer, both passes: what products are timed beside.
std::vector<ProductShape> LayerProducts(const spec::Recipe& recipe);

}  // namespace hearth::trainer
