// How long a step takes on a GPU: its work through the GPU's rates. A model, not a measurement;
// docs/plan.md says what it was compared with.
#pragma once

#include <string>
#include <vector>

#include "common/spec/feasibility/speed/calibration.h"
#include "common/spec/feasibility/speed/work.h"

namespace hearth::spec {

struct ProductTime {
  ProductWork work;
  double seconds = 0;  // of all calls of a micro-batch; those of "update": of a step
};

struct StepTime {
  std::vector<ProductTime> products = {};
  // Seconds of a whole step of one GPU.
  double product_seconds = 0;
  double attention_seconds = 0;
  double memory_seconds = 0;          // kernels bound by memory, in the micro-batches
  double update_seconds = 0;          // optimizer, its products included
  double gap_seconds = 0;             // between kernels
  double stretch_seconds = 0;         // the lower clock of a GPU at its power limit
  double emulated_seconds = 0;        // what emulating a recipe adds
  double exchange_seconds = 0;        // of gradients and weights, what compute does not hide
  double lockstep_seconds = 0;        // waiting for the slowest GPU
  double offload_seconds = 0;         // kernels wait for the link to the host's memory
  double seconds = 0;                 // the sum of these
  double update_product_seconds = 0;  // part of update_seconds: matrix products
  double watts = 0;                   // of a GPU, mean of a step; 0 = not known
  std::string unknown;                // what the tables lack for this: then all of the above are 0

  bool known() const { return unknown.empty(); }
};

struct StepSetting {
  double micro_batches = 1;  // that this GPU computes in a step
  int gpus = 1;
  bool emulated = false;
};

StepTime TimeOf(const StepWork& work,
                const GpuRow& gpu,
                const Calibration& calibration,
                const StepSetting& setting);

}  // namespace hearth::spec
