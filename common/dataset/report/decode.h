// Tokens of a dataset back to text, for people.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/io/env.h"

namespace hearth::dataset {

struct DecodeOptions {
  int64_t parts = 1;      // documents, > 0; of a dataset without end tokens windows of kWindow
  int64_t from = 0;       // token at which the first one begins, in the middle of a document or not
  int64_t document = -1;  // >= 0: the first one is this document, from 0, and `from` counts not
};

// Tokens of a window, and those of a document that are shown; of a longer one its first.
inline constexpr int64_t kDecodeWindow = 256;
inline constexpr int64_t kDecodeMax = 4096;

struct DecodedPart {
  int64_t document = -1;   // from 0; -1: the dataset has no end tokens
  int64_t first = 0;       // its first token in the stream
  int64_t tokens = 0;      // up to the end of the document or window, end token included
  bool begins = true;      // at the first token of the document or window
  bool ends = true;        // false: the dataset ends before the document does
  bool end_token = false;  // its last token ends it and is not shown
  int64_t shown = 0;       // tokens, without the end token
  bool decoded = false;    // false: no tokenizer is recorded; `text` is numbers
  std::string text;        // any bytes
  // With a loss mask: the text in pieces that count in the loss, or do not.
  struct Run {
    bool counts = false;
    std::string text;
  };
  std::vector<Run> runs;
};

// kOutOfRange: the dataset has no such token or document; errors of Dataset::Open, OpenTokenizerIn
// and Tokenizer::Decode.
absl::StatusOr<std::vector<DecodedPart>> DecodeParts(const std::string& path,
                                                     const DecodeOptions& options,
                                                     Env& env = Env::Real());

// A line for each part and below it the text, indented; control characters stay as they are.
std::string ToText(const std::vector<DecodedPart>& parts);
std::string ToJson(const std::vector<DecodedPart>& parts);

}  // namespace hearth::dataset
