// `bench --devices`: the job's step on several GPUs of this machine at once, a thread and a rank
// each, against the same work on the first of them alone.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/base/units.h"
#include "common/base/version.h"
#include "common/facts/complete_spec.h"
#include "common/spec/plan/memory_plan.h"
#include "common/spec/plan/plan_inputs.h"
#include "nlohmann/json.hpp"
#include "worker/trainer/cli/bench/bench_world.h"
#include "worker/trainer/cli/verbs.h"
#include "worker/trainer/comm/nccl/nccl_version.h"
#include "worker/trainer/device/rank_device.h"

namespace hearth::trainer {
namespace {

absl::StatusOr<std::vector<std::string>> ParseDevices(const std::string& text) {
  std::vector<std::string> devices;
  int gpus = 0;
  for (const absl::string_view name : absl::StrSplit(text, ',')) {
    int gpu = 0;
    const bool number = absl::SimpleAtoi(name, &gpu) && gpu >= 0;
    if (!number && name != "cpu" && !absl::StartsWith(name, "cuda:")) {
      return absl::InvalidArgumentError(
          absl::StrCat("--devices ", text, ": \"", name, "\" is neither a GPU's number nor cpu"));
    }
    devices.push_back(number ? absl::StrCat("cuda:", gpu) : std::string(name));
    gpus += devices.back() == "cpu" ? 0 : 1;
    const auto same = std::count(devices.begin(), devices.end(), devices.back());
    if (devices.back() != "cpu" && same > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("--devices ", text, ": ", devices.back(), " is named twice"));
    }
  }
  if (gpus != 0 && gpus != static_cast<int>(devices.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("--devices ", text, ": a job is on GPUs or on the CPU, not on both"));
  }
  return devices;
}

// A rank alone holds everything: what fits divided may not fit it.
absl::Status FitAlone(int64_t bytes, BenchWorld& world) {
  if (world.spec.batch().micro_batch_size() == 0) {
    HEARTH_ASSIGN_OR_RETURN(const int64_t alone, spec::ResolveMicroBatch(world.spec, world.size(),
                                                                         world.threads, bytes));
    world.micro_batch = std::min(world.micro_batch, alone);
    return absl::OkStatus();
  }
  HEARTH_ASSIGN_OR_RETURN(
      const std::unique_ptr<spec::PlanInputs> inputs,
      spec::MakePlanInputs(world.spec, world.micro_batch, world.threads, /*training=*/true));
  HEARTH_ASSIGN_OR_RETURN(const spec::MemoryPlan plan, spec::PlanTraining(inputs->options));
  if (plan.arena_bytes() > bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "batch.micro_batch_size: one device alone, which the others are compared with, holds the ",
        "whole optimizer and needs ", FormatBytes(plan.arena_bytes()), " for ", world.micro_batch,
        ", has ", FormatBytes(bytes), "; take less, or auto"));
  }
  return absl::OkStatus();
}

// Spec, micro-batch and level of parallel.shard of the whole world.
absl::Status Resolve(const BenchOptions& options, BenchWorld& world) {
  HEARTH_ASSIGN_OR_RETURN(world.devices, ParseDevices(options.devices));
  JobOptions job = options.job;
  // Before the job is checked: what acts on several ranks acts here, whatever its file says.
  job.overrides.push_back(absl::StrCat("resources.workers=", world.size()));
  job.overrides.push_back("resources.min_workers=1");
  HEARTH_ASSIGN_OR_RETURN(world.spec, LoadJob(job));
  world.spec.mutable_resources()->set_device(OnGpu(world) ? "cuda" : "cpu");
  if (!world.spec.model().has_vocab()) {
    HEARTH_RETURN_IF_ERROR(facts::CompleteSpec(world.spec, Env::Real()));
  }
  if (options.micro_batch > 0) {
    world.spec.mutable_batch()->set_micro_batch_size(options.micro_batch);
  }
  world.steps = options.steps;
  world.threads = std::max(1, ThreadsOrAll(options.threads) / (OnGpu(world) ? 1 : world.size()));
  int64_t bytes = CpuMemoryBytes(world.size());
  if (OnGpu(world)) {
    HEARTH_ASSIGN_OR_RETURN(const auto cuda, OpenGpu(world.devices.front(), false));
    HEARTH_ASSIGN_OR_RETURN(bytes, GpuMemoryBytes(*cuda, world.size()));
  }
  HEARTH_ASSIGN_OR_RETURN(world.shard,
                          spec::ResolveShardLevel(world.spec, world.size(), world.threads, bytes,
                                                  world.spec.batch().micro_batch_size()));
  HEARTH_ASSIGN_OR_RETURN(
      world.micro_batch,
      spec::ResolveMicroBatch(world.spec, world.size(), world.threads, bytes, world.shard));
  return spec::RowOf(world.shard).optimizer ? FitAlone(bytes, world) : absl::OkStatus();
}

// The slowest rank of each step, milliseconds. Ranks that run each for itself may have taken more
// steps than others.
std::vector<double> SlowestOf(const std::vector<BenchRankResult>& ranks) {
  size_t steps = ranks.front().steps_ms.size();
  for (const BenchRankResult& rank : ranks) {
    steps = std::min(steps, rank.steps_ms.size());
  }
  std::vector<double> slowest(steps, 0.0);
  for (const BenchRankResult& rank : ranks) {
    for (size_t i = 0; i < slowest.size(); ++i) {
      slowest[i] = std::max(slowest[i], rank.steps_ms[i]);
    }
  }
  return slowest;
}

// How long the first rank to get there waited for the last one, for each step, milliseconds.
std::vector<double> SkewOf(const std::vector<BenchRankResult>& ranks) {
  std::vector<double> skew;
  for (size_t i = 0; i < ranks.front().exposed_steps_ms.size(); ++i) {
    const auto [least, most] =
        std::minmax_element(ranks.begin(), ranks.end(), [i](const auto& a, const auto& b) {
          return a.exposed_steps_ms[i] < b.exposed_steps_ms[i];
        });
    skew.push_back(most->exposed_steps_ms[i] - least->exposed_steps_ms[i]);
  }
  return skew;
}

// Milliseconds of a step without peers.
struct AloneResult {
  double before = 0;  // on the first device, before the ranks' run and after it
  double after = 0;
  double before_p10 = 0;
  double before_p90 = 0;
  double apart = 0;  // the slowest of all devices, all of them busy with work of their own
  // The same, but the median of each step's slowest: steps that wait for one another and exchange
  // nothing would take this long.
  double apart_in_step = 0;
  // All of them, each step begun together: they exchange the step's sums, a few numbers.
  double lockstep = 0;
  double lockstep_p10 = 0;
  double lockstep_p90 = 0;
  double mean() const { return (before + after) / 2; }
};

// What was run, and on what.
nlohmann::json FactsOf(const BenchWorld& world,
                       const spec::BatchPlan& batch,
                       const BenchRankResult& rank) {
  nlohmann::json out;
  out["job"] = world.spec.name();
  out["commit"] = std::string(GitCommit());
  out["recipe"] = world.spec.precision().recipe();
  out["device"] = rank.device_name;
  out["ranks"] = world.size();
  out["transport"] = OnGpu(world) ? "nccl" : "threads";
  if (OnGpu(world)) {
    out["nccl"] = NcclVersion().value_or("");
  }
  out["shard"] = std::string(spec::RowOf(world.shard).name);
  out["shards"] = spec::ShardsOf(world.shard, world.size());
  if (world.spec.parallel().has_bucket_mib()) {
    out["bucket_mib"] = world.spec.parallel().bucket_mib();
  }
  out["micro_batch_size"] = batch.micro_batch;
  out["micro_batches"] = batch.rounds();
  out["sequence_length"] = batch.sequence_length;
  out["global_batch_tokens"] = batch.global_tokens();
  out["steps"] = rank.steps_ms.size();
  out["warm_up_steps"] = rank.warm_up_steps;
  return out;
}

nlohmann::json ReportOf(const BenchWorld& world,
                        const spec::BatchPlan& batch,
                        const AloneResult& alone,
                        const std::vector<BenchRankResult>& ranks) {
  const auto round_tokens =
      static_cast<double>(batch.rounds() * batch.micro_batch * batch.sequence_length);
  double step_ms = 0;
  std::vector<double> exposed;
  std::vector<double> by_rank;
  for (const BenchRankResult& rank : ranks) {
    step_ms = std::max(step_ms, rank.step_ms);
    exposed.push_back(rank.exposed_ms);
    by_rank.push_back(rank.step_ms);
  }
  const double one = round_tokens / alone.mean() * 1e3;
  const double all = static_cast<double>(batch.global_tokens()) / step_ms * 1e3;
  nlohmann::json out = FactsOf(world, batch, ranks.front());
  out["tok_s"] = all;
  out["step_ms"] = step_ms;
  const std::vector<double> joint = SlowestOf(ranks);
  out["tok_s_p10"] = static_cast<double>(batch.global_tokens()) / Quantile(joint, 0.9) * 1e3;
  out["tok_s_p90"] = static_cast<double>(batch.global_tokens()) / Quantile(joint, 0.1) * 1e3;
  out["step_ms_p10"] = Quantile(joint, 0.1);
  out["step_ms_p90"] = Quantile(joint, 0.9);
  out["step_ms_ranks"] = by_rank;
  out["tok_s_alone"] = one;
  out["step_ms_alone"] = alone.mean();
  out["step_ms_alone_before"] = alone.before;
  out["step_ms_alone_after"] = alone.after;
  out["step_ms_alone_p10"] = alone.before_p10;
  out["step_ms_alone_p90"] = alone.before_p90;
  out["step_ms_apart"] = alone.apart;
  out["step_ms_apart_in_step"] = alone.apart_in_step;
  out["step_ms_lockstep"] = alone.lockstep;
  out["step_ms_lockstep_p10"] = alone.lockstep_p10;
  out["step_ms_lockstep_p90"] = alone.lockstep_p90;
  out["scaling_efficiency"] = all / (world.size() * one);
  out["scaling_efficiency_apart"] = alone.apart / step_ms;
  out["scaling_efficiency_in_step"] = alone.apart_in_step / step_ms;
  out["scaling_efficiency_lockstep"] = alone.lockstep / step_ms;
  // The slowest rank waits for nobody: its share is communication alone.
  out["exposed_comm_ms"] = *std::max_element(exposed.begin(), exposed.end());
  out["exposed_comm_ms_least"] = *std::min_element(exposed.begin(), exposed.end());
  const std::vector<double> skew = SkewOf(ranks);
  out["skew_ms"] = Median(skew);
  out["skew_ms_p90"] = Quantile(skew, 0.9);
  if (OnGpu(world)) {
    out["predicted_bytes"] = ranks.front().predicted_bytes;
    out["measured_bytes"] = ranks.front().measured_bytes;
  }
  out["comm_bytes_per_step"] = ranks.front().comm_bytes;
  out["loss"] = ranks.front().loss;
  out["losses_agree"] = std::all_of(ranks.begin(), ranks.end(), [&](const BenchRankResult& rank) {
    return rank.loss == ranks.front().loss;
  });
  return out;
}

// Each of `devices` at the same time with what would be its share of the job: as many
// micro-batches, nobody to talk to.
std::vector<BenchRankResult> MeasureAlone(const BenchWorld& world,
                                          const spec::BatchPlan& batch,
                                          const std::vector<std::string>& devices,
                                          bool save_plans) {
  std::vector<BenchRankResult> results(devices.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < devices.size(); ++i) {
    threads.emplace_back([&, i] {
      BenchWorld alone(static_cast<const BenchSetup&>(world));
      alone.spec.mutable_resources()->set_workers(1);
      alone.spec.mutable_resources()->set_min_workers(1);
      alone.spec.mutable_batch()->set_global_batch_tokens(batch.rounds() * batch.micro_batch *
                                                          batch.sequence_length);
      alone.devices = {devices[i]};
      alone.shard = spec::ShardLevel::kOff;
      alone.save_plans = save_plans;
      results[i] = RunWorld(alone).front();
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return results;
}

// Into `alone`: the step of the ranks of `world` when all they exchange is the step's sums.
void MeasureLockstep(const BenchWorld& world, AloneResult& alone) {
  BenchWorld lockstep(static_cast<const BenchSetup&>(world));
  lockstep.save_plans = false;
  lockstep.exchanged = Exchanged::kStepSums;
  const std::vector<BenchRankResult> ranks = RunWorld(lockstep);
  for (const BenchRankResult& rank : ranks) {
    alone.lockstep = std::max(alone.lockstep, rank.step_ms);
  }
  const std::vector<double> slowest = SlowestOf(ranks);
  alone.lockstep_p10 = Quantile(slowest, 0.1);
  alone.lockstep_p90 = Quantile(slowest, 0.9);
}

absl::Status RunScaling(const BenchOptions& options) {
  BenchWorld world;
  HEARTH_RETURN_IF_ERROR(Resolve(options, world));
  HEARTH_ASSIGN_OR_RETURN(const spec::BatchPlan batch,
                          spec::ResolveBatchPlan(world.spec, world.micro_batch, world.size()));
  if (batch.micro_batches % world.size() != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the global batch is ", batch.micro_batches, " micro-batches of ", batch.micro_batch,
        " sequences, which ", world.size(), " ranks cannot share evenly; set ",
        "batch.global_batch_tokens to a multiple of ",
        batch.micro_batch * batch.sequence_length * world.size()));
  }
  // Minutes may pass; standard output is for the result.
  const auto next = [](const char* what) { std::fprintf(stderr, "measuring: %s\n", what); };
  AloneResult alone;
  next("the first device alone");
  const BenchRankResult single = MeasureAlone(world, batch, {world.devices.front()}, true).front();
  alone.before = single.step_ms;
  alone.before_p10 = Quantile(single.steps_ms, 0.1);
  alone.before_p90 = Quantile(single.steps_ms, 0.9);
  world.plans = single.plans;
  next("all devices, each for itself");
  const std::vector<BenchRankResult> apart = MeasureAlone(world, batch, world.devices, false);
  for (const BenchRankResult& result : apart) {
    alone.apart = std::max(alone.apart, result.step_ms);
  }
  alone.apart_in_step = Median(SlowestOf(apart));
  next("all devices in step, without gradients");
  MeasureLockstep(world, alone);
  world.save_plans = true;
  next("all devices together");
  const std::vector<BenchRankResult> ranks = RunWorld(world);
  next("the first device alone again");
  alone.after = MeasureAlone(world, batch, {world.devices.front()}, false).front().step_ms;
  const nlohmann::json out = ReportOf(world, batch, alone, ranks);
  if (options.json) {
    std::printf("%s\n", out.dump().c_str());
    return absl::OkStatus();
  }
  for (const auto& [key, value] : out.items()) {
    std::printf("%-20s %s\n", key.c_str(), value.dump().c_str());
  }
  return absl::OkStatus();
}

}  // namespace

int ScalingBenchCommand(const BenchOptions& options) {
  return ExitCodeOf(RunScaling(options));
}

}  // namespace hearth::trainer
