// The part of a checkpoint that each rank of a sharded optimizer writes itself, and what the ranks
// tell one another about it.
//
//   rank 0       : makes the folder -> "folder" -> writes its files -> waits for all -> manifest,
//                  rename
//   other ranks  : wait for "folder" -> write their file -> announce its size and XXH3
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/env.h"
#include "common/time/clock.h"
#include "worker/trainer/checkpoint/checkpoint.h"
#include "worker/trainer/checkpoint/meta.h"
#include "worker/trainer/checkpoint/tensor_files.h"

namespace hearth::trainer {

// "state/optimizer-00001-of-00004.safetensors".
std::string ShardFile(int rank, int shards);
// Among how many ranks the file at this path inside a checkpoint is divided; 0: not such a file.
int ShardsOfFile(std::string_view path);

// Writes content.pieces into the folder `temp`, fsynced. `path` of the entry is inside it.
absl::StatusOr<ManifestEntry> WriteShard(Env& env,
                                         const std::string& temp,
                                         const CheckpointContent& content);

// Rank 0: the folder is there, or why not.
absl::Status AnnounceFolder(const CheckpointContent& content, const absl::Status& made);
// The others: until it is there. kUnavailable: rank 0 could not make it; kDeadlineExceeded.
absl::Status AwaitFolder(const CheckpointContent& content);
// The others: what they wrote, or why they could not.
absl::Status AnnounceShard(const CheckpointContent& content,
                           const absl::StatusOr<ManifestEntry>& written);
// Rank 0: the entries of all others, each with a file of that size in `temp` (a few seconds later
// at most: network file systems cache). kUnavailable names the first rank whose part is missing:
// not announced within sharded.timeout of `begin`, failed, or written to a folder that this host
// does not see.
absl::StatusOr<std::vector<ManifestEntry>> CollectShards(Env& env,
                                                         Clock& clock,
                                                         absl::Duration begin,
                                                         const std::string& temp,
                                                         const CheckpointContent& content);

// A tensor of a loaded checkpoint, whole or in pieces, by name. The checkpoint outlives it.
class SavedTensors {
 public:
  explicit SavedTensors(const LoadedCheckpoint& checkpoint);

  // Elements [first, first + count) of the tensor `name`, which a file has in fp32 or bf16.
  // kDataLoss names the tensor and the first element that no file has in such a format.
  absl::Status Read(const std::string& name, int64_t first, int64_t count, float* out) const;

 private:
  struct Piece {
    int64_t elements = 0;
    TensorDType dtype = TensorDType::kF32;
    const uint8_t* values = nullptr;
  };
  const std::string path_;
  std::map<std::string, std::map<int64_t, Piece>> pieces_;  // by first element
};

}  // namespace hearth::trainer
