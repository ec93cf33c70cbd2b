#include "worker/trainer/cli/bench/calibration_list.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_format.h"
#include "common/base/table_rows.h"
#include "common/spec/feasibility/speed/calibration.h"

namespace hearth::trainer {
namespace {

using kernels::DType;

// The first is the default: on an H100 its plans of ten jobs were within 4.8 % of what was
// measured, those of the second within 5.7 % (docs/plan.md). By the second a kernel is timed among
// products that take most of the round, so that all have one clock, as in a step; by the first a
// kernel that takes more or less power than a step's products has a clock of its own.
constexpr LoadScheme kSchemes[] = {
    {"own", 6.4, 0, 1.6, "alone with memory-bound kernels"},
    {"among", 1.6, 4.8, 1.6, "among the products and memory-bound kernels of a layer"},
};

// Weights of models from 100 M to 7 B parameters, [out, in], and tokens of a micro-batch of theirs.
struct Weight {
  int64_t out, in, tokens;
};
constexpr Weight kWeights[] = {
    {4096, 768, 36864},   {768, 2048, 36864},   {8192, 1280, 16384},  {1280, 4096, 16384},
    {17920, 1536, 16384}, {1536, 8960, 16384},  {22016, 2048, 4096},  {2048, 11008, 4096},
    {1152, 768, 36864},   {768, 768, 36864},    {1920, 1280, 16384},  {1280, 1280, 16384},
    {2048, 2048, 4096},   {2560, 2048, 4096},   {9728, 896, 32768},   {896, 4864, 32768},
    {49152, 768, 8192},   {151936, 1536, 4096}, {151936, 2048, 2048}, {4096, 4096, 4096},
    {28672, 4096, 4096},  {4096, 14336, 4096},
};
constexpr int64_t kOtherTokens[] = {16384, 4096, 36864};
constexpr int64_t kHeadRows = 32768;       // of a weight: so many are an output projection's
constexpr int64_t kMostHeadTokens = 8192;  // logits come in chunks

// The layer of a model of 3 B parameters, whose products take some milliseconds.
constexpr Weight kLayer[] = {
    {22016, 2048, 4096}, {2048, 11008, 4096}, {2560, 2048, 4096}, {2048, 2048, 4096}};

// The three products of a weight, as the engine has them (step_floor.cc).
void AddProducts(const Weight& w, const spec::Recipe& recipe, std::vector<ProductShape>& products) {
  const bool fp8 = recipe.tensor_scaled();
  const DType x = recipe.fprop.a.dtype;
  const DType dy = recipe.dgrad.a.dtype;
  const bool fast = recipe.fprop.fast_accumulation && fp8;
  products.push_back({w.tokens, w.out, w.in, x, recipe.fprop.b.dtype, recipe.fprop.output, false,
                      true, fp8, fast});
  products.push_back({w.tokens, w.in, w.out, dy, recipe.dgrad.b.dtype, recipe.dgrad.output, false,
                      fp8, fp8, false});
  products.push_back({w.out, w.in, w.tokens, dy, x, spec::kTimedGradient, !fp8, fp8, fp8, false});
}

bool Same(const ListedProduct& a, const ListedProduct& b) {
  const ProductShape& p = a.shape;
  const ProductShape& q = b.shape;
  // Products of the same extents are different ones if they belong to different passes.
  return a.format == b.format && p.m == q.m && p.n == q.n && p.k == q.k && p.a == q.a &&
         p.c == q.c && p.transpose_b == q.transpose_b;
}

void AddListed(const Weight& weight, int capability, std::vector<ListedProduct>& all) {
  for (const spec::Recipe* recipe : {&spec::PlainRecipe(), &spec::TensorScaledRecipe()}) {
    const auto format = spec::UnitsFor(*recipe, capability);
    if (!format.has_value()) {
      continue;
    }
    std::vector<ProductShape> products;
    AddProducts(weight, *recipe, products);
    for (const ProductShape& shape : products) {
      const ListedProduct listed = {shape, *format};
      if (std::none_of(all.begin(), all.end(),
                       [&](const ListedProduct& other) { return Same(listed, other); })) {
        all.push_back(listed);
      }
    }
  }
}

}  // namespace

absl::Span<const LoadScheme> LoadSchemes() {
  return kSchemes;
}

const LoadScheme* FindLoadScheme(std::string_view name) {
  return FindRow(kSchemes, &LoadScheme::name, name);
}

std::string RoundText(const LoadScheme& scheme) {
  const std::string others = scheme.products_ms > 0
                                 ? absl::StrFormat(", %g ms of other products", scheme.products_ms)
                                 : "";
  return absl::StrFormat("%g ms of them%s and %g ms of memory-bound kernels", scheme.kernel_ms,
                         others, scheme.memory_ms);
}

std::vector<ListedProduct> CalibrationProducts(int capability) {
  std::vector<ListedProduct> all;
  for (const Weight& weight : kWeights) {
    AddListed(weight, capability, all);
  }
  for (const int64_t tokens : kOtherTokens) {
    for (const Weight& weight : kWeights) {
      const int64_t most = weight.out >= kHeadRows ? kMostHeadTokens : tokens;
      AddListed({weight.out, weight.in, std::min(tokens, most)}, capability, all);
    }
  }
  return all;
}

std::vector<ProductShape> LayerProducts(const spec::Recipe& recipe) {
  std::vector<ProductShape> products;
  for (const Weight& weight : kLayer) {
    AddProducts(weight, recipe, products);
  }
  return products;
}

}  // namespace hearth::trainer
