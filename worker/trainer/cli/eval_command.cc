#include <algorithm>
#include <cmath>
#include <cstdio>

#include "common/base/status_macros.h"
#include "worker/trainer/checkpoint/hf_model.h"
#include "worker/trainer/cli/verbs.h"
#include "worker/trainer/data/loader.h"
#include "worker/trainer/rank/job_facts.h"
#include "worker/trainer/rank/sampler.h"

namespace hearth::trainer {
namespace {

constexpr int64_t kMicroBatch = 8;

absl::Status Evaluate(const EvalOptions& options) {
  if (options.verify) {
    HEARTH_ASSIGN_OR_RETURN(const std::vector<RecordedFile> files,
                            RecordedModelFiles(Env::Real(), options.checkpoint));
    HEARTH_RETURN_IF_ERROR(VerifyFiles(files));
  }
  ModelFolderOptions folder;
  folder.path = options.checkpoint;
  folder.sequence_length = options.sequence_length;
  folder.micro_batch = kMicroBatch;
  folder.threads = ThreadsOrAll(options.threads);
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, LoadModelFolder(folder));
  const int64_t length = engine->model().rows() / kMicroBatch;
  LoaderOptions data;
  for (const std::string& path : options.data) {
    data.sources.push_back({path, 1.0});
  }
  data.sequence_length = static_cast<int32_t>(length);
  data.vocab = static_cast<int32_t>(engine->shape().vocab);
  data.shuffle = false;
  const v1::DataSpec& as_trained = engine->options().spec.data();
  data.packing = PackingOf(as_trained);
  data.documents = engine->documents();
  data.loss_tokens = LossTokens::kMaskedWhereKnown;
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<Loader> loader, Loader::Open(data));
  if (options.verify) {
    HEARTH_RETURN_IF_ERROR(VerifyFiles(loader->RecordedFiles()));
  }
  int64_t samples = loader->samples_of_pass();
  if (options.batches > 0) {
    samples = std::min(samples, options.batches * kMicroBatch);
  }
  LossSums sums;
  const BatchBuffers batch = engine->model().batch();
  for (int64_t first = 0; first < samples; first += kMicroBatch) {
    const int64_t count = std::min(kMicroBatch, samples - first);
    HEARTH_RETURN_IF_ERROR(loader->Fill(first, count, batch));
    std::fill(batch.loss_weight + count * length, batch.loss_weight + kMicroBatch * length, 0.0F);
    HEARTH_RETURN_IF_ERROR(engine->model().ForwardLoss(engine->exec(), sums));
  }
  const double loss = sums.loss / sums.weight;
  std::printf("loss %.6f  perplexity %.4f  tokens %.0f\n", loss, std::exp(loss), sums.weight);
  return absl::OkStatus();
}

}  // namespace

int EvalCommand(const EvalOptions& options) {
  const absl::Status status = Evaluate(options);
  return status.ok() ? 0 : Fail(status);
}

}  // namespace hearth::trainer
