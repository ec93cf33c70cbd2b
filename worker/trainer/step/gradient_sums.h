// How the ranks sum their gradients: by what the transport adds itself, or in blocks with scales
// (block_sums.h). The format that they travel in chooses (common/formats/reduce_formats.h).
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "kernels/core/exec.h"
#include "kernels/core/tensor.h"
#include "worker/trainer/comm/collective.h"

namespace hearth::trainer {

class Engine;

// All ranks make the same calls in the same order. Operations are in the order of exec's stream.
// Not thread-safe.
class GradientSums {
 public:
  GradientSums() = default;
  GradientSums(const GradientSums&) = delete;
  GradientSums& operator=(const GradientSums&) = delete;
  virtual ~GradientSums() = default;

  // `data` [n] holds its sums over the ranks afterwards, the same bits on each.
  virtual absl::Status AllReduce(const kernels::Exec& exec, const kernels::TensorView& data) = 0;
  // `data` [n] is one equal part for each rank. This rank's part holds its sums afterwards; what
  // the other parts hold is not specified.
  virtual absl::Status ReduceScatter(const kernels::Exec& exec,
                                     const kernels::TensorView& data) = 0;

  // Bytes that all ranks' parts of `elements` elements travel as, and all their sums.
  virtual int64_t PartBytes(int64_t elements) const = 0;
  virtual int64_t SumBytes(int64_t elements) const = 0;
};

// In the engine's reduce format and its memory for the exchange. Engine and collective outlive it.
std::unique_ptr<GradientSums> NewGradientSums(const Engine& engine, Collective& comm);

}  // namespace hearth::trainer
