// Writing a dataset folder.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/dataset/format.h"
#include "common/dataset/packed_tokens.h"
#include "common/io/env.h"
#include "common/io/sha256.h"

namespace hearth::dataset {

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
    // What info() was at a Sync: go on in `work_dir` from there. What was written later is dropped.
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

  // What is to be done to the dataset's files, in order.
  struct Write {
    enum class Kind { kOpen, kAppend, kClose };
    Kind kind;
    bool mask;               // of a mask file; else of a shard's tokens
    std::string file;        // kOpen
    std::string_view bytes;  // kAppend
  };
  using Writes = std::vector<Write>;

  // AddPackedDocument in two steps, for two threads: while one adds, which counts and hashes, the
  // other writes what was added before, in the order of adding. The bytes must live until they are
  // written. `documents`: how many the tokens are.
  void Add(std::string_view packed,
           int64_t documents,
           int64_t count,
           std::string_view mask,
           Writes* writes);
  absl::Status Carry(absl::Span<const Write> writes);

  TokenWidth width() const { return options_.info.width; }
  const DatasetInfo& info() const { return options_.info; }  // so far

  // Makes durable what was written. Options.resume needs the info() of this moment to go on from
  // here.
  absl::Status Sync();

  // Flushes, fsyncs, writes dataset.json, renames. Call it once, last. kInvalidArgument: no
  // token was added.
  absl::StatusOr<DatasetInfo> Finish();

 private:
  DatasetWriter(std::string dir, Options options, Env& env);
  // A file that grows: the tokens of a shard, or their mask.
  struct Growing {
    Sha256 hash;                         // of what was added
    std::unique_ptr<WritableFile> file;  // null: none is open
    int64_t begun = 0;                   // bytes since the last one that the disk was given

    // The first `bytes` bytes of what is there, and on from them.
    absl::Status Continue(Env& env, const std::string& path, int64_t bytes);
    absl::Status Append(std::string_view bytes);
    absl::Status Close();
  };

  ShardInfo& ShardWithRoom(Writes* writes);
  void EndShard(Writes* writes);
  absl::Status Resume(const DatasetInfo& info);
  absl::Status Do(const Write& write);

  const std::string dir_;
  const std::string temp_dir_;
  const bool keep_temp_dir_;
  Options options_;
  Env& env_;
  bool in_shard_ = false;  // the last of info.shards grows
  Growing tokens_;
  Growing mask_;  // never open where info.has_mask() is false
  bool finished_ = false;
};

}  // namespace hearth::dataset
