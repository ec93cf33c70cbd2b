// `bench --devices`: the job's step on several GPUs of this machine at once, a thread and a rank
// each, against the same work on the first of them alone.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "common/base/status_macros.h"
#include "common/base/units.h"
#include "common/base/version.h"
#include "common/spec/gpus.h"
#include "common/spec/job_plan.h"
#include "common/spec/memory_plan.h"
#include "nlohmann/json.hpp"
#include "worker/trainer/cli/bench_inputs.h"
#include "worker/trainer/cli/commands.h"
#include "worker/trainer/cli/measured_gpu.h"
#include "worker/trainer/comm/collective.h"
#include "worker/trainer/comm/nccl_version.h"
#include "worker/trainer/step/engine.h"
#include "worker/trainer/step/job_facts.h"
#include "worker/trainer/step/program.h"

namespace hearth::trainer {
namespace {

// A GPU at its power limit needs about a second to settle; so many steps at least.
constexpr int kWarmUpSteps = 8;

// What all ranks of a measurement share.
struct World {
  v1::JobSpec spec;
  std::vector<std::string> devices;  // of the ranks
  int64_t micro_batch = 0;
  int threads = 1;
  int steps = 0;
  int shards = 1;
  std::string plans;  // GEMM choices; empty: every rank makes its own
  // Rank 0 keeps its choices for later runs. Not where several worlds run at once: their rank 0s
  // would write the same file.
  bool save_plans = false;
  Exchanged exchanged = Exchanged::kGradients;
  LocalKeyValueStore store;
  std::vector<std::unique_ptr<Collective>> cpu_ranks;

  int size() const { return static_cast<int>(devices.size()); }
};

// Of one rank; milliseconds are medians over the steps.
struct RankResult {
  double step_ms = 0;
  std::vector<double> steps_ms;
  double exposed_ms = 0;  // after the last gradient, until the ranks' sums are there
  std::vector<double> exposed_steps_ms;
  int64_t comm_bytes = 0;
  double loss = 0;
  int64_t predicted_bytes = 0;  // of GPU memory; rank 0 alone, 0 on the CPU
  int64_t measured_bytes = 0;
  std::string device_name;
  std::string plans;
};

// 0 of nothing.
double Quantile(std::vector<double> values, double share) {
  if (values.empty()) {
    return 0;
  }
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(std::lround(share * static_cast<double>(values.size() - 1)))];
}

double Median(const std::vector<double>& values) {
  return Quantile(values, 0.5);
}

bool OnGpu(const World& world) {
  return world.devices.front() != "cpu";
}

// One rank from its GPU to its numbers; made, used and destroyed by one thread. The members'
// order is that of what must outlive what: graphs end before the communicator that they hold, and
// it before the memory that it has registered.
class ScalingRank {
 public:
  ScalingRank(World& world, int rank) : world_(world), rank_(rank) {}
  ~ScalingRank() {
    if (states_ != nullptr) {
      kernels::FreePinned(states_);
    }
  }
  absl::StatusOr<RankResult> Run();

 private:
  absl::Status Connect();
  absl::Status Build();
  absl::Status Measure(RankResult& result);
  absl::Status MeasureMemory(RankResult& result);
  absl::Status Upload();
  absl::Status Step(int64_t step, bool quantised);

  World& world_;
  const int rank_;
  spec::BatchPlan batch_;
  std::unique_ptr<kernels::CudaContext> cuda_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Collective> comm_;
  std::unique_ptr<StepProgram> program_;
  std::vector<kernels::StepState> host_states_;  // CPU
  kernels::StepState* states_ = nullptr;         // GPU: pinned, owned
};

absl::Status ScalingRank::Connect() {
  const std::string& device = world_.devices[static_cast<size_t>(rank_)];
  if (device != "cpu") {
    HEARTH_ASSIGN_OR_RETURN(cuda_, OpenGpu(device, world_.spec.train().deterministic() == "true"));
  }
  if (cuda_ != nullptr && !world_.plans.empty()) {
    HEARTH_RETURN_IF_ERROR(cuda_->ImportPlans(world_.plans).status());
  }
  if (world_.size() == 1) {
    comm_ = NewSoloCollective();
    return absl::OkStatus();
  }
  if (cuda_ == nullptr) {
    comm_ = std::move(world_.cpu_ranks[static_cast<size_t>(rank_)]);
    return absl::OkStatus();
  }
  NcclOptions options;
  options.rank = rank_;
  options.world_size = world_.size();
  options.cuda = cuda_.get();
  HEARTH_ASSIGN_OR_RETURN(comm_, NewNcclCollective(options, world_.store));
  return absl::OkStatus();
}

absl::Status ScalingRank::Build() {
  HEARTH_ASSIGN_OR_RETURN(batch_,
                          spec::ResolveBatchPlan(world_.spec, world_.micro_batch, world_.size()));
  EngineOptions options;
  options.spec = world_.spec;
  options.micro_batch = world_.micro_batch;
  options.threads = world_.threads;
  options.cuda = cuda_.get();
  options.world_size = world_.size();
  options.rank = rank_;
  options.shards = world_.shards;
  HEARTH_ASSIGN_OR_RETURN(engine_, Engine::Create(options));
  HEARTH_RETURN_IF_ERROR(engine_->Initialise());
  program_ = std::make_unique<StepProgram>(*engine_, comm_.get(),
                                           1.0 / static_cast<double>(batch_.global_tokens()),
                                           batch_.CountForRank(rank_), world_.exchanged);
  HEARTH_RETURN_IF_ERROR(program_->Prepare());
  if (cuda_ != nullptr && rank_ == 0 && world_.save_plans) {
    HEARTH_RETURN_IF_ERROR(cuda_->SavePlans());
  }
  HEARTH_RETURN_IF_ERROR(engine_->quant().StartWeights(engine_->exec()));
  StageRandomBatch(*engine_);
  *engine_->StagedInputs(0) = BenchInputs(world_.spec, batch_.global_tokens());
  return absl::OkStatus();
}

absl::Status ScalingRank::Upload() {
  HEARTH_RETURN_IF_ERROR(engine_->UploadBatch(0));
  return engine_->on_gpu() ? kernels::Copy(engine_->exec(), engine_->step_inputs(),
                                           engine_->StagedInputs(0), sizeof(kernels::StepInputs))
                           : absl::OkStatus();
}

absl::Status ScalingRank::Step(int64_t step, bool quantised) {
  for (int64_t m = 0; m < batch_.CountForRank(rank_); ++m) {
    HEARTH_RETURN_IF_ERROR(Upload());
    Pass pass;
    pass.step = static_cast<uint32_t>(step);
    HEARTH_RETURN_IF_ERROR(program_->MicroBatch(program_->Kind(m, spec::OwnIf(quantised)), pass));
  }
  return program_->Update(engine_->precision().quantised());
}

absl::Status ScalingRank::Measure(RankResult& result) {
  const kernels::Exec& exec = engine_->exec();
  const int count = kWarmUpSteps + world_.steps;
  const size_t bytes = static_cast<size_t>(count) * sizeof(kernels::StepState);
  kernels::StepState* states = nullptr;
  if (engine_->on_gpu()) {
    HEARTH_ASSIGN_OR_RETURN(void* const pinned, kernels::AllocatePinned(bytes));
    states = states_ = static_cast<kernels::StepState*>(pinned);
  } else {
    host_states_.resize(static_cast<size_t>(count));
    states = host_states_.data();
  }
  const bool quantised = engine_->precision().quantised();
  const bool plain_first = engine_->precision().delayed;
  std::unique_ptr<kernels::Event> done[2];
  for (auto& event : done) {
    HEARTH_ASSIGN_OR_RETURN(event, kernels::Event::New(exec, kernels::Event::Use::kOrder));
  }
  HEARTH_RETURN_IF_ERROR(comm_->Barrier());
  for (int i = 0; i < count; ++i) {  // launched one ahead, as in training
    HEARTH_RETURN_IF_ERROR(Step(i + 1, quantised && (i > 0 || !plain_first)));
    HEARTH_RETURN_IF_ERROR(
        kernels::Copy(exec, states + i, engine_->step_state(), sizeof(kernels::StepState)));
    HEARTH_RETURN_IF_ERROR(done[i % 2]->Record(exec));
    HEARTH_RETURN_IF_ERROR(i > 0 ? done[(i - 1) % 2]->Wait() : absl::OkStatus());
  }
  HEARTH_RETURN_IF_ERROR(kernels::Synchronize(exec));
  std::vector<double> step_ms;
  std::vector<double> exposed_ms;
  for (int i = kWarmUpSteps; i < count; ++i) {
    step_ms.push_back(1e-6 * static_cast<double>(states[i].ended_ns - states[i - 1].ended_ns));
    if (world_.size() > 1) {
      exposed_ms.push_back(1e-6 *
                           static_cast<double>(states[i].reduced_ns - states[i].backward_ns));
    }
  }
  result.step_ms = Median(step_ms);
  result.steps_ms = step_ms;
  result.exposed_ms = Median(exposed_ms);
  result.exposed_steps_ms = exposed_ms;
  result.comm_bytes = program_->comm_bytes();
  result.loss = states[count - 1].loss;
  return absl::OkStatus();
}

absl::Status ScalingRank::MeasureMemory(RankResult& result) {
  int64_t free = 0;
  int64_t total = 0;
  HEARTH_RETURN_IF_ERROR(kernels::DeviceMemory(*cuda_, free, total));
  result.predicted_bytes = engine_->plan().arena_bytes() + spec::OverheadBytes(world_.size());
  result.measured_bytes = MeasuredGpu::Open(*cuda_).OwnBytes(total - free);
  return absl::OkStatus();
}

absl::StatusOr<RankResult> ScalingRank::Run() {
  HEARTH_RETURN_IF_ERROR(Connect());
  HEARTH_RETURN_IF_ERROR(Build());
  RankResult result;
  HEARTH_RETURN_IF_ERROR(Measure(result));
  if (cuda_ != nullptr && rank_ == 0) {
    HEARTH_RETURN_IF_ERROR(MeasureMemory(result));
  }
  // Peers may still read this rank's memory.
  HEARTH_RETURN_IF_ERROR(comm_->Barrier());
  result.device_name = cuda_ == nullptr ? "cpu" : cuda_->gpu().name;
  result.plans = cuda_ == nullptr ? "" : cuda_->ExportPlans();
  return result;
}

// All ranks of `world`, each on a thread of its own. After an error the others wait for that rank
// in a collective that nothing can wake: the process ends.
std::vector<RankResult> RunWorld(World& world) {
  if (!OnGpu(world) && world.size() > 1) {
    world.cpu_ranks = NewThreadCollectives(world.size());
  }
  std::vector<RankResult> results(world.devices.size());
  absl::Mutex mu;
  std::vector<std::thread> threads;
  threads.reserve(world.size());
  for (int r = 0; r < world.size(); ++r) {
    threads.emplace_back([&world, &results, &mu, r] {
      absl::StatusOr<RankResult> result = ScalingRank(world, r).Run();
      absl::MutexLock lock(&mu);
      if (!result.ok()) {
        Fail(result.status());
        std::fflush(nullptr);
        _exit(1);
      }
      results[static_cast<size_t>(r)] = *std::move(result);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return results;
}

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

// A rank alone holds the whole optimizer: what fits divided may not fit it.
absl::Status FitAlone(int64_t bytes, World& world) {
  if (world.spec.batch().micro_batch_size() == 0) {
    HEARTH_ASSIGN_OR_RETURN(const int64_t alone, spec::ResolveMicroBatch(world.spec, world.size(),
                                                                         world.threads, bytes, 1));
    world.micro_batch = std::min(world.micro_batch, alone);
    return absl::OkStatus();
  }
  HEARTH_ASSIGN_OR_RETURN(
      const std::unique_ptr<spec::JobPlan> job_plan,
      spec::MakeJobPlan(world.spec, world.micro_batch, world.threads, /*training=*/true));
  HEARTH_ASSIGN_OR_RETURN(const spec::MemoryPlan plan, spec::PlanTraining(job_plan->options));
  if (plan.arena_bytes() > bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "batch.micro_batch_size: one device alone, which the others are compared with, holds the ",
        "whole optimizer and needs ", FormatBytes(plan.arena_bytes()), " for ", world.micro_batch,
        ", has ", FormatBytes(bytes), "; take less, or auto"));
  }
  return absl::OkStatus();
}

// Spec, micro-batch and shards of the whole world.
absl::Status Resolve(const BenchOptions& options, World& world) {
  HEARTH_ASSIGN_OR_RETURN(world.devices, ParseDevices(options.devices));
  HEARTH_ASSIGN_OR_RETURN(world.spec, LoadJob(options.job));
  world.spec.mutable_resources()->set_device(OnGpu(world) ? "cuda" : "cpu");
  world.spec.mutable_resources()->set_workers(world.size());
  world.spec.mutable_resources()->set_min_workers(
      std::min(world.spec.resources().min_workers(), world.size()));
  if (!world.spec.model().has_vocab()) {
    HEARTH_RETURN_IF_ERROR(CompleteSpec(world.spec, Env::Real()));
  }
  if (options.micro_batch > 0) {
    world.spec.mutable_batch()->set_micro_batch_size(options.micro_batch);
  }
  world.steps = std::max(1, options.steps);
  world.threads = std::max(1, ThreadsOrAll(options.threads) / (OnGpu(world) ? 1 : world.size()));
  int64_t bytes = CpuMemoryBytes(world.size());
  if (OnGpu(world)) {
    HEARTH_ASSIGN_OR_RETURN(const auto cuda, OpenGpu(world.devices.front(), false));
    HEARTH_ASSIGN_OR_RETURN(bytes, GpuMemoryBytes(*cuda, world.size()));
  }
  HEARTH_ASSIGN_OR_RETURN(world.shards,
                          spec::ResolveShards(world.spec, world.size(), world.threads, bytes,
                                              world.spec.batch().micro_batch_size()));
  HEARTH_ASSIGN_OR_RETURN(
      world.micro_batch,
      spec::ResolveMicroBatch(world.spec, world.size(), world.threads, bytes, world.shards));
  return world.shards > 1 ? FitAlone(bytes, world) : absl::OkStatus();
}

// Of each step, the slowest rank.
std::vector<double> SlowestOf(const std::vector<RankResult>& ranks) {
  std::vector<double> slowest(ranks.front().steps_ms.size(), 0.0);
  for (const RankResult& rank : ranks) {
    for (size_t i = 0; i < slowest.size(); ++i) {
      slowest[i] = std::max(slowest[i], rank.steps_ms[i]);
    }
  }
  return slowest;
}

// Of each step, how long the first rank to get there waited for the last one.
std::vector<double> SkewOf(const std::vector<RankResult>& ranks) {
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
  double mean() const { return (before + after) / 2; }
};

// What was run, and on what.
nlohmann::json FactsOf(const World& world, const spec::BatchPlan& batch, const RankResult& rank) {
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
  out["shards"] = world.shards;
  if (world.spec.parallel().has_bucket_mib()) {
    out["bucket_mib"] = world.spec.parallel().bucket_mib();
  }
  out["micro_batch_size"] = batch.micro_batch;
  out["micro_batches"] = batch.rounds();
  out["sequence_length"] = batch.sequence_length;
  out["global_batch_tokens"] = batch.global_tokens();
  out["steps"] = world.steps;
  return out;
}

nlohmann::json ReportOf(const World& world,
                        const spec::BatchPlan& batch,
                        const AloneResult& alone,
                        const std::vector<RankResult>& ranks) {
  const auto round_tokens =
      static_cast<double>(batch.rounds() * batch.micro_batch * batch.sequence_length);
  double step_ms = 0;
  std::vector<double> exposed;
  std::vector<double> by_rank;
  for (const RankResult& rank : ranks) {
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
  out["losses_agree"] = std::all_of(ranks.begin(), ranks.end(), [&](const RankResult& rank) {
    return rank.loss == ranks.front().loss;
  });
  return out;
}

// Each of `devices` at the same time with what would be its share of the job: as many
// micro-batches, nobody to talk to.
std::vector<RankResult> MeasureAlone(const World& world,
                                     const spec::BatchPlan& batch,
                                     const std::vector<std::string>& devices,
                                     bool save_plans) {
  std::vector<RankResult> results(devices.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < devices.size(); ++i) {
    threads.emplace_back([&, i] {
      World alone;
      alone.spec = world.spec;
      alone.spec.mutable_resources()->set_workers(1);
      alone.spec.mutable_resources()->set_min_workers(1);
      alone.spec.mutable_batch()->set_global_batch_tokens(batch.rounds() * batch.micro_batch *
                                                          batch.sequence_length);
      alone.devices = {devices[i]};
      alone.micro_batch = world.micro_batch;
      alone.threads = world.threads;
      alone.steps = world.steps;
      alone.plans = world.plans;
      alone.save_plans = save_plans;
      results[i] = RunWorld(alone).front();
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return results;
}

// Median step of the ranks of `world` when all they exchange is the step's sums.
double MeasureLockstep(const World& world) {
  World lockstep;
  lockstep.spec = world.spec;
  lockstep.devices = world.devices;
  lockstep.micro_batch = world.micro_batch;
  lockstep.threads = world.threads;
  lockstep.steps = world.steps;
  lockstep.shards = world.shards;
  lockstep.plans = world.plans;
  lockstep.exchanged = Exchanged::kStepSums;
  double step_ms = 0;
  for (const RankResult& rank : RunWorld(lockstep)) {
    step_ms = std::max(step_ms, rank.step_ms);
  }
  return step_ms;
}

absl::Status RunScaling(const BenchOptions& options) {
  World world;
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
  const RankResult single = MeasureAlone(world, batch, {world.devices.front()}, true).front();
  alone.before = single.step_ms;
  alone.before_p10 = Quantile(single.steps_ms, 0.1);
  alone.before_p90 = Quantile(single.steps_ms, 0.9);
  world.plans = single.plans;
  next("all devices, each for itself");
  const std::vector<RankResult> apart = MeasureAlone(world, batch, world.devices, false);
  for (const RankResult& result : apart) {
    alone.apart = std::max(alone.apart, result.step_ms);
  }
  alone.apart_in_step = Median(SlowestOf(apart));
  next("all devices in step, without gradients");
  alone.lockstep = MeasureLockstep(world);
  world.save_plans = true;
  next("all devices together");
  const std::vector<RankResult> ranks = RunWorld(world);
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
  const absl::Status status = RunScaling(options);
  return status.ok() ? 0 : Fail(status);
}

}  // namespace hearth::trainer
