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
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/spec/gpus/gpus.h"
#include "common/spec/plan/parameter_table.h"
#include "common/time/clock.h"
#include "nlohmann/json.hpp"
#include "worker/trainer/cli/bench/bench_inputs.h"
#include "worker/trainer/cli/bench/bench_length.h"
#include "worker/trainer/cli/bench/bench_world.h"
#include "worker/trainer/cli/bench/step_floor.h"
#include "worker/trainer/cli/job/prepared_job.h"
#include "worker/trainer/cli/verbs.h"
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
  PreparedJob job_;
  double first_step_seconds_ = 0;
  size_t warm_up_steps_ = 0;
  nlohmann::json out_;
};

absl::Status Bench::Build() {
  PrepareOptions prepare;
  prepare.job = options_.job;
  prepare.device = options_.device;
  prepare.threads = options_.threads;
  prepare.micro_batch = options_.micro_batch;
  HEARTH_RETURN_IF_ERROR(PrepareJob(prepare, job_));
  HEARTH_RETURN_IF_ERROR(job_.program->StartWeights());
  FillBatch();
  return absl::OkStatus();
}

void Bench::FillBatch() {
  StageRandomBatch(*job_.engine);
  *job_.engine->StagedInputs(0) = BenchInputs(*job_.engine, job_.batch.global_tokens());
}

absl::Status Bench::Launch(int64_t step, bool quantised, bool next_quantised) {
  for (int64_t m = 0; m < job_.batch.CountForRank(0); ++m) {
    HEARTH_RETURN_IF_ERROR(job_.engine->UploadBatch(0));
    HEARTH_RETURN_IF_ERROR(kernels::Copy(job_.engine->exec(), job_.engine->step_inputs(),
                                         job_.engine->StagedInputs(0),
                                         sizeof(kernels::StepInputs)));
    Pass pass;
    pass.step = static_cast<uint32_t>(step);
    pass.documents = job_.program->DocumentBound(0);
    HEARTH_RETURN_IF_ERROR(
        job_.program->MicroBatch(job_.program->Kind(m, spec::OwnIf(quantised)), pass));
  }
  return job_.program->Update(next_quantised);
}

absl::StatusOr<std::vector<double>> Bench::TimeSteps(int64_t first, More more, bool quantised) {
  const kernels::Exec& exec = job_.engine->exec();
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
    if (!job_.engine->on_gpu()) {
      milliseconds.push_back(since(start) * 1e3);
    }
  }
  HEARTH_RETURN_IF_ERROR(done.back()->Wait());
  for (size_t i = 1; i < done.size() && job_.engine->on_gpu(); ++i) {
    milliseconds.push_back(done[i]->MillisecondsSince(*done[i - 1]));
  }
  return milliseconds;
}

template <typename Call>
absl::StatusOr<double> Bench::TimeCall(const Call& call) {
  const kernels::Exec& exec = job_.engine->exec();
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<kernels::Event> begin, kernels::Event::New(exec));
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<kernels::Event> end, kernels::Event::New(exec));
  std::vector<double> milliseconds;
  for (int i = 0; i < (job_.engine->on_gpu() ? 6 : 3); ++i) {
    const absl::Duration start = Clock::Real().Monotonic();
    HEARTH_RETURN_IF_ERROR(begin->Record(exec));
    HEARTH_RETURN_IF_ERROR(call());
    HEARTH_RETURN_IF_ERROR(end->Record(exec));
    HEARTH_RETURN_IF_ERROR(end->Wait());
    milliseconds.push_back(job_.engine->on_gpu()
                               ? end->MillisecondsSince(*begin)
                               : absl::ToDoubleMilliseconds(Clock::Real().Monotonic() - start));
  }
  return Median(milliseconds);
}

absl::Status Bench::MeasurePhases() {
  const kernels::Exec& exec = job_.engine->exec();
  const bool quantised = job_.engine->precision().quantised();
  Pass pass;
  pass.format = spec::OwnIf(quantised);
  pass.weights = job_.program->weights();
  pass.documents = job_.program->DocumentBound(0);
  kernels::StepState* state = job_.engine->step_state();
  HEARTH_ASSIGN_OR_RETURN(const double forward, TimeCall([&] {
                            return job_.engine->model().ForwardLoss(exec, pass, &state->loss_sum,
                                                                    &state->weight_sum);
                          }));
  Pass turn;
  turn.documents = pass.documents;
  HEARTH_ASSIGN_OR_RETURN(
      const double both, TimeCall([&] {
        return job_.program->MicroBatch(
            job_.program->Kind(job_.batch.CountForRank(0) - 1, spec::OwnIf(quantised)), turn);
      }));
  HEARTH_ASSIGN_OR_RETURN(const double update,
                          TimeCall([&] { return job_.program->Update(quantised); }));
  out_["forward_ms"] = forward;
  out_["backward_ms"] = both - forward;
  out_["optimizer_ms"] = update;
  return absl::OkStatus();
}

absl::Status Bench::MeasureMemory() {
  out_["planned_bytes"] = job_.engine->plan().arena_bytes();
  if (!job_.engine->on_gpu()) {
    return absl::OkStatus();
  }
  int64_t free = 0;
  int64_t total = 0;
  HEARTH_RETURN_IF_ERROR(kernels::DeviceMemory(*job_.cuda, free, total));
  out_["predicted_bytes"] = job_.engine->plan().arena_bytes() + spec::kProcessOverheadBytes;
  out_["measured_bytes"] = job_.measured_gpu.OwnBytes(total - free);
  out_["context_bytes"] = total - job_.free_before;
  return absl::OkStatus();
}

std::optional<double> Bench::Energy() {
  return job_.measured_gpu.gpu == nullptr ? std::nullopt : job_.measured_gpu.gpu->EnergyJoules();
}

absl::Status Bench::Run() {
  HEARTH_RETURN_IF_ERROR(Build());
  const bool quantised = job_.engine->precision().quantised();
  HEARTH_RETURN_IF_ERROR(
      Launch(1, quantised && !job_.engine->quant().ScalesAreOfEarlierSteps(), quantised));
  HEARTH_RETURN_IF_ERROR(kernels::Synchronize(job_.engine->exec()));
  first_step_seconds_ = ProcessAge();
  const BenchLength length{.on_gpu = job_.engine->on_gpu(), .steps = options_.steps};
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
  HEARTH_RETURN_IF_ERROR(kernels::Copy(job_.engine->exec(), job_.engine->StagedState(0),
                                       job_.engine->step_state(), sizeof(kernels::StepState)));
  HEARTH_RETURN_IF_ERROR(kernels::Synchronize(job_.engine->exec()));
  out_["loss"] = job_.engine->StagedState(0)->loss;
  HEARTH_RETURN_IF_ERROR(MeasurePhases());
  if (job_.engine->on_gpu() && options_.floor) {
    HEARTH_ASSIGN_OR_RETURN(const StepFloor floor, MeasureFloor(*job_.engine, quantised));
    const auto micro_batches = static_cast<double>(job_.batch.CountForRank(0));
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
  const auto tokens = static_cast<double>(job_.batch.CountForRank(0) * job_.batch.micro_batch *
                                          job_.batch.sequence_length);
  const double tok_s = tokens / step_ms * 1e3;
  const double flops =
      tok_s * spec::FlopsPerToken(job_.engine->shape(), job_.batch.sequence_length);
  out_["job"] = job_.spec.name();
  out_["commit"] = std::string(GitCommit());
  out_["recipe"] = job_.spec.precision().recipe();
  out_["lm_head"] = job_.spec.precision().lm_head();
  out_["recompute"] = job_.spec.recompute();
  out_["parameters"] = spec::CountParameters(job_.engine->shape());
  out_["micro_batch_size"] = job_.batch.micro_batch;
  out_["sequence_length"] = job_.batch.sequence_length;
  out_["micro_batches"] = job_.batch.CountForRank(0);
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
  out_["graph_nodes"] = job_.program->graph_nodes();
  if (out_.contains("floor_ms")) {
    out_["share_of_floor"] = out_["floor_ms"].get<double>() / step_ms;
  }
  if (out_.contains("joules_per_step")) {
    out_["tokens_per_joule"] = tokens / out_["joules_per_step"].get<double>();
  }
  if (job_.cuda != nullptr) {
    out_["device"] = job_.cuda->gpu().name;
    out_["attention"] = job_.cuda->attention_version();
    out_["attention_forward"] = job_.program->attention().forward;
    out_["attention_backward"] = job_.program->attention().backward;
    if (const kernels::ProductCheck* products = job_.program->products(); products != nullptr) {
      out_["products_met"] = products->met();
      out_["products_compared"] = products->compared();
      out_["products_difference"] = products->largest();
    }
    out_["shipped_products"] = job_.cuda->shipped_products();
    out_["untuned_products"] = job_.cuda->untuned_products();
    out_["gemm"] = job_.cuda->gemm_version();
    out_["deterministic"] = job_.cuda->options().deterministic;
    if (const spec::GpuRow* row = spec::FindGpu(job_.cuda->gpu().name); row != nullptr) {
      out_["mfu"] = flops / row->bf16_flops();
    }
  } else {
    out_["device"] = "cpu";
    out_["threads"] = job_.engine->options().threads;
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
  return ExitCodeOf(Bench(options).Run());
}

}  // namespace hearth::trainer
