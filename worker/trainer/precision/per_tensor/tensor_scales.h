// One scale a tensor, and the largest magnitudes that it follows from, for three tensors of every
// quantised weight's GEMMs. Sites are numbered X: k, Dy: n + k, W: 2 n + k.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/spec/recipe/recipe.h"
#include "kernels/core/exec.h"
#include "kernels/core/tensor.h"
#include "kernels/quantize/quantize.h"
#include "worker/trainer/model/arena.h"
#include "worker/trainer/precision/operand.h"

namespace hearth::trainer {

// One float each, on the tensors' device.
struct QuantSite {
  float* amax = nullptr;
  float* scale = nullptr;
  float* scale_inverse = nullptr;
};

// A tensor of the recipe state as checkpoints keep it.
struct QuantStateTensor {
  std::string name;
  void* data = nullptr;
  int64_t bytes = 0;
};

// Owns nothing.
class TensorScales {
 public:
  TensorScales() = default;
  // `prefix`: of its tensors' names in checkpoints. `weights` = n. The recipe says the format of
  // each site, and of how many steps the magnitudes count (kernels/quantize; 0: this tensor's own).
  TensorScales(const Arena& arena,
               const spec::ScaleBuffers& ids,
               std::string prefix,
               int64_t weights,
               const spec::Recipe& recipe);

  bool empty() const { return weights_ == 0; }
  int64_t sites() const { return 3 * weights_; }
  QuantSite At(int64_t index) const {
    return {amax_ + index, scale_ + index, scale_inverse_ + index * kernels::kScaleInverseStride};
  }
  // How a kernel writes the site's forms, each absent where null, and how a product reads one of
  // them, lines x extent, at `data`: both in the site's format.
  kernels::QuantView View(int64_t index, void* rows, void* columns) const;
  ProductOperand Product(int64_t index, void* data, int64_t lines, int64_t extent) const;
  int64_t AmaxBytes() const { return sites() * static_cast<int64_t>(sizeof(float)); }

  // Scales 1, nothing recorded.
  absl::Status Reset(const kernels::Exec& exec) const;
  // Scales of all x and dy, or of all weights, from what was recorded; `skip` as in quantize.h.
  absl::Status UpdateActivations(const kernels::Exec& exec, const int32_t* skip) const;
  absl::Status UpdateWeights(const kernels::Exec& exec, const int32_t* skip) const;
  // One site's scale, from its own magnitude.
  absl::Status UpdateOne(const kernels::Exec& exec, int64_t index) const;
  // What an exact resume needs.
  std::vector<QuantStateTensor> Tensors() const;

 private:
  absl::Status Update(const kernels::Exec& exec,
                      int64_t first,
                      int64_t count,
                      int group,
                      const int32_t* skip) const;

  std::string prefix_;
  int64_t weights_ = 0;
  int history_ = 0;
  std::vector<kernels::DType> dtypes_;
  float* amax_ = nullptr;
  float* scale_ = nullptr;
  float* scale_inverse_ = nullptr;
  float* ring_ = nullptr;  // [history, 2n] of x and dy, then [history, n] of the weights
  int64_t* cursors_ = nullptr;
};

// `count` floats on the tensors' device become 1; waits for it.
absl::Status FillOnes(const kernels::Exec& exec, float* data, int64_t count);

}  // namespace hearth::trainer
