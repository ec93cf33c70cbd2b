// Writing a dataset folder.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/dataset/format.h"
#include "common/io/env.h"
#include "common/io/sha256.h"

namespace hearth::dataset {

// Writes shards into `<dir>.tmp` and renames it to `dir` in Finish: `dir` is whole or absent. Not
// thread-safe. Destroyed before Finish it removes what it wrote.
class DatasetWriter {
 public:
  struct Options {
    DatasetInfo info;  // name, split, tokenizer, vocab, eos; the rest is filled in
    int64_t shard_tokens = int64_t{1} << 27;  // tokens per shard file
    std::map<std::string, std::string>
        tokenizer_files;  // name and bytes, written beside the shards
  };

  // The token width follows from info.vocab (uint16 up to 65536). kAlreadyExists: `dir` exists and
  // is not an empty folder.
  static absl::StatusOr<std::unique_ptr<DatasetWriter>> Create(const std::string& dir,
                                                               Options options,
                                                               Env& env = Env::Real());
  ~DatasetWriter();

  // Appends one document; the end token (info.eos) is added when it is >= 0. kInvalidArgument: a
  // token outside [0, vocab).
  absl::Status AddDocument(absl::Span<const int32_t> tokens);

  // Flushes, fsyncs, writes dataset.json, renames. Call it once, last. kInvalidArgument: no
  // token was added.
  absl::StatusOr<DatasetInfo> Finish();

 private:
  DatasetWriter(std::string dir, Options options, Env& env);
  absl::Status Put(int32_t token);
  absl::Status Flush();
  absl::Status CloseShard();

  const std::string dir_;
  const std::string temp_dir_;
  Options options_;
  Env& env_;
  std::unique_ptr<WritableFile> file_;
  Sha256 hash_;
  std::string buffer_;
  bool finished_ = false;
};

}  // namespace hearth::dataset
