#include <cstdio>
#include <vector>

#include "common/base/status_macros.h"
#include "common/dataset/tokenizer.h"
#include "worker/trainer/checkpoint/hf_model.h"
#include "worker/trainer/cli/verbs.h"
#include "worker/trainer/rank/sampler.h"

namespace hearth::trainer {
namespace {

absl::Status Sample(const SampleOptions& options) {
  if (options.verify) {
    HEARTH_ASSIGN_OR_RETURN(const std::vector<RecordedFile> files,
                            RecordedModelFiles(Env::Real(), options.checkpoint));
    HEARTH_RETURN_IF_ERROR(VerifyFiles(files));
  }
  ModelFolderOptions folder;
  folder.path = options.checkpoint;
  folder.sequence_length = options.sequence_length;
  folder.threads = ThreadsOrAll(options.threads);
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<dataset::Tokenizer> tokenizer,
                          dataset::OpenTokenizerIn(options.checkpoint));
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, LoadModelFolder(folder));
  HEARTH_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, tokenizer->Encode(options.prompt));
  for (const int32_t token : tokens) {
    if (token >= engine->shape().vocab) {
      return absl::InvalidArgumentError("the tokenizer has tokens that the model does not know");
    }
  }
  if (tokens.empty()) {
    // Documents begin after the end of another.
    tokens.push_back(tokenizer->eos() >= 0 ? tokenizer->eos() : 0);
  }
  const SamplingOptions sampling = {options.temperature, options.top_k, options.seed};
  std::vector<float> scratch;
  for (int i = 0; i < options.tokens; ++i) {
    HEARTH_ASSIGN_OR_RETURN(const int32_t next, SampleNext(*engine, tokens, sampling, i, scratch));
    if (next == tokenizer->eos()) {
      break;
    }
    tokens.push_back(next);
  }
  HEARTH_ASSIGN_OR_RETURN(const std::string text, tokenizer->Decode(tokens));
  std::printf("%s\n", text.c_str());
  return absl::OkStatus();
}

}  // namespace

int SampleCommand(const SampleOptions& options) {
  const absl::Status status = Sample(options);
  return status.ok() ? 0 : Fail(status);
}

}  // namespace hearth::trainer
