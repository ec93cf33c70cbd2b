// Facts by which the tokenizer of one folder can be compared with that of another.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/io/env.h"
#include "common/tokenizer/tokenizer_kind.h"
#include "hearth/v1/agent.pb.h"

namespace hearth::facts {

// Reads tokenizers of dataset, checkpoint and Hugging Face folders. Remembers the last few files by
// their SHA-256, so that a file that several folders share is parsed once. Not thread-safe.
class TokenizerReader {
 public:
  // `env` outlives it.
  explicit TokenizerReader(Env& env) : env_(env) {}

  // `path`: a folder, or a .bin file. No kind in the answer: no tokenizer is recorded there.
  // Without dataset.json and hearth_tokenizer.json a tokenizer.json counts, else a tokenizer.model;
  // a tokenizer.json that common/tokenizer cannot read as byte-level BPE is of kind "other", unless
  // a tokenizer.model is beside it. kInvalidArgument, kNotFound: what the folder records is
  // damaged, or its file is not there; kResourceExhausted: the file has more than 256 MiB.
  absl::StatusOr<v1::TokenizerFacts> Read(const std::string& path);

 private:
  absl::StatusOr<v1::TokenizerFacts> ReadHfFolder(const std::string& path);
  absl::StatusOr<v1::TokenizerFacts> ReadFile(const std::string& folder,
                                              const std::string& file,
                                              const tokenizer::TokenizerKindRow& kind);
  // The probe and vocabulary of a tokenizer.json; kind "other" if it cannot be read.
  v1::TokenizerFacts ParseBpe(const std::string& json, const std::string& path) const;

  Env& env_;
  std::deque<v1::TokenizerFacts> parsed_;  // the newest first
};

}  // namespace hearth::facts
