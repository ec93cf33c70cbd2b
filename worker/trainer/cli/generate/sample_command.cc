#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/dataset/tokenize/choose_tokenizer.h"
#include "common/dataset/tokenize/tokenizer.h"
#include "common/hf/hf_config.h"
#include "common/time/clock.h"
#include "nlohmann/json.hpp"
#include "worker/trainer/cli/generate/generating_model.h"
#include "worker/trainer/cli/generate/log_probs.h"
#include "worker/trainer/cli/verbs.h"
#include "worker/trainer/generate/text_writer.h"

namespace hearth::trainer {
namespace {

using Tokens = std::vector<int32_t>;

absl::StatusOr<std::vector<std::string>> ReadPrompts(const SampleOptions& options) {
  if (options.prompts.empty()) {
    return std::vector<std::string>{options.prompt};
  }
  if (!options.prompt.empty()) {
    return absl::InvalidArgumentError("--prompt and --prompts: give one of them");
  }
  HEARTH_ASSIGN_OR_RETURN(const std::string text, Env::Real().ReadFile(options.prompts));
  std::vector<std::string> prompts;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    prompts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  if (prompts.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(options.prompts, " has no line"));
  }
  return prompts;
}

absl::StatusOr<std::vector<Tokens>> EncodePrompts(const SampleOptions& options,
                                                  const std::vector<std::string>& prompts,
                                                  dataset::Tokenizer& tokenizer,
                                                  int64_t vocab) {
  std::vector<Tokens> all;
  for (const std::string& prompt : prompts) {
    HEARTH_ASSIGN_OR_RETURN(Tokens tokens, tokenizer.Encode(prompt));
    if (tokens.empty()) {
      // Documents begin after the end of another.
      tokens.push_back(std::max(tokenizer.eos(), 0));
    }
    for (const int32_t token : tokens) {
      if (token >= vocab) {
        return absl::InvalidArgumentError(absl::StrCat(options.checkpoint,
                                                       ": its tokenizer has token ", token,
                                                       ", the model a vocabulary of ", vocab));
      }
    }
    all.push_back(std::move(tokens));
  }
  return all;
}

absl::Status CheckOptions(const SampleOptions& options) {
  if (options.tokens < 1 || options.batch < 1) {
    return absl::InvalidArgumentError(absl::StrCat("--tokens ", options.tokens, ", --batch ",
                                                   options.batch, ": both must be at least 1"));
  }
  if (std::any_of(options.stops.begin(), options.stops.end(),
                  [](const std::string& stop) { return stop.empty(); })) {
    return absl::InvalidArgumentError("--stop: an empty text would stop at once");
  }
  return kernels::CheckSamplingRule(options.rule);
}

void Print(const SampleOptions& options,
           LogProbs log_probs,
           const std::vector<std::string>& prompts,
           const std::vector<WrittenText>& texts) {
  for (size_t i = 0; i < texts.size(); ++i) {
    const WrittenText& text = texts[i];
    if (!options.json) {
      std::printf("%s%s%s\n", i > 0 ? "\n" : "", prompts[i].c_str(), text.text.c_str());
      continue;
    }
    const nlohmann::json line = {{"prompt", prompts[i]},
                                 {"text", text.text},
                                 {"tokens", text.tokens},
                                 {"log_prob", text.log_prob},
                                 {"log_prob_from", std::string(LogProbsName(log_probs))},
                                 {"end", std::string(TextEndName(text.end))}};
    // A text may end within a character.
    std::printf("%s\n",
                line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  }
}

absl::Status Sample(const SampleOptions& options) {
  HEARTH_RETURN_IF_ERROR(CheckOptions(options));
  HEARTH_ASSIGN_OR_RETURN(const std::vector<std::string> prompts, ReadPrompts(options));
  const FolderChoice folder{options.checkpoint, options.choice};
  if (options.verify) {
    HEARTH_RETURN_IF_ERROR(VerifyFolder(folder));
  }
  HEARTH_ASSIGN_OR_RETURN(const LogProbsChoice log_probs,
                          ChooseLogProbs(options.log_probs, options.json, options.checkpoint));
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<dataset::Tokenizer> tokenizer,
                          dataset::OpenTokenizerIn(options.checkpoint));
  GeneratingModelOptions wanted;
  HEARTH_ASSIGN_OR_RETURN(wanted.generator.model,
                          hf::ReadHfConfig(options.checkpoint, Env::Real()));
  HEARTH_ASSIGN_OR_RETURN(
      const std::vector<Tokens> tokens,
      EncodePrompts(options, prompts, *tokenizer, wanted.generator.model.vocab()));
  for (const Tokens& prompt : tokens) {
    wanted.generator.prompt =
        std::max(wanted.generator.prompt, static_cast<int64_t>(prompt.size()));
  }
  wanted.generator.length = wanted.generator.prompt + options.tokens;
  wanted.generator.batch = std::min(options.batch, static_cast<int64_t>(prompts.size()));
  wanted.generator.rule = options.rule;
  wanted.generator.end_token = tokenizer->eos();
  if (log_probs.from == LogProbs::kTraining) {
    wanted.generator.scoring = log_probs.shape;
    wanted.deterministic = log_probs.deterministic;
  }
  wanted.device = options.device;
  wanted.weights = options.weights;
  wanted.threads = options.threads;
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<GeneratingModel> model,
                          OpenFolderModel(wanted, folder));
  Generator& generator = *model->generator;
  WritingOptions writing;
  writing.tokens = options.tokens;
  writing.stops = options.stops;
  writing.log_probs = log_probs.from;
  WritingTimes times;
  HEARTH_ASSIGN_OR_RETURN(const std::vector<WrittenText> texts,
                          WriteTexts(generator, *tokenizer, tokens, writing, Clock::Real(), times));
  Print(options, log_probs.from, prompts, texts);
  return absl::OkStatus();
}

}  // namespace

int SampleCommand(const SampleOptions& options) {
  return ExitCodeOf(Sample(options));
}

}  // namespace hearth::trainer
