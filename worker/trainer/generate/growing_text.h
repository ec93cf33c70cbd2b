// One text that grows: by what the model adds, and by what others add, as in a chat. What the
// generator has read already is not read again.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/trainer/generate/generator.h"
#include "worker/trainer/generate/text_stream.h"
#include "worker/trainer/generate/text_writer.h"

namespace hearth::trainer {

// Not thread-safe. The generator has a batch of one and outlives the object.
class GrowingText {
 public:
  explicit GrowingText(Generator& generator) : generator_(generator) {}

  // `tokens` becomes the text, to which the model may add `add` > 0. Only tokens behind the longest
  // beginning that it shares with the text so far are computed, unless a pass over the whole
  // beginning is cheaper. kInvalidArgument: no token, or as many as the generator has room for.
  absl::Status Read(absl::Span<const int32_t> tokens, int64_t add);
  // The next token that the model adds; -1: it ended the text, or has added all.
  absl::StatusOr<int32_t> Next();
  // Tokens of the last Read that were computed; the others were kept.
  int64_t computed() const { return computed_; }

 private:
  absl::Status Begin(absl::Span<const int32_t> tokens, int64_t add);

  Generator& generator_;
  std::vector<int32_t> text_;
  int64_t read_ = 0;  // tokens of text_ whose keys and values are there
  int64_t computed_ = 0;
  int64_t left_ = 0;      // tokens that the model may still add
  int64_t launched_ = 0;  // passes on their way, the one that draws the next token first
};

struct StreamOptions {
  int64_t tokens = 100;            // to add, > 0
  std::vector<std::string> stops;  // none of them empty
  std::vector<int32_t> ends;       // tokens that end the text as the generator's end token does
};

// Gets each piece of the text as soon as it is certain, valid UTF-8 if the model's bytes are. False
// ends the text.
using TextSink = std::function<bool(std::string_view piece)>;

struct StreamedText {
  std::string text;  // all pieces
  TextEnd end = TextEnd::kLength;
};

// Reads `tokens` and writes behind them. Errors: those of GrowingText and Tokenizer::Decode.
absl::StatusOr<StreamedText> StreamText(GrowingText& text,
                                        dataset::Tokenizer& tokenizer,
                                        absl::Span<const int32_t> tokens,
                                        const StreamOptions& options,
                                        const TextSink& sink);

}  // namespace hearth::trainer
