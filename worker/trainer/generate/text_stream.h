// A text as it is written: tokens come one by one, and what is certain of the text goes out.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/dataset/tokenize/tokenizer.h"

namespace hearth::trainer {

// Not thread-safe.
class TextStream {
 public:
  // `before`: the tokens that the text stands behind, of which the last few count: tokenizers write
  // a word's space with its word. `stops`: none empty. `tokenizer` outlives the object.
  TextStream(dataset::Tokenizer& tokenizer,
             absl::Span<const int32_t> before,
             std::vector<std::string> stops);

  // The part of the text that this token makes certain. Held back: the beginning of a character
  // that is not complete, and of what may become a stop string. Nothing after a stop string.
  absl::StatusOr<std::string> Add(int32_t token);
  // The text is over: what was held back. A character that was never completed stays as it is.
  absl::StatusOr<std::string> Finish();
  // A stop string came; neither it nor what is behind it goes out.
  bool stopped() const { return stopped_; }

 private:
  absl::Status Decode(bool last);
  std::string TakeCertain();

  dataset::Tokenizer& tokenizer_;
  const std::vector<std::string> stops_;
  std::vector<int32_t> window_;  // the last tokens
  size_t decoded_ = 0;           // bytes of the window's text that went into pending_
  int held_ = 0;                 // tokens since the window's text last ended with a whole character
  std::string pending_;          // not yet given out
  bool stopped_ = false;
};

// Bytes at the end of `text` that begin a UTF-8 character and do not complete it; 0..3.
size_t IncompleteTail(std::string_view text);

}  // namespace hearth::trainer
