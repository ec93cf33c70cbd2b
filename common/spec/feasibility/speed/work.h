// What one GPU computes in a step of a job: the products of its weights by shape and format,
// attention, and the bytes that everything else reads and writes. Made of what the model's blocks
// describe (common/spec/plan/blocks); knows no GPU.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/spec/gpus/gpus.h"
#include "common/spec/plan/training_plan.h"

namespace hearth::spec {

// c [m, n], contracted over k.
struct ProductWork {
  std::string weight;  // "qkv", "head"
  std::string pass;    // "forward", "dgrad", "wgrad", "forward again", "update"
  MatrixFormat format = MatrixFormat::kBf16;
  double m = 0;
  double n = 0;
  double k = 0;
  double calls = 0;     // a micro-batch, those of "update" a step
  bool addend = false;  // it also reads a matrix of the shape of c
  // Bytes of a value of c if c is a gradient, to which all its calls of a step but the first add.
  double gradient_bytes = 0;
  double weights = 1;  // that have this name and shape, of all layers

  double flops() const { return 2 * m * n * k * calls; }
};

// Kernels of one kind, of a micro-batch.
struct PassWork {
  std::string name;  // "norm", "attention"
  double bytes = 0;
  double forward_flops = 0;  // of attention's products
  double backward_flops = 0;
};

// The update of parameters whose state is in codes of so many bits.
struct CodedUpdate {
  int bits = 0;
  double values = 0;  // decoded and encoded
  double bytes = 0;   // read and written
};

struct StepWork {
  std::vector<ProductWork> products;  // of a micro-batch
  std::vector<PassWork> passes;       // of a micro-batch
  int64_t head_dim = 0;               // of attention
  int64_t sequence_length = 0;
  double launches = 0;  // kernels of a micro-batch
  // Once a step: gradient norm, optimizer, quantised weights.
  double update_bytes = 0;              // of parameters whose state has no codes
  std::vector<CodedUpdate> coded = {};  // and of the others
  std::vector<ProductWork> update_products = {};
  double update_launches = 0;  // of these products
  // What the update fetches of the host's memory (offload); it writes back no more.
  double host_bytes = 0;
  // What layers keep of a micro-batch in the host's memory (offload.activations): it goes there in
  // the forward part and comes back in the backward part. Beside it runs what layers compute, these
  // shares of the operations of a micro-batch's products.
  double kept_bytes = 0;
  double forward_share = 0;
  double backward_share = 0;  // with what is computed again
  // What ranks exchange, whole: gradients on their way to the rank that sums them, and what is then
  // handed round, the sums or with a divided optimizer the new weights.
  double gradient_bytes = 0;
  double handed_round_bytes = 0;
  // Divided gradients: ranks sum them after each micro-batch, not only after the last.
  bool sums_each_micro_batch = false;
  // Divided weights: gathered in the forward and in the backward part of each micro-batch, whole;
  // none are handed round then.
  double forward_weight_bytes = 0;
  double backward_weight_bytes = 0;
  // Whole gradients that ranks gather and give back between backward and the update.
  double whole_gradient_bytes = 0;
};

// `quantised` is what products of quantised layers run in. Expects options of MakePlanInputs.
StepWork WorkOf(const TrainingPlanOptions& options, MatrixFormat quantised);

}  // namespace hearth::spec
