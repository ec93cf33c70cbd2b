// The sites of a recipe: the three tensors of every quantised weight's GEMMs, and what a step knows
// of them from earlier ones. Numbered X: k, Dy: n + k, W: 2 n + k.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/spec/plan/step_buffers.h"
#include "kernels/core/exec.h"
#include "kernels/quantize/quantize.h"
#include "worker/trainer/model/arena.h"

namespace hearth::trainer {

// One float each, on the tensors' device.
struct QuantSite {
  float* amax = nullptr;  // the largest magnitude, as it is measured
  // What an update makes of it for the next step: in per_tensor/ the scale itself, in block/ the
  // magnitude that the scale of the tensor is made for.
  float* carried = nullptr;
  float* scale_inverse = nullptr;  // of the tensor
};

// A tensor of the recipe state as checkpoints keep it.
struct QuantStateTensor {
  std::string name;
  void* data = nullptr;
  int64_t bytes = 0;
};

// Owns nothing; copies are of the same sites.
class QuantSites {
 public:
  QuantSites() = default;
  // `prefix`: of its tensors' names in checkpoints. `weights` = n. `history` as
  // Recipe::amax_history.
  QuantSites(const Arena& arena,
             const spec::ScaleBuffers& ids,
             std::string prefix,
             int64_t weights,
             int history);

  bool empty() const { return weights_ == 0; }
  int64_t weights() const { return weights_; }
  int64_t size() const { return 3 * weights_; }
  QuantSite At(int64_t index) const {
    return {amax_ + index, carried_ + index, scale_inverse_ + index * kernels::kScaleInverseStride};
  }
  // Magnitudes of the last `history` steps (kernels/quantize; 0: none are kept), [history, 2 n] of
  // x and dy and then [history, n] of the weights, and the cursors of the two.
  int history() const { return history_; }
  float* ring() const { return ring_; }
  int64_t* cursors() const { return cursors_; }

  // Scales 1, nothing recorded.
  absl::Status Reset(const kernels::Exec& exec) const;
  // What an exact resume needs.
  std::vector<QuantStateTensor> Tensors() const;

 private:
  int64_t AmaxBytes() const { return size() * static_cast<int64_t>(sizeof(float)); }

  std::string prefix_;
  int64_t weights_ = 0;
  int history_ = 0;
  float* amax_ = nullptr;
  float* carried_ = nullptr;
  float* scale_inverse_ = nullptr;
  float* ring_ = nullptr;
  int64_t* cursors_ = nullptr;
};

// `count` floats on the tensors' device become 1; waits for it.
absl::Status FillOnes(const kernels::Exec& exec, float* data, int64_t count);

}  // namespace hearth::trainer
