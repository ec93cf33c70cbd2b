// One scale a tensor, for all sites of a recipe.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "common/spec/recipe/recipe.h"
#include "kernels/core/exec.h"
#include "kernels/core/tensor.h"
#include "worker/trainer/precision/operand.h"
#include "worker/trainer/precision/sites.h"

namespace hearth::trainer {

class TensorScales {
 public:
  TensorScales() = default;
  // The recipe says the format of each site; its magnitudes count for sites.history() steps
  // (kernels/quantize; 0: this tensor's own).
  TensorScales(QuantSites sites, const spec::Recipe& recipe);

  const QuantSites& sites() const { return sites_; }
  // How a kernel writes the site's forms, each absent where null, and how a product reads one of
  // them, lines x extent, at `data`: both in the site's format.
  kernels::QuantView View(int64_t index, void* rows, void* columns) const;
  ProductOperand Product(int64_t index, void* data, int64_t lines, int64_t extent) const;

  // Scales of all x and dy, or of all weights, from what was recorded; `skip` as in quantize.h.
  absl::Status UpdateActivations(const kernels::Exec& exec, const int32_t* skip) const;
  absl::Status UpdateWeights(const kernels::Exec& exec, const int32_t* skip) const;
  // One site's scale, from its own magnitude.
  absl::Status UpdateOne(const kernels::Exec& exec, int64_t index) const;

 private:
  absl::Status Update(const kernels::Exec& exec,
                      int64_t first,
                      int64_t count,
                      int group,
                      const int32_t* skip) const;

  QuantSites sites_;
  std::vector<kernels::DType> dtypes_;
};

}  // namespace hearth::trainer
