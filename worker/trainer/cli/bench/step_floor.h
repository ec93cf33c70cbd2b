// The speed of light of a job's step on this GPU: its GEMMs and its attention alone, each at the
// speed measured here, nothing else in between.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/spec/model/parameter.h"
#include "worker/trainer/step/engine.h"

namespace hearth::trainer {

struct FloorRow {
  std::string name;         // "qkv fprop"
  double milliseconds = 0;  // of one call
  double flops = 0;         // of one call
  int64_t calls = 0;        // in a micro-batch
};

struct StepFloor {
  std::vector<FloorRow> rows;
  double gemm_ms = 0;       // of a micro-batch
  double attention_ms = 0;  // of a micro-batch
};

// Linear layers of one shape that a model's layers have at the same place.
struct FloorLinear {
  std::string name;                         // "gate_up"
  const spec::Parameter* weight = nullptr;  // of the first
  int64_t calls = 0;                        // in a micro-batch
  bool head = false;                        // the output projection
};

// In the order of the table, which outlives them.
std::vector<FloorLinear> FloorLinears(const std::vector<spec::Parameter>& table);

// On buffers of its own, random values. `quantised`: linear layers in the recipe's FP8 where it has
// them. Only on a GPU. Waits for the stream.
absl::StatusOr<StepFloor> MeasureFloor(const Engine& engine, bool quantised);

}  // namespace hearth::trainer
