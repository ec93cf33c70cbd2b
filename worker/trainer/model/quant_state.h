// Scales and quantised weights of a recipe.
//
//   step:  forward, backward record the largest magnitudes of x and dy  ->  UpdateActivations
//          optimizer writes weights and their largest magnitudes        ->  UpdateWeights
//   Delayed scaling: what a step quantises with comes from the steps before it.
//   Block scales (kernels/core/block_quant.h): only NVFP4 has a scale of the tensor besides; it is
//   made for kBlockMargin times the largest magnitude of the step before.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "common/spec/precision.h"
#include "kernels/block_quantize/block_quantize.h"
#include "kernels/core/exec.h"
#include "kernels/core/tensor.h"
#include "kernels/count_codes/count_codes.h"
#include "kernels/quantize/quantize.h"
#include "worker/trainer/model/arena.h"
#include "worker/trainer/model/tensor_scales.h"

namespace hearth::trainer {

class ParameterStore;

// Room for growth from one step to the next: it costs the blocks' scales no precision.
inline constexpr float kBlockMargin = 8.0F;

// A quantised operand as a product reads it (kernels/gemm/gemm.h).
struct ProductOperand {
  kernels::TensorView values;
  const float* scale = nullptr;           // null: none (MXFP8)
  const uint8_t* block_scales = nullptr;  // null: one scale for the tensor
};

// Sites are numbered by the quantised weights in the order of the parameter table. Owns nothing.
class QuantState {
 public:
  // Nothing is quantised: every weight's number is -1.
  QuantState() = default;
  QuantState(const spec::PrecisionPlan& precision,
             const ParameterStore& parameters,
             const Arena& arena);

  bool empty() const { return weights_.empty(); }
  const spec::PrecisionPlan& precision() const { return precision_; }
  int64_t size() const { return static_cast<int64_t>(weights_.size()); }
  // The number of a parameter, -1 if it is not quantised.
  int Find(int parameter) const;
  QuantSite X(int k) const { return At(k); }
  QuantSite Dy(int k) const { return At(size() + k); }
  QuantSite W(int k) const { return At(2 * size() + k); }
  // [out, in] for fprop and [in, out] for dgrad.
  const ProductOperand& WeightRows(int k) const { return rows_[static_cast<size_t>(k)]; }
  const ProductOperand& WeightColumns(int k) const { return columns_[static_cast<size_t>(k)]; }
  // Block scales: how a form of `operand`, lines x extent, that begins at `data` is made at the
  // site, and how it is read.
  // `columns`: the transposed one; as the two may be rounded in different ways, each has a scale of
  // the tensor of its own.
  kernels::BlockForm Form(const spec::Operand& operand,
                          int64_t index,
                          bool columns,
                          void* data,
                          int64_t lines,
                          int64_t extent) const;
  ProductOperand Product(const spec::Operand& operand,
                         int64_t index,
                         bool columns,
                         void* data,
                         int64_t lines,
                         int64_t extent) const;

  // Of the site's weight; -1: the output projection.
  int LayerOf(int64_t index) const { return layers_[static_cast<size_t>(index % size())]; }
  // Scales of PrecisionPlan::fallback, from the same magnitudes; empty: the plan has none.
  const TensorScales& fallback() const { return fallback_; }

  // Scales 1, nothing recorded.
  absl::Status Reset(const kernels::Exec& exec) const;
  // Before each micro-batch: current scaling measures each tensor anew.
  absl::Status BeginMicroBatch(const kernels::Exec& exec) const;
  // Current scaling: the site's scale from its magnitude. `index` as X: k, Dy: size() + k.
  absl::Status UpdateOne(const kernels::Exec& exec, int64_t index) const;
  // Where BeginStep finds the job's seed and the step, beside the tensors; once, before it.
  void BindStep(uint64_t seed, const kernels::StepInputs* position);
  // Before the first micro-batch of a quantised step: what of the weights is new in each step (the
  // signs of a transform).
  absl::Status BeginStep(const kernels::Exec& exec) const;
  // After a step; `skip` as in quantize.h. The weights' magnitudes are those the optimizer wrote.
  absl::Status UpdateActivations(const kernels::Exec& exec, const int32_t* skip) const;
  absl::Status UpdateWeights(const kernels::Exec& exec, const int32_t* skip) const;
  // Before the optimizer writes them.
  absl::Status ForgetWeightAmax(const kernels::Exec& exec) const;
  // Their magnitudes from the weights themselves: at the start of a run.
  absl::Status MeasureWeights(const kernels::Exec& exec) const;
  // All three: measured, scaled and quantised as they are.
  absl::Status StartWeights(const kernels::Exec& exec) const;
  absl::Status QuantizeWeights(const kernels::Exec& exec,
                               const int32_t* skip,
                               uint64_t* counter) const;
  // The site's zeros and largest magnitudes among its quantised values into its place of the
  // counts. The plan has stats, the values one scale.
  absl::Status Count(const kernels::Exec& exec,
                     int64_t index,
                     const kernels::TensorView& values) const;
  // Before the passes of a step that counts: nothing counted.
  absl::Status BeginCounts(const kernels::Exec& exec) const;
  // After the last pass of a step that counts and before its update. `quantised`: the weights are.
  // Completes counts and magnitudes of all sites and puts them where the host reads them
  // (Counted()).
  absl::Status FinishCounts(const kernels::Exec& exec, bool quantised) const;
  // What a step that counted has left, to be read once the device is there: for all 3 n sites (X,
  // Dy, W) the largest magnitude, and two numbers of elements: zero, and at the format's maximum
  // (block scales: that became zero, and that saturated, of the form by rows; weights are not
  // counted); both 0 where the site was not quantised.
  struct Counts {
    const float* amax = nullptr;
    const uint64_t* counts = nullptr;  // [3 n][2]
    // Which of the two numbers is which: CountCodes and BlockForm::counts differ.
    size_t underflow = 0;
    size_t saturation = 1;
  };
  Counts Counted() const { return counted_; }
  // Device memory of the counts of a site: [2]. The plan has stats.
  uint64_t* CountsOf(int64_t index) const { return counts_ + 2 * index; }
  int parameter(int k) const { return weights_[static_cast<size_t>(k)]; }

  // Magnitudes of x and dy, and of the weights, as integers (kI32) that order as they do: for a
  // maximum over ranks. With a sharded optimizer each rank has recorded that of its pieces.
  kernels::TensorView ActivationAmax() const;
  kernels::TensorView WeightAmax() const;
  // What an exact resume needs.
  std::vector<QuantStateTensor> Tensors() const;

 private:
  void AddWeight(const spec::Parameter& parameter,
                 const kernels::TensorView& weight,
                 int k,
                 uint8_t* rows,
                 uint8_t* columns);
  void AddBlockWeight(const kernels::TensorView& weight, int k, uint8_t* rows, uint8_t* columns);
  // The fallback's scales are of the same magnitudes, which an update uses up.
  absl::Status ShareAmax(const kernels::Exec& exec, int64_t first, int64_t count) const;
  absl::Status UpdateBlockAmax(const kernels::Exec& exec,
                               int64_t first,
                               int64_t count,
                               const int32_t* skip) const;
  int64_t CountBytes() const { return 3 * size() * 2 * static_cast<int64_t>(sizeof(uint64_t)); }
  QuantSite At(int64_t index) const { return scales_.At(index); }
  float* amax(int64_t index = 0) const { return scales_.At(index).amax; }

  float* TensorScale(int64_t index, bool columns) const {
    return columns && column_scale_inverse_ != nullptr
               ? column_scale_inverse_ + index * kernels::kScaleInverseStride
               : scales_.At(index).scale_inverse;
  }

  spec::PrecisionPlan precision_;
  std::vector<int> weights_;
  std::vector<int> number_;  // by parameter
  std::vector<ProductOperand> rows_;
  std::vector<ProductOperand> columns_;
  std::vector<kernels::QuantizeTensor> measured_;        // magnitude alone
  std::vector<kernels::QuantizeTensor> quantized_;       // rows and columns
  std::vector<kernels::BlockQuantizeTensor> blocks_;     // the same with block scales, but
  std::vector<kernels::BlockQuantizeTensor> each_step_;  // columns whose signs are each step's own
  // Block scales: `scale` is the magnitude that the scale of the tensor is made for.
  TensorScales scales_;
  TensorScales fallback_;
  float* column_scale_inverse_ = nullptr;  // null: those of rows, as with one scale a tensor
  std::vector<int> layers_;                // by weight
  uint64_t* counts_ = nullptr;             // [3n][2]
  float* counted_amax_ = nullptr;          // [3n]
  Counts counted_;                         // the same, or the host's copies of them
};

}  // namespace hearth::trainer
