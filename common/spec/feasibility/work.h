// What one GPU computes in a step of a job: the products of its weights by shape and format,
// attention, and the bytes that everything else reads and writes. Made of what the model's blocks
// describe (common/spec/plan/blocks); knows no GPU.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/spec/plan/gpus.h"
#include "common/spec/plan/training_plan.h"

namespace hearth::spec {

// c [m, n], contracted over k.
struct ProductWork {
  std::string weight;  // "qkv", "head"
  std::string pass;    // "forward", "dgrad", "wgrad", "forward again"
  MatrixFormat format = MatrixFormat::kBf16;
  double m = 0;
  double n = 0;
  double k = 0;
  double calls = 0;  // a micro-batch

  double flops() const { return 2 * m * n * k * calls; }
};

// Kernels of one kind, of a micro-batch.
struct PassWork {
  std::string name;  // "norm", "attention"
  double bytes = 0;
  double forward_flops = 0;  // of attention's products
  double backward_flops = 0;
};

struct StepWork {
  std::vector<ProductWork> products;  // of a micro-batch
  std::vector<PassWork> passes;       // of a micro-batch
  int64_t head_dim = 0;               // of attention
  int64_t sequence_length = 0;
  double launches = 0;        // kernels of a micro-batch
  double update_bytes = 0;    // gradient norm, optimizer, quantised weights: once a step
  double gradient_bytes = 0;  // that ranks exchange once a step, in the format they do it in
};

// `quantised` is what products of quantised layers run in. Expects options of MakeJobPlan.
StepWork WorkOf(const TrainingPlanOptions& options, MatrixFormat quantised);

}  // namespace hearth::spec
