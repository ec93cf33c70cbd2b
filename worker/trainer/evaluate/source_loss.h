// The loss of a model on one dataset, and what that is for each byte of its text.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/dataset/tokenize/tokenizer.h"
#include "worker/trainer/data/loader.h"
#include "worker/trainer/step/engine.h"

namespace hearth::trainer {

struct SourceLoss {
  double loss = 0;     // sum over the targets of weight * negative log-likelihood, nats
  double weight = 0;   // sum of the weights
  int64_t tokens = 0;  // targets that count
  // Length of the text that these targets decode to, those of a sample together; an end token is
  // no text. Not known without a tokenizer.
  std::optional<int64_t> bytes;

  void Add(const SourceLoss& other);
  // NaN where nothing counts.
  double MeanLoss() const { return loss / weight; }
  double Perplexity() const;
  // loss / ln 2 / bytes; nothing without bytes.
  std::optional<double> BitsPerByte() const;
};

// Samples 0 .. samples - 1 of `loader`, which has one source and the engine's T, in micro-batches
// of the engine. `tokenizer`: the dataset's, null = it records none. Nothing else uses the engine
// meanwhile. `before_batch` is called before each micro-batch; an error of it ends the measurement.
// Errors: its own, those of Loader::Fill, Tokenizer::Decode and the ops; kDataLoss: a token that
// the tokenizer does not have.
absl::StatusOr<SourceLoss> MeasureSource(Engine& engine,
                                         const Loader& loader,
                                         dataset::Tokenizer* tokenizer,
                                         int64_t samples,
                                         const std::function<absl::Status()>& before_batch);

}  // namespace hearth::trainer
