// Whether a job fits on a GPU, how long it takes and what it costs: one judgement for jobctl, the
// API and the trainer. Pure: the result follows from the job, the GPU's row, its calibration and
// the query. memory/ says what it needs, speed/ how fast it is; savings.h what to change where it
// does not fit, and feasibility_text.h says all of it to people.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/spec/feasibility/memory/memory_parts.h"
#include "common/spec/feasibility/prices.h"
#include "common/spec/feasibility/speed/step_time.h"
#include "hearth/v1/job.pb.h"
#include "hearth/v1/plan.pb.h"

namespace hearth::spec {

inline constexpr int kMostPlannedGpus = 1024;

// 0 where nothing else is said: not asked, or as the job says.
struct FeasibilityQuery {
  int gpus = 0;                     // of one host, at most kMostPlannedGpus; 0 = resources.workers
  int64_t memory_bytes = 0;         // of each GPU; 0 = its row's
  int64_t host_memory_bytes = 0;    // of the host, for all these GPUs together; 0 = not known
  double tokens = 0;                // to train on; 0 = train.steps of the global batch
  double tokens_per_parameter = 0;  // the same as a multiple of the parameters
  double wanted_tok_s = 0;          // of all GPUs together
  Prices prices;
  double card_price = 0;          // 0 = the row's, if it has one
  double lifetime_hours = 26280;  // of a bought GPU: three years
  double mtbf_hours = 50000;  // of one GPU between failures (Llama 3 405B's run: arXiv 2407.21783)
  double restart_seconds = 60;      // from a failure to the next step
  double checkpoint_seconds = 0.5;  // that training stands still for one
};

// The job with as many workers as the question has GPUs. Before the job is resolved, because its
// defaults and the rules go by that number.
v1::JobSpec JobOfQuestion(v1::JobSpec job_spec, const FeasibilityQuery& query);

// kInvalidArgument: a number that is negative, not finite or out of range, by its option's name.
absl::Status CheckQuery(const FeasibilityQuery& query);

enum class Verdict : uint8_t { kYes, kYesWithChanges, kNo };
// Time for tokens at this speed, when a share of `goodput` of it trains. All above 0.
double TrainingSeconds(double tokens, double tokens_per_second, double goodput);

// "YES", "YES WITH CHANGES", "NO".
std::string_view VerdictName(Verdict verdict);

struct LevelRow {
  std::string recompute;
  double activation_bytes = 0;      // a token
  int64_t total_bytes = 0;          // of the GPU, with the micro-batch of the judgement
  int64_t largest_micro_batch = 0;  // that fits; 0 = none
  double step_seconds = 0;          // 0 = not known
  bool fits = false;
};

// A way to need less memory.
struct Saving {
  std::string change;       // "recompute: block"
  int64_t saved_bytes = 0;  // of the job as it is; negative: it needs more
  double time_ratio = 0;    // of a step; 0 = not known
  std::string loss = {};    // what was measured of the loss with it: "same", "+0.8 %"; or nothing
};

struct Change {
  std::string field;  // "batch.micro_batch_size"
  std::string value;
};

struct Feasibility {
  std::string job;
  std::string gpu;
  int gpus = 1;
  std::string plan_only;  // why Hearth does not run on this GPU
  // What was judged: the job, with `changes` put in.
  int64_t parameters = 0;
  double flops_per_token = 0;
  std::string recipe;
  std::string execution;       // "native", "emulated", "none"
  std::string execution_note;  // why not natively
  std::string recompute;
  int64_t micro_batch = 0;
  int64_t micro_batches = 0;  // a step, of all GPUs
  int64_t sequence_length = 0;
  int64_t shards = 1;  // GPUs among which the optimizer is divided
  std::string shard;   // level of parallel.shard
  // Memory of each GPU.
  std::vector<MemoryPart> memory;  // add up to total_bytes
  int64_t total_bytes = 0;
  int64_t device_bytes = 0;
  int64_t host_bytes = 0;  // pinned memory of the host, for each GPU
  int64_t largest_micro_batch = 0;
  std::vector<LevelRow> levels;
  std::vector<Saving> savings;
  // Time. 0 where time.unknown says what is not known.
  StepTime time;
  double tok_s = 0;  // of all GPUs, while training
  double mfu = 0;    // of the BF16 rate: above 1 where products run in narrower formats
  double peak_tok_s =
      0;  // if every product ran at its data sheet's rate and nothing else took time
  double tokens = 0;
  double seconds = 0;  // with checkpoints and failures
  double goodput = 1;  // share of the time that trains
  // Energy and cost of all GPUs. Absent: not known, or no price given.
  std::optional<double> joules;
  std::optional<double> power_cost;
  std::optional<double> rent_cost;
  std::optional<double> purchase_cost;  // the used share of the lifetime, and power
  std::optional<double>
      break_even_hours;  // of use, from which a bought GPU is cheaper than renting
  Verdict verdict = Verdict::kNo;
  std::vector<Change> changes;       // of kYesWithChanges
  std::vector<std::string> reasons;  // each with its figure
  std::string confidence;

  // Share of peak_tok_s that is reached, 0..1; 0 = not known.
  double peak_share() const { return peak_tok_s > 0 ? tok_s / peak_tok_s : 0; }
};

// Judges one job on many GPUs; plans of one shape are made once. Not thread-safe.
class FeasibilityJudge {
 public:
  // `job_spec` is JobOfQuestion, resolved, vocabulary and model.from included. `ended`: jobs that
  // were measured, for what is said of the confidence.
  FeasibilityJudge(const v1::JobSpec& job_spec,
                   FeasibilityQuery query,
                   std::vector<v1::JobPlan> ended = {});
  ~FeasibilityJudge();

  // A job that does not fit is no error. kInvalidArgument: CheckQuery refuses the query, or the job
  // itself is invalid.
  absl::StatusOr<Feasibility> Judge(const GpuRow& gpu, const Calibration& calibration);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

absl::StatusOr<Feasibility> AssessFeasibility(const v1::JobSpec& job_spec,
                                              const GpuRow& gpu,
                                              const Calibration& calibration,
                                              const FeasibilityQuery& query);

// "14.6 of 32 GB; 5.3 h; $0.42; confidence: measured on this GPU".
std::string FeasibilityLine(const Feasibility& f, const std::string& currency);

}  // namespace hearth::spec
