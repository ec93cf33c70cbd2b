// `bench`: the job's step on random tokens, without data, peers or checkpoints.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/spec/plan/gpus.h"
#include "common/spec/plan/parameter_table.h"
#include "common/time/clock.h"
#include "kernels/gemm/native_error.h"
#include "nlohmann/json.hpp"
#include "worker/trainer/cli/bench_inputs.h"
#include "worker/trainer/cli/bench_length.h"
#include "worker/trainer/cli/bench_world.h"
#include "worker/trainer/cli/measured_gpu.h"
#include "worker/trainer/cli/step_floor.h"
#include "worker/trainer/cli/verbs.h"
#include "worker/trainer/rank/job_facts.h"
#include "worker/trainer/step/engine.h"
#include "worker/trainer/step/program.h"

namespace hearth::trainer {
namespace {

// Seconds since this process was started, by the kernel's own record.
double ProcessAge() {
  std::ifstream stat("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(stat)), std::istreambuf_iterator<char>());
  const size_t behind_name = text.rfind(')');
  std::ifstream uptime_file("/proc/uptime");
  double uptime = 0;
  if (behind_name == std::string::npos || !(uptime_file >> uptime)) {
    return 0;
  }
  unsigned long long start = 0;  // NOLINT(google-runtime-int): scanf's type
  if (std::sscanf(
          text.c_str() + behind_name + 2,  // NOLINT(cert-err34-c): checked here
          "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
          &start) != 1) {
    return 0;
  }
  return uptime - static_cast<double>(start) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

class Bench {
 public:
  explicit Bench(const BenchOptions& options) : options_(options) {}
  absl::Status Run();

 private:
  absl::Status Build();
  absl::Status BuildEngine(const EngineOptions& options);
  void FillBatch();
  absl::Status Launch(int64_t step, bool quantised, bool next_quantised);
  // Milliseconds of steps `first`, `first` + 1 ... for as long as `more` (steps done, seconds) says
  // so, at least one, launched one ahead as in training.
  using More = absl::FunctionRef<bool(int, double)>;
  absl::StatusOr<std::vector<double>> TimeSteps(int64_t first, More more, bool quantised);
  // Median milliseconds of a call on its own.
  template <typename Call>
  absl::StatusOr<double> TimeCall(const Call& call);
  absl::Status MeasurePhases();
  absl::Status MeasureMemory();
  void Report(const std::vector<double>& milliseconds);
  std::optional<double> Energy();

  const BenchOptions& options_;
  v1::JobSpec spec_;
  std::unique_ptr<kernels::CudaContext> cuda_;
  spec::BatchPlan batch_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<StepProgram> program_;
  MeasuredGpu measured_gpu_;
  int64_t free_before_ = 0;
  double first_step_seconds_ = 0;
  size_t warm_up_steps_ = 0;
  nlohmann::json out_;
};

absl::Status Bench::Build() {
  HEARTH_ASSIGN_OR_RETURN(spec_, LoadJob(options_.job));
  const std::string device = options_.device.empty() ? spec_.resources().device() : options_.device;
  const bool on_gpu = absl::StartsWith(device, "cuda");
  spec_.mutable_resources()->set_device(on_gpu ? "cuda" : "cpu");
  if (!spec_.model().has_vocab()) {
    HEARTH_RETURN_IF_ERROR(CompleteSpec(spec_, Env::Real()));
  }
  if (options_.micro_batch > 0) {
    spec_.mutable_batch()->set_micro_batch_size(options_.micro_batch);
  }
  EngineOptions engine;
  engine.threads = ThreadsOrAll(options_.threads);
  int64_t bytes = CpuMemoryBytes(1);
  if (on_gpu) {
    HEARTH_ASSIGN_OR_RETURN(cuda_, OpenGpu(device, spec_.train().deterministic() == "true"));
    HEARTH_ASSIGN_OR_RETURN(bytes, GpuMemoryBytes(*cuda_, 1));
    int64_t total = 0;
    HEARTH_RETURN_IF_ERROR(kernels::DeviceMemory(*cuda_, free_before_, total));
    measured_gpu_ = MeasuredGpu::Open(*cuda_);
  }
  const int ranks = std::max(1, spec_.resources().workers());
  HEARTH_ASSIGN_OR_RETURN(engine.micro_batch,
                          spec::ResolveMicroBatch(spec_, ranks, engine.threads, bytes));
  HEARTH_ASSIGN_OR_RETURN(batch_, spec::ResolveBatchPlan(spec_, engine.micro_batch, ranks));
  engine.spec = spec_;
  engine.cuda = cuda_.get();
  absl::Status built = BuildEngine(engine);
  if (kernels::IsNativeGemmError(built)) {
    // As a job would.
    absl::FPrintF(stderr, "bench: without block-scaled matrix units: %s\n", built.message());
    program_.reset();
    engine_.reset();
    engine.no_native_blocks = std::string(built.message());
    built = BuildEngine(engine);
  }
  HEARTH_RETURN_IF_ERROR(built);
  if (cuda_ != nullptr) {
    HEARTH_RETURN_IF_ERROR(cuda_->SavePlans());
    if (const std::string& refused = program_->attention().refused; !refused.empty()) {
      absl::FPrintF(stderr, "bench: attention runs our own kernels: %s\n", refused);
    }
  }
  HEARTH_RETURN_IF_ERROR(engine_->quant().StartWeights(engine_->exec()));
  FillBatch();
  return absl::OkStatus();
}

absl::Status Bench::BuildEngine(const EngineOptions& options) {
  HEARTH_ASSIGN_OR_RETURN(engine_, Engine::Create(options));
  HEARTH_RETURN_IF_ERROR(engine_->Initialise());
  program_ = std::make_unique<StepProgram>(
      *engine_, nullptr, 1.0 / static_cast<double>(batch_.global_tokens()), batch_.CountForRank(0));
  return program_->Prepare();
}

void Bench::FillBatch() {
  StageRandomBatch(*engine_);
  *engine_->StagedInputs(0) = BenchInputs(*engine_, batch_.global_tokens());
}

absl::Status Bench::Launch(int64_t step, bool quantised, bool next_quantised) {
  for (int64_t m = 0; m < batch_.CountForRank(0); ++m) {
    HEARTH_RETURN_IF_ERROR(engine_->UploadBatch(0));
    HEARTH_RETURN_IF_ERROR(kernels::Copy(engine_->exec(), engine_->step_inputs(),
                                         engine_->StagedInputs(0), sizeof(kernels::StepInputs)));
    Pass pass;
    pass.step = static_cast<uint32_t>(step);
    HEARTH_RETURN_IF_ERROR(program_->MicroBatch(program_->Kind(m, spec::OwnIf(quantised)), pass));
  }
  return program_->Update(next_quantised);
}

absl::StatusOr<std::vector<double>> Bench::TimeSteps(int64_t first, More more, bool quantised) {
  const kernels::Exec& exec = engine_->exec();
  std::vector<std::unique_ptr<kernels::Event>> done;
  const auto record = [&]() -> absl::Status {
    HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<kernels::Event> event, kernels::Event::New(exec));
    done.push_back(std::move(event));
    return done.back()->Record(exec);
  };
  const absl::Duration begin = Clock::Real().Monotonic();
  const auto since = [](absl::Duration then) {
    return absl::ToDoubleSeconds(Clock::Real().Monotonic() - then);
  };
  std::vector<double> milliseconds;
  HEARTH_RETURN_IF_ERROR(record());
  for (int steps = 0; steps == 0 || more(steps, since(begin)); ++steps) {
    const absl::Duration start = Clock::Real().Monotonic();
    HEARTH_RETURN_IF_ERROR(Launch(first + steps, quantised, quantised));
    HEARTH_RETURN_IF_ERROR(record());
    HEARTH_RETURN_IF_ERROR(done[done.size() - 2]->Wait());
    if (!engine_->on_gpu()) {
      milliseconds.push_back(since(start) * 1e3);
    }
  }
  HEARTH_RETURN_IF_ERROR(done.back()->Wait());
  for (size_t i = 1; i < done.size() && engine_->on_gpu(); ++i) {
    milliseconds.push_back(done[i]->MillisecondsSince(*done[i - 1]));
  }
  return milliseconds;
}

template <typename Call>
absl::StatusOr<double> Bench::TimeCall(const Call& call) {
  const kernels::Exec& exec = engine_->exec();
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<kernels::Event> begin, kernels::Event::New(exec));
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<kernels::Event> end, kernels::Event::New(exec));
  std::vector<double> milliseconds;
  for (int i = 0; i < (engine_->on_gpu() ? 6 : 3); ++i) {
    const absl::Duration start = Clock::Real().Monotonic();
    HEARTH_RETURN_IF_ERROR(begin->Record(exec));
    HEARTH_RETURN_IF_ERROR(call());
    HEARTH_RETURN_IF_ERROR(end->Record(exec));
    HEARTH_RETURN_IF_ERROR(end->Wait());
    milliseconds.push_back(engine_->on_gpu()
                               ? end->MillisecondsSince(*begin)
                               : absl::ToDoubleMilliseconds(Clock::Real().Monotonic() - start));
  }
  return Median(milliseconds);
}

absl::Status Bench::MeasurePhases() {
  const kernels::Exec& exec = engine_->exec();
  const bool quantised = engine_->precision().quantised();
  Pass pass;
  pass.format = spec::OwnIf(quantised);
  kernels::StepState* state = engine_->step_state();
  HEARTH_ASSIGN_OR_RETURN(const double forward, TimeCall([&] {
                            return engine_->model().ForwardLoss(exec, pass, &state->loss_sum,
                                                                &state->weight_sum);
                          }));
  HEARTH_ASSIGN_OR_RETURN(const double both, TimeCall([&] {
                            return program_->MicroBatch(
                                program_->Kind(batch_.CountForRank(0) - 1, spec::OwnIf(quantised)),
                                Pass{});
                          }));
  HEARTH_ASSIGN_OR_RETURN(const double update,
                          TimeCall([&] { return program_->Update(quantised); }));
  out_["forward_ms"] = forward;
  out_["backward_ms"] = both - forward;
  out_["optimizer_ms"] = update;
  return absl::OkStatus();
}

absl::Status Bench::MeasureMemory() {
  out_["planned_bytes"] = engine_->plan().arena_bytes();
  if (!engine_->on_gpu()) {
    return absl::OkStatus();
  }
  int64_t free = 0;
  int64_t total = 0;
  HEARTH_RETURN_IF_ERROR(kernels::DeviceMemory(*cuda_, free, total));
  out_["predicted_bytes"] = engine_->plan().arena_bytes() + spec::kProcessOverheadBytes;
  out_["measured_bytes"] = measured_gpu_.OwnBytes(total - free);
  out_["context_bytes"] = total - free_before_;
  return absl::OkStatus();
}

std::optional<double> Bench::Energy() {
  return measured_gpu_.gpu == nullptr ? std::nullopt : measured_gpu_.gpu->EnergyJoules();
}

absl::Status Bench::Run() {
  HEARTH_RETURN_IF_ERROR(Build());
  const bool quantised = engine_->precision().quantised();
  HEARTH_RETURN_IF_ERROR(
      Launch(1, quantised && !engine_->quant().ScalesAreOfEarlierSteps(), quantised));
  HEARTH_RETURN_IF_ERROR(kernels::Synchronize(engine_->exec()));
  first_step_seconds_ = ProcessAge();
  const BenchLength length{.on_gpu = engine_->on_gpu(), .steps = options_.steps};
  const auto warm_up = [&](int steps, double seconds) { return length.MoreWarmUp(steps, seconds); };
  HEARTH_ASSIGN_OR_RETURN(const std::vector<double> warm, TimeSteps(2, warm_up, quantised));
  warm_up_steps_ = warm.size();
  const auto measure = [&](int steps, double seconds) { return length.MoreSteps(steps, seconds); };
  const std::optional<double> energy_before = Energy();
  const absl::Duration start = Clock::Real().Monotonic();
  HEARTH_ASSIGN_OR_RETURN(const std::vector<double> milliseconds,
                          TimeSteps(2 + static_cast<int64_t>(warm.size()), measure, quantised));
  const double seconds = absl::ToDoubleSeconds(Clock::Real().Monotonic() - start);
  if (const std::optional<double> energy = Energy();
      energy && energy_before && seconds >= kWattsSeconds) {
    out_["watts"] = (*energy - *energy_before) / seconds;
    out_["joules_per_step"] = (*energy - *energy_before) / static_cast<double>(milliseconds.size());
  }
  HEARTH_RETURN_IF_ERROR(MeasureMemory());
  HEARTH_RETURN_IF_ERROR(kernels::Copy(engine_->exec(), engine_->StagedState(0),
                                       engine_->step_state(), sizeof(kernels::StepState)));
  HEARTH_RETURN_IF_ERROR(kernels::Synchronize(engine_->exec()));
  out_["loss"] = engine_->StagedState(0)->loss;
  HEARTH_RETURN_IF_ERROR(MeasurePhases());
  if (engine_->on_gpu() && options_.floor) {
    HEARTH_ASSIGN_OR_RETURN(const StepFloor floor, MeasureFloor(*engine_, quantised));
    const auto micro_batches = static_cast<double>(batch_.CountForRank(0));
    out_["floor_ms"] = (floor.gemm_ms + floor.attention_ms) * micro_batches;
    out_["gemm_floor_ms"] = floor.gemm_ms * micro_batches;
    out_["attention_floor_ms"] = floor.attention_ms * micro_batches;
    for (const FloorRow& row : floor.rows) {
      out_["floor"].push_back({{"name", row.name},
                               {"ms", row.milliseconds},
                               {"calls", row.calls},
                               {"tflops", row.flops / row.milliseconds * 1e-9}});
    }
  }
  Report(milliseconds);
  return absl::OkStatus();
}

void Bench::Report(const std::vector<double>& milliseconds) {
  const double step_ms = Median(milliseconds);
  const auto tokens =
      static_cast<double>(batch_.CountForRank(0) * batch_.micro_batch * batch_.sequence_length);
  const double tok_s = tokens / step_ms * 1e3;
  const double flops = tok_s * spec::FlopsPerToken(engine_->shape(), batch_.sequence_length);
  out_["job"] = spec_.name();
  out_["commit"] = std::string(GitCommit());
  out_["recipe"] = spec_.precision().recipe();
  out_["lm_head"] = spec_.precision().lm_head();
  out_["recompute"] = spec_.recompute();
  out_["parameters"] = spec::CountParameters(engine_->shape());
  out_["micro_batch_size"] = batch_.micro_batch;
  out_["sequence_length"] = batch_.sequence_length;
  out_["micro_batches"] = batch_.CountForRank(0);
  out_["steps"] = milliseconds.size();
  out_["warm_up_steps"] = warm_up_steps_;
  out_["tok_s"] = tok_s;
  out_["tok_s_p10"] = tokens / Quantile(milliseconds, 0.9) * 1e3;
  out_["tok_s_p90"] = tokens / Quantile(milliseconds, 0.1) * 1e3;
  out_["step_ms"] = step_ms;
  out_["step_ms_p10"] = Quantile(milliseconds, 0.1);
  out_["step_ms_p90"] = Quantile(milliseconds, 0.9);
  out_["model_tflops"] = flops * 1e-12;
  out_["first_step_s"] = first_step_seconds_;
  out_["graph_nodes"] = program_->graph_nodes();
  if (out_.contains("floor_ms")) {
    out_["share_of_floor"] = out_["floor_ms"].get<double>() / step_ms;
  }
  if (out_.contains("joules_per_step")) {
    out_["tokens_per_joule"] = tokens / out_["joules_per_step"].get<double>();
  }
  if (cuda_ != nullptr) {
    out_["device"] = cuda_->gpu().name;
    out_["attention"] = cuda_->attention_version();
    out_["attention_forward"] = program_->attention().forward;
    out_["attention_backward"] = program_->attention().backward;
    out_["untuned_products"] = cuda_->untuned_products();
    out_["gemm"] = cuda_->gemm_version();
    out_["deterministic"] = cuda_->options().deterministic;
    if (const spec::GpuRow* row = spec::FindGpu(cuda_->gpu().name); row != nullptr) {
      out_["mfu"] = flops / row->bf16_flops;
    }
  } else {
    out_["device"] = "cpu";
    out_["threads"] = engine_->options().threads;
  }
  if (options_.json) {
    std::printf("%s\n", out_.dump().c_str());
    return;
  }
  for (const auto& [key, value] : out_.items()) {
    if (!value.is_array()) {
      std::printf("%-20s %s\n", key.c_str(), value.dump().c_str());
    }
  }
  for (const nlohmann::json& row : out_.value("floor", nlohmann::json::array())) {
    std::printf("floor  %-22s %9.4f ms  %8.1f TFLOP/s  x %d\n",
                row["name"].get<std::string>().c_str(), row["ms"].get<double>(),
                row["tflops"].get<double>(), row["calls"].get<int>());
  }
}

}  // namespace

int BenchCommand(const BenchOptions& options) {
  const absl::Status status = Bench(options).Run();
  return status.ok() ? 0 : Fail(status);
}

}  // namespace hearth::trainer
