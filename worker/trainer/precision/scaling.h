// How one recipe scales what it quantises: the forms of its operands, and what it does for all of
// them at once between passes. MakeScaling takes the implementation of the recipe's way of scaling
// from a table; nobody else asks what it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "common/spec/recipe/precision.h"
#include "kernels/core/exec.h"
#include "kernels/core/tensor.h"
#include "kernels/step_gate/step_gate.h"
#include "worker/trainer/model/arena.h"
#include "worker/trainer/precision/operand.h"
#include "worker/trainer/precision/sites.h"

namespace hearth::trainer {

// A weight and where its quantised forms live: `rows` is what fprop reads, `columns` dgrad.
struct QuantisedWeight {
  kernels::TensorView weight;
  void* rows = nullptr;
  void* columns = nullptr;
  // The recipe of its products; lives for ever.
  const spec::Recipe* recipe = nullptr;
};

// What a recipe says of the two forms of a tensor.
struct FormOperands {
  const spec::Operand& rows;
  const spec::Operand& columns;
};
FormOperands OperandsOf(const spec::Recipe& recipe, Role role);

// Everything that outlives a Scaling.
struct ScalingContext {
  const spec::PrecisionPlan* precision = nullptr;
  QuantSites sites;
  const Arena* arena = nullptr;
  std::vector<QuantisedWeight> weights;  // by number
  uint64_t* counts = nullptr;            // [3 n][2]; null: nothing is counted

  int64_t size() const { return static_cast<int64_t>(weights.size()); }
  // The site of operand `role` of weight `k`.
  int64_t Site(Role role, int k) const { return static_cast<int64_t>(role) * size() + k; }
  FormOperands Operands(Role role, int k) const {
    return OperandsOf(*weights[static_cast<size_t>(k)].recipe, role);
  }
};

// Quantised weights by number, [first, first + count).
struct WeightRange {
  size_t first = 0;
  size_t count = 0;
};

// `skip` and `counter` as in kernels/quantize/quantize.h.
class Scaling {
 public:
  virtual ~Scaling() = default;
  // The form of an operand of weight `k`.
  virtual std::shared_ptr<const OperandForm> Bind(Role role,
                                                  int k,
                                                  const OperandBuffers& buffers) const = 0;
  // Nothing recorded yet; behind QuantSites::Reset.
  virtual absl::Status Reset(const kernels::Exec& exec) const;
  // Where BeginStep finds the job's seed and the step, on the tensors' device; once, before it.
  virtual void BindStep(uint64_t seed, const kernels::StepInputs* position);
  // Before the first micro-batch of a quantised step: what of the weights is new in each step.
  virtual absl::Status BeginStep(const kernels::Exec& exec, const WeightRange& weights) const;
  // After a step, from what was recorded at the sites of x and dy, and of the weights.
  virtual absl::Status UpdateActivations(const kernels::Exec& exec, const int32_t* skip) const;
  virtual absl::Status UpdateWeights(const kernels::Exec& exec, const int32_t* skip) const = 0;
  virtual absl::Status QuantizeWeights(const kernels::Exec& exec,
                                       const WeightRange& weights,
                                       const int32_t* skip,
                                       uint64_t* counter) const = 0;
  // The weights' part of the counts, where they are counted.
  virtual absl::Status CountWeights(const kernels::Exec& exec, const WeightRange& weights) const;
  // Which of a site's two counts is that of elements that became zero; the other is of those at the
  // format's maximum.
  virtual size_t underflow() const = 0;
};

// Null: the plan quantises nothing.
std::unique_ptr<Scaling> MakeScaling(const ScalingContext& context);

}  // namespace hearth::trainer
