// `bench`: the job's step on random tokens, without data, peers or checkpoints.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/time/clock.h"
#include "kernels/core/rng.h"
#include "kernels/grad_norm/grad_norm.h"
#include "worker/trainer/cli/commands.h"
#include "worker/trainer/step/engine.h"
#include "worker/trainer/step/job_facts.h"

namespace hearth::trainer {
namespace {

void FillRandom(Model& model, int64_t sequence_length, int64_t vocab) {
  const BatchBuffers batch = model.batch();
  const kernels::RngKey key{1, kernels::RngPurpose::kTest, 0, 0, 0};
  for (int64_t i = 0; i < model.rows(); ++i) {
    const auto token = [&](int64_t n) {
      return static_cast<int32_t>(kernels::RngWord(key, static_cast<uint64_t>(n)) %
                                  static_cast<uint64_t>(vocab));
    };
    batch.tokens[i] = token(i);
    batch.targets[i] = token(i + 1);
    batch.loss_weight[i] = 1.0F;
    batch.position[i] = static_cast<int32_t>(i % sequence_length);
    batch.segment[i] = 0;
  }
}

absl::Status OneStep(Engine& engine, const spec::BatchPlan& batch, int64_t step) {
  const kernels::TensorView& gradients = engine.parameters().flat_gradients();
  std::memset(gradients.data, 0, gradients.bytes());
  LossSums sums;
  for (int64_t m = 0; m < batch.CountForRank(0); ++m) {
    const Pass pass = {1, static_cast<uint32_t>(step), static_cast<uint32_t>(m), true};
    HEARTH_RETURN_IF_ERROR(engine.model().ForwardBackward(
        engine.exec(), pass, 1.0 / static_cast<double>(batch.global_tokens()), sums));
  }
  double sum_squares = 0;
  kernels::SumSquaresArgs norm;
  norm.tensors = absl::MakeConstSpan(&gradients, 1);
  norm.sum_squares = &sum_squares;
  HEARTH_RETURN_IF_ERROR(kernels::SumSquares(engine.exec(), norm));
  UpdateArgs update;
  update.step = step;
  update.learning_rate = 1e-4;
  return engine.optimizer().Step(engine.exec(), update);
}

absl::Status Bench(const BenchOptions& options) {
  EngineOptions engine_options;
  HEARTH_ASSIGN_OR_RETURN(engine_options.spec, LoadJob(options.job));
  v1::JobSpec& spec = engine_options.spec;
  spec.mutable_resources()->set_device("cpu");
  if (!spec.model().has_vocab()) {
    HEARTH_RETURN_IF_ERROR(CompleteSpec(spec, Env::Real()));
  }
  engine_options.threads = ThreadsOrAll(options.threads);
  if (options.micro_batch > 0) {
    spec.mutable_batch()->set_micro_batch_size(options.micro_batch);
  }
  const int ranks = std::max(1, spec.resources().workers());
  HEARTH_ASSIGN_OR_RETURN(
      engine_options.micro_batch,
      spec::ResolveMicroBatch(spec, ranks, engine_options.threads, CpuMemoryBytes(ranks)));
  HEARTH_ASSIGN_OR_RETURN(const spec::BatchPlan batch,
                          spec::ResolveBatchPlan(spec, engine_options.micro_batch, ranks));
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Create(engine_options));
  HEARTH_RETURN_IF_ERROR(engine->Initialise());
  FillRandom(engine->model(), batch.sequence_length, engine->shape().vocab);
  std::vector<double> seconds;
  for (int step = 1; step <= options.steps + 2; ++step) {
    const absl::Duration start = Clock::Real().Monotonic();
    HEARTH_RETURN_IF_ERROR(OneStep(*engine, batch, step));
    if (step > 2) {  // the first two warm up caches and threads
      seconds.push_back(absl::ToDoubleSeconds(Clock::Real().Monotonic() - start));
    }
  }
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2];
  const auto tokens =
      static_cast<double>(batch.CountForRank(0) * batch.micro_batch * batch.sequence_length);
  const double flops = spec::FlopsPerToken(engine->shape(), batch.sequence_length);
  std::printf(
      "parameters %lld  micro_batch %lld x %lld  micro_batches %lld  recipe %s  threads %d\n",
      static_cast<long long>(spec::CountParameters(engine->shape())),
      static_cast<long long>(batch.micro_batch), static_cast<long long>(batch.sequence_length),
      static_cast<long long>(batch.CountForRank(0)), spec.precision().recipe().c_str(),
      engine_options.threads);
  std::printf("step %.1f ms median (%.1f to %.1f)  %.0f tok/s  %.2f GFLOP/s\n", median * 1e3,
              seconds.front() * 1e3, seconds.back() * 1e3, tokens / median,
              tokens * flops / median * 1e-9);
  return absl::OkStatus();
}

}  // namespace

int BenchCommand(const BenchOptions& options) {
  const absl::Status status = Bench(options);
  return status.ok() ? 0 : Fail(status);
}

}  // namespace hearth::trainer
