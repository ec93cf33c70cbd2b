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
  // What differs beside the recipe (compare_plan.h): the setting of --vary, for people and as
  // assignments, that of the run it is compared with, and with --seeds the seed.
  std::string setting;
  std::vector<std::string> overrides;
  std::string reference_setting;
  std::optional<int64_t> seed;
  // ok | refused (the job is not valid in this recipe) | failed | stopped (by a signal) | not run |
  // not ended (--report found no end of it).
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
  // To its reference: percent, and factors. Empty for references, and where either has no number.
  std::optional<double> training_gap;
  std::optional<double> held_out_gap;
  std::optional<double> speed_ratio;
  std::optional<double> memory_ratio;
  std::optional<double> planned_ratio;

  bool ok() const { return state == "ok"; }
  bool not_ended() const { return state == "not ended"; }
  // Without the seed: "nvfp4 bf16_tail=0.1".
  std::string name() const { return setting.empty() ? recipe : recipe + " " + setting; }
};

struct Comparison {
  std::string job;
  std::string device;  // cpu | cuda:N
  int64_t steps = 0;
  int64_t window = 1;             // steps of the final training loss
  std::vector<ComparedRun> runs;  // all that are planned; the first's recipe is the reference
  int seeds = 0;                  // of each; 0 = one, and nobody asked for more

  // Each row of the table is several runs, or a setting of one (compare_rows.h).
  bool in_rows() const;
};
// The run that another is compared with, by index: of the first recipe with the same seed. The run
// itself where it is one; nullopt: there is none.
std::optional<size_t> ReferenceOf(const Comparison& comparison, size_t run);

// Fills a run from what the trainer left in `folder` (run.json, metrics.jsonl). The state is left
// alone. kNotFound: no such file; kDataLoss: a line is not a step.
absl::Status ReadRun(Env& env, const std::string& folder, int64_t window, ComparedRun& run);

// Fills the gaps and ratios. A run has none if it or its reference is not ok.
void Relate(Comparison& comparison);

// Why nothing can be compared: runs are ok, and none of them is of the reference. Else empty.
std::string ProblemOf(const Comparison& comparison);

// A line that says what was compared, then the table; a run that is not ok has a line that says
// why. In rows: means over the seeds with their standard errors, and below what is not significant.
// Below: which runs have not ended.
std::string CompareTable(const Comparison& comparison);
// Indented, newline at the end; numbers that are not there or not finite are null.
std::string CompareJson(const Comparison& comparison);
// SVG: above, training loss (smoothed) and held-out loss; below, the gaps to the reference. Of
// several seeds the means, and the standard errors of held-out gaps as bars. On any background: all
// colours are of middle lightness.
std::string ComparePicture(const Comparison& comparison);

}  // namespace hearth::trainer
