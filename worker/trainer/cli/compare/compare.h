// What `compare` makes of the runs of one job in several recipes: numbers, a table, JSON and a
// picture. The command itself, which starts the runs, is compare_command.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/io/env.h"
#include "hearth/v1/job.pb.h"

namespace hearth::trainer {

struct LossPoint {
  int64_t step = 0;
  double loss = 0;  // nats per token
};

// One recipe's run, and where it stands to the first one's.
struct ComparedRun {
  std::string recipe;
  // ok | refused (the job is not valid in this recipe) | failed | stopped (by a signal) | not run.
  std::string state = "not run";
  std::string problem;    // why, for people, in one line; empty when ok
  std::string execution;  // native | emulated; empty = it never got that far
  std::vector<LossPoint> training;
  std::vector<LossPoint> held_out;      // steps that evaluated
  int64_t tokens = 0;                   // consumed, all steps
  int64_t micro_batch_size = 0;         // sequences
  int64_t global_batch_tokens = 0;      // a step
  std::optional<double> training_loss;  // mean of the last `window` steps
  std::optional<double> held_out_loss;  // the last one
  double tokens_per_second = 0;         // median over steps, without those at the start
  int64_t memory_bytes = 0;             // the most in use: of the GPU, or of the process on a CPU
  int64_t planned_bytes = 0;            // of the memory plan
  int64_t skipped_steps = 0;            // attempts that the guard refused
  int64_t redone_steps = 0;             // of those, applied after all in another recipe
  // To the first run: percent, and factors. Empty for the first, and where either has no number.
  std::optional<double> training_gap;
  std::optional<double> held_out_gap;
  std::optional<double> speed_ratio;
  std::optional<double> memory_ratio;
  std::optional<double> planned_ratio;

  bool ok() const { return state == "ok"; }
};

struct Comparison {
  std::string job;
  std::string device;  // cpu | cuda:N
  int64_t steps = 0;
  int64_t window = 1;             // steps of the final training loss
  std::vector<ComparedRun> runs;  // the first is the reference
};

// Fills a run from what the trainer left in `folder` (run.json, metrics.jsonl). The state is left
// alone. kNotFound: no such file; kDataLoss: a line is not a step.
absl::Status ReadRun(Env& env, const std::string& folder, int64_t window, ComparedRun& run);

// Fills the gaps and ratios. Runs that are not ok have none.
void Relate(Comparison& comparison);

// A line that says what was compared, then the table; a run that is not ok has a line that says
// why.
std::string CompareTable(const Comparison& comparison);
// Indented, newline at the end; numbers that are not there or not finite are null.
std::string CompareJson(const Comparison& comparison);
// SVG: above, training loss (smoothed) and held-out loss; below, the gaps to the first run. On any
// background: all colours are of middle lightness.
std::string ComparePicture(const Comparison& comparison);

}  // namespace hearth::trainer
