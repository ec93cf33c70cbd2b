#include "worker/trainer/cli/bench/bench_world.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/base/status_macros.h"
#include "common/spec/fields/choices.h"
#include "common/spec/gpus/gpus.h"
#include "worker/trainer/cli/bench/bench_inputs.h"
#include "worker/trainer/cli/bench/bench_length.h"
#include "worker/trainer/cli/machine/measured_gpu.h"
#include "worker/trainer/cli/verbs.h"
#include "worker/trainer/device/rank_device.h"
#include "worker/trainer/step/engine.h"
#include "worker/trainer/step/program.h"

namespace hearth::trainer {
namespace {

// One rank from its GPU to its numbers; made, used and destroyed by one thread. The members'
// order is that of what must outlive what: graphs end before the communicator that they hold, and
// it before the memory that it has registered.
class ScalingRank {
 public:
  ScalingRank(BenchWorld& world, BenchTurns& turns, int rank)
      : world_(world), turns_(turns), rank_(rank) {}
  ~ScalingRank() {
    if (states_ != nullptr) {
      kernels::FreePinned(states_);
    }
  }
  absl::StatusOr<BenchRankResult> Run();

 private:
  absl::Status Connect();
  absl::Status Build();
  absl::Status Measure(BenchRankResult& result);
  absl::Status RunSteps(std::vector<kernels::StepState>& steps);
  absl::Status MeasureMemory(BenchRankResult& result);
  absl::Status Upload();
  absl::Status Step(int64_t step, bool quantised);

  BenchWorld& world_;
  BenchTurns& turns_;
  const int rank_;
  spec::BatchPlan batch_;
  std::unique_ptr<kernels::CudaContext> cuda_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Collective> comm_;
  std::unique_ptr<StepProgram> program_;
  kernels::StepState* states_ = nullptr;  // of the last two steps; pinned, owned; null on the CPU
};

absl::Status ScalingRank::Connect() {
  const std::string& device = world_.devices[static_cast<size_t>(rank_)];
  if (device != "cpu") {
    HEARTH_ASSIGN_OR_RETURN(cuda_, OpenGpu(device, spec::WantsDeterministic(world_.spec.train())));
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
  options.shard = world_.shard;
  HEARTH_ASSIGN_OR_RETURN(engine_, Engine::Create(options));
  HEARTH_RETURN_IF_ERROR(engine_->Initialise());
  program_ = std::make_unique<StepProgram>(*engine_, comm_.get(),
                                           1.0 / static_cast<double>(batch_.global_tokens()),
                                           batch_.CountForRank(rank_), world_.exchanged);
  HEARTH_RETURN_IF_ERROR(program_->Prepare());
  if (cuda_ != nullptr && rank_ == 0 && world_.save_plans) {
    HEARTH_RETURN_IF_ERROR(cuda_->SavePlans());
  }
  HEARTH_RETURN_IF_ERROR(program_->StartWeights());
  StageRandomBatch(*engine_);
  *engine_->StagedInputs(0) = BenchInputs(*engine_, batch_.global_tokens());
  return absl::OkStatus();
}

absl::Status ScalingRank::Upload() {
  HEARTH_RETURN_IF_ERROR(engine_->UploadBatch(0));
  return engine_->on_gpu() ? kernels::Copy(engine_->exec(), engine_->step_inputs(),
                                           engine_->StagedInputs(0), sizeof(kernels::StepInputs))
                           : absl::OkStatus();
}

absl::Status ScalingRank::Step(int64_t step, bool quantised) {
  for (int64_t m = 0; m < program_->turns(); ++m) {
    HEARTH_RETURN_IF_ERROR(Upload());
    Pass pass;
    pass.step = static_cast<uint32_t>(step);
    pass.documents = program_->DocumentBound(0);
    HEARTH_RETURN_IF_ERROR(program_->MicroBatch(program_->Kind(m, spec::OwnIf(quantised)), pass));
  }
  return program_->Update(engine_->precision().quantised());
}

// The state of each step, of warm-up and measurement. Launched one ahead, as in training.
absl::Status ScalingRank::RunSteps(std::vector<kernels::StepState>& steps) {
  constexpr size_t kSlots = 2;
  const kernels::Exec& exec = engine_->exec();
  kernels::StepState on_cpu[kSlots];
  kernels::StepState* slots = on_cpu;
  if (engine_->on_gpu()) {
    HEARTH_ASSIGN_OR_RETURN(void* const pinned, kernels::AllocatePinned(sizeof(on_cpu)));
    slots = states_ = static_cast<kernels::StepState*>(pinned);
  }
  std::unique_ptr<kernels::Event> done[kSlots];
  for (auto& event : done) {
    HEARTH_ASSIGN_OR_RETURN(event, kernels::Event::New(exec, kernels::Event::Use::kOrder));
  }
  const auto finish = [&]() -> absl::Status {  // the next one
    const size_t slot = steps.size() % kSlots;
    HEARTH_RETURN_IF_ERROR(done[slot]->Wait());
    steps.push_back(slots[slot]);
    return absl::OkStatus();
  };
  const bool quantised = engine_->precision().quantised();
  const bool plain_first = engine_->quant().ScalesAreOfEarlierSteps();
  int launched = 0;
  while (rank_ == 0 ? turns_.Decide(launched) : turns_.Await(launched)) {
    const size_t slot = static_cast<size_t>(launched) % kSlots;
    HEARTH_RETURN_IF_ERROR(Step(launched + 1, quantised && (launched > 0 || !plain_first)));
    HEARTH_RETURN_IF_ERROR(
        kernels::Copy(exec, slots + slot, engine_->step_state(), sizeof(kernels::StepState)));
    HEARTH_RETURN_IF_ERROR(done[slot]->Record(exec));
    HEARTH_RETURN_IF_ERROR(launched > 0 ? finish() : absl::OkStatus());
    ++launched;
  }
  return finish();
}

absl::Status ScalingRank::Measure(BenchRankResult& result) {
  HEARTH_RETURN_IF_ERROR(comm_->Barrier());
  std::vector<kernels::StepState> steps;
  HEARTH_RETURN_IF_ERROR(RunSteps(steps));
  result.warm_up_steps = turns_.warm_up_steps();
  for (size_t i = static_cast<size_t>(result.warm_up_steps); i < steps.size(); ++i) {
    result.steps_ms.push_back(1e-6 *
                              static_cast<double>(steps[i].ended_ns - steps[i - 1].ended_ns));
    if (world_.size() > 1) {
      result.exposed_steps_ms.push_back(
          1e-6 * static_cast<double>(steps[i].reduced_ns - steps[i].backward_ns));
    }
  }
  result.step_ms = Median(result.steps_ms);
  result.exposed_ms = Median(result.exposed_steps_ms);
  result.comm_bytes = program_->comm_bytes();
  result.loss = steps.back().loss;
  return absl::OkStatus();
}

absl::Status ScalingRank::MeasureMemory(BenchRankResult& result) {
  int64_t free = 0;
  int64_t total = 0;
  HEARTH_RETURN_IF_ERROR(kernels::DeviceMemory(*cuda_, free, total));
  result.predicted_bytes = engine_->plan().arena_bytes() + spec::OverheadBytes(world_.size());
  result.measured_bytes = MeasuredGpu::Open(*cuda_).OwnBytes(total - free);
  return absl::OkStatus();
}

absl::StatusOr<BenchRankResult> ScalingRank::Run() {
  HEARTH_RETURN_IF_ERROR(Connect());
  HEARTH_RETURN_IF_ERROR(Build());
  BenchRankResult result;
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

}  // namespace

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

bool OnGpu(const BenchWorld& world) {
  return world.devices.front() != "cpu";
}

std::vector<BenchRankResult> RunWorld(BenchWorld& world) {
  if (!OnGpu(world) && world.size() > 1) {
    world.cpu_ranks = NewThreadCollectives(world.size());
  }
  BenchTurns turns({.on_gpu = OnGpu(world), .steps = world.steps}, Clock::Real());
  std::vector<BenchRankResult> results(world.devices.size());
  absl::Mutex mu;
  std::vector<std::thread> threads;
  threads.reserve(world.size());
  for (int r = 0; r < world.size(); ++r) {
    threads.emplace_back([&world, &turns, &results, &mu, r] {
      absl::StatusOr<BenchRankResult> result = ScalingRank(world, turns, r).Run();
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

}  // namespace hearth::trainer
