#include "worker/trainer/evaluate/source_loss.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace hearth::trainer {
namespace {

// Adds the counted targets of a sample, and the bytes of their text.
absl::Status CountSample(const BatchBuffers& batch,
                         int64_t first,
                         int64_t length,
                         dataset::Tokenizer* tokenizer,
                         std::vector<int32_t>& targets,
                         SourceLoss& sums) {
  targets.clear();
  for (int64_t i = first; i < first + length; ++i) {
    if (batch.loss_weight[i] != 0.0F) {
      targets.push_back(batch.targets[i]);
    }
  }
  sums.tokens += static_cast<int64_t>(targets.size());
  if (tokenizer != nullptr) {
    HEARTH_ASSIGN_OR_RETURN(const std::string text, tokenizer->Decode(targets));
    *sums.bytes += static_cast<int64_t>(text.size());
  }
  return absl::OkStatus();
}

}  // namespace

void SourceLoss::Add(const SourceLoss& other) {
  loss += other.loss;
  weight += other.weight;
  tokens += other.tokens;
  if (bytes.has_value() && other.bytes.has_value()) {
    *bytes += *other.bytes;
  } else {
    bytes.reset();
  }
}

double SourceLoss::Perplexity() const {
  return std::exp(MeanLoss());
}

std::optional<double> SourceLoss::BitsPerByte() const {
  if (!bytes.has_value() || *bytes == 0) {
    return std::nullopt;
  }
  return loss / std::log(2.0) / static_cast<double>(*bytes);
}

absl::StatusOr<SourceLoss> MeasureSource(Engine& engine,
                                         const Loader& loader,
                                         dataset::Tokenizer* tokenizer,
                                         int64_t samples,
                                         const std::function<absl::Status()>& before_batch) {
  const int64_t length = loader.sequence_length();
  const int64_t micro_batch = engine.model_rows() / length;
  const BatchBuffers batch = engine.StagedBatch(0);
  const kernels::Exec& exec = engine.exec();
  kernels::StepState* const state = engine.step_state();
  SourceLoss sums;
  if (tokenizer != nullptr) {
    sums.bytes = 0;
  }
  std::vector<int32_t> targets;
  HEARTH_RETURN_IF_ERROR(kernels::Zero(exec, state, sizeof(*state)));
  for (int64_t first = 0; first < samples; first += micro_batch) {
    HEARTH_RETURN_IF_ERROR(before_batch());
    const int64_t count = std::min(micro_batch, samples - first);
    HEARTH_RETURN_IF_ERROR(loader.Fill(first, count, batch));
    // Rows of an earlier batch stay where there are too few samples; they do not count.
    std::fill(batch.loss_weight + count * length, batch.loss_weight + micro_batch * length, 0.0F);
    HEARTH_RETURN_IF_ERROR(engine.UploadBatch(0));
    HEARTH_RETURN_IF_ERROR(
        engine.model().ForwardLoss(exec, Pass{}, &state->loss_sum, &state->weight_sum));
    for (int64_t i = 0; i < count; ++i) {
      const absl::Status counted = CountSample(batch, i * length, length, tokenizer, targets, sums);
      // Kernels refuse arguments with the same code, and for those the data is not to blame.
      if (absl::IsInvalidArgument(counted)) {
        return absl::DataLossError(
            absl::StrCat(loader.source(0).path(),
                         ": no text of the tokenizer that it records: ", counted.message()));
      }
      HEARTH_RETURN_IF_ERROR(counted);
    }
    // The staging memory is free once the pass has read it.
    HEARTH_RETURN_IF_ERROR(kernels::Synchronize(exec));
  }
  kernels::StepState* const staged = engine.StagedState(0);
  if (staged != state) {
    HEARTH_RETURN_IF_ERROR(kernels::Copy(exec, staged, state, sizeof(*state)));
    HEARTH_RETURN_IF_ERROR(kernels::Synchronize(exec));
  }
  sums.loss = staged->loss_sum;
  sums.weight = staged->weight_sum;
  return sums;
}

}  // namespace hearth::trainer
