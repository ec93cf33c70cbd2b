// Writing a dataset folder.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/dataset/format.h"
#include "common/io/env.h"
#include "common/io/sha256.h"

namespace hearth::dataset {

// `token` as a shard has it.
inline void AppendToken(TokenWidth width, int32_t token, std::string* out) {
  const uint32_t value = static_cast<uint32_t>(token);
  const char bytes[] = {static_cast<char>(value), static_cast<char>(value >> 8),
                        static_cast<char>(value >> 16), static_cast<char>(value >> 24)};
  out->append(bytes, static_cast<size_t>(Bytes(width)));
}

// uint16 up to 65536.
inline TokenWidth WidthOf(int32_t vocab) {
  return vocab <= 65536 ? TokenWidth::kUint16 : TokenWidth::kUint32;
}

// Writes shards into a folder of another name and renames it to `dir` in Finish: `dir` is whole or
// absent. Not thread-safe.
class DatasetWriter {
 public:
  struct Options {
    // name, split, tokenizer, vocab, eos, and loss_tokens 0 for a mask; the rest is filled in
    DatasetInfo info;
    int64_t shard_tokens = int64_t{1} << 27;  // tokens per shard file
    std::map<std::string, std::string>
        tokenizer_files;  // name and bytes, written beside the shards
    // Folder to write in. Empty: `<dir>.tmp-` and a random number, removed by the destructor if
    // Finish was not called.
    std::string work_dir;
    // What Save returned: go on in `work_dir` from there. What was written later is dropped.
    std::optional<DatasetInfo> resume;
  };

  // The token width follows from info.vocab (uint16 up to 65536). kAlreadyExists: `dir` exists and
  // is not an empty folder.
  static absl::StatusOr<std::unique_ptr<DatasetWriter>> Create(const std::string& dir,
                                                               Options options,
                                                               Env& env = Env::Real());
  ~DatasetWriter();

  // Appends one document; the end token (info.eos) is added when it is >= 0. For datasets without a
  // mask. kInvalidArgument: a token outside [0, vocab).
  absl::Status AddDocument(absl::Span<const int32_t> tokens);

  // The same from tokens as shards have them: `count` of `width()` bytes each, with the end token,
  // all below the vocabulary. `mask`: `count` bytes of format.h where info.has_mask(), else empty.
  absl::Status AddPackedDocument(std::string_view packed, int64_t count, std::string_view mask);

  TokenWidth width() const { return options_.info.width; }
  const DatasetInfo& info() const { return options_.info; }  // so far

  // Makes durable what was added, and returns what Options.resume needs to go on from here.
  absl::StatusOr<DatasetInfo> Save();

  // Flushes, fsyncs, writes dataset.json, renames. Call it once, last. kInvalidArgument: no
  // token was added.
  absl::StatusOr<DatasetInfo> Finish();

 private:
  DatasetWriter(std::string dir, Options options, Env& env);
  // A file that grows: the tokens of a shard, or their mask.
  struct Growing {
    std::unique_ptr<WritableFile> file;
    Sha256 hash;
    std::string buffer;

    absl::Status Open(Env& env, const std::string& path);
    // The first `bytes` bytes of what is there, and on from them.
    absl::Status Continue(Env& env, const std::string& path, int64_t bytes);
    absl::Status Flush();
    absl::StatusOr<std::string> Close();  // its SHA-256
  };

  absl::Status Put(int32_t token);
  absl::Status OpenShard();
  absl::Status Resume(const DatasetInfo& info);
  absl::Status Flush();
  absl::Status CloseShard();

  const std::string dir_;
  const std::string temp_dir_;
  const bool keep_temp_dir_;
  Options options_;
  Env& env_;
  Growing tokens_;
  Growing mask_;  // never open where info.has_mask() is false
  bool finished_ = false;
};

}  // namespace hearth::dataset
