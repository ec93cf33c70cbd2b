// Texts that a model writes behind prompts: what a Generator draws, as text, with stop strings.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/dataset/tokenize/tokenizer.h"
#include "common/time/clock.h"
#include "worker/trainer/generate/generator.h"

namespace hearth::trainer {

// Why a text ended.
enum class TextEnd : uint8_t {
  kEndToken,  // the model ended it
  kStop,      // a stop string came
  kLength,    // it got as many tokens as were asked for, or as fit
};
// "end", "stop", "length"
std::string_view TextEndName(TextEnd end);

// Which pass gives the log-probabilities of what was drawn.
enum class LogProbs : uint8_t {
  kGeneration,  // the one that drew the token
  kTraining,    // Generator::Score of the whole text
};
// "generation", "training"
std::string_view LogProbsName(LogProbs log_probs);
std::vector<std::string_view> LogProbsNames();

struct WrittenText {
  std::string text;             // what was added; without the stop string and what is behind it
  std::vector<int32_t> tokens;  // all that were drawn but the end token
  std::vector<float> log_prob;  // of each of them
  TextEnd end = TextEnd::kLength;
};

struct WritingOptions {
  int64_t tokens = 100;            // to add to each prompt, > 0
  std::vector<std::string> stops;  // none of them empty
  // Called before each pass, which is progress. An error ends the writing and is its result. Empty:
  // nobody is told.
  std::function<absl::Status()> at_pass = nullptr;
  LogProbs log_probs = LogProbs::kGeneration;
};

struct WritingTimes {
  double first_token_s = 0;  // from Begin to the first token of the first texts
  double decode_s = 0;       // from there to the last, over all groups of texts
  int64_t tokens = 0;        // drawn in decode_s
};

// The position in `text` at which the first of `stops` begins; npos: none is there.
size_t FindStop(std::string_view text, const std::vector<std::string>& stops);

// A text for each prompt, in order; Generator's batch of them at a time. Prompt i draws from stream
// i, so its text does not depend on the batch. Log-probabilities of training are computed once all
// are written: text i is sequence i of the micro-batches that Generator::Score makes. `prompts`:
// tokens of the generator's vocabulary, each at least one. Errors: those of Generator and
// Tokenizer::Decode.
absl::StatusOr<std::vector<WrittenText>> WriteTexts(Generator& generator,
                                                    dataset::Tokenizer& tokenizer,
                                                    absl::Span<const std::vector<int32_t>> prompts,
                                                    const WritingOptions& options,
                                                    Clock& clock,
                                                    WritingTimes& times);

}  // namespace hearth::trainer
