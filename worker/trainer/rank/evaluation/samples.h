// train.samples of a job: texts that its model writes between steps.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/dataset/tokenize/tokenizer.h"
#include "common/io/env.h"
#include "common/time/clock.h"
#include "hearth/v1/job.pb.h"
#include "worker/trainer/generate/generator.h"
#include "worker/trainer/step/engine.h"

namespace hearth::trainer {

// Not thread-safe.
class Samples {
 public:
  // Encodes the prompts with the tokenizer of dataset folder `tokenizer_from`. Errors: those of
  // OpenTokenizerIn and EncodePrompt; kInvalidArgument: the job has samples and its data no
  // tokenizer, or an option of one is out of range.
  static absl::StatusOr<Samples> Open(const v1::JobSpec& spec,
                                      const std::string& tokenizer_from,
                                      Env& env);

  bool empty() const { return requests_.empty(); }
  size_t size() const { return requests_.size(); }

  struct WriteOptions {
    const Engine* engine = nullptr;  // its weights must be whole; only read
    int threads = 1;
    Clock* clock = nullptr;
    // As WritingOptions::at_pass; called before each copy of the model, too.
    std::function<absl::Status()> at_pass = nullptr;
  };
  // Adds a text for each request to `report`, in their order, with all but the step. The shortest
  // prompts are written first, so that a long one delays no other text. These are the texts that
  // `hearth-trainer sample` would write on the CPU with a checkpoint of these weights. The model is
  // copied into generators of its own, one after the other for prompts of different lengths, on the
  // CPU in fp32 wherever the job trains: the plan of a GPU's memory has no room for it. Errors:
  // those of Generator, among them kResourceExhausted, of the tokenizer and of at_pass; `report`
  // then has the texts that were complete.
  absl::Status Write(const WriteOptions& options, v1::StepReport& report) const;

 private:
  struct Request {
    v1::TextRequest text;
    std::vector<int32_t> prompt;  // tokens
  };

  // With the weights of the engine, for prompts of `shortest` tokens and those of similar length.
  absl::StatusOr<std::unique_ptr<Generator>> NewGenerator(const WriteOptions& options,
                                                          size_t shortest) const;
  // Those that are complete are in `texts`, one a request, also after an error.
  absl::Status WriteShortestFirst(const WriteOptions& options,
                                  std::vector<std::optional<v1::SampleText>>& texts) const;
  absl::StatusOr<v1::SampleText> WriteOne(const WriteOptions& options,
                                          const Request& request,
                                          Generator& generator) const;

  std::vector<Request> requests_;
  std::unique_ptr<dataset::Tokenizer> tokenizer_;
};

}  // namespace hearth::trainer
