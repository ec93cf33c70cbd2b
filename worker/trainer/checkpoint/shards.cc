#include "worker/trainer/checkpoint/shards.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "common/base/status_macros.h"
#include "common/fault/fault.h"
#include "common/formats/codecs.h"

namespace hearth::trainer {
namespace {

constexpr char kWritten[] = "written ";  // then bytes and XXH3
constexpr char kFailed[] = "failed: ";
// How long the file of an announced part may stay unseen.
constexpr absl::Duration kVisible = absl::Seconds(5);
constexpr absl::Duration kLookAgain = absl::Milliseconds(200);

std::string Key(const CheckpointContent& content, std::string_view what) {
  return absl::StrCat("checkpoint/", content.meta.epoch, "/", content.meta.step, "/",
                      std::string(what));
}

std::string Join(std::string_view dir, std::string_view name) {
  return absl::StrCat(std::string(dir), "/", std::string(name));
}

absl::StatusOr<ManifestEntry> ParseAnnouncement(const std::string& text, int rank) {
  ManifestEntry entry;
  const std::vector<std::string> words = absl::StrSplit(text, ' ');
  if (!absl::StartsWith(text, kWritten) || words.size() != 3 ||
      !absl::SimpleAtoi(words[1], &entry.bytes)) {
    return absl::UnavailableError(absl::StrCat(
        "rank ", rank, " could not write its part: ", absl::StripPrefix(text, kFailed)));
  }
  entry.checksum = {words[2], ChecksumKind::kXxh3};
  return entry;
}

// Files align nothing.
void WidenBf16(const uint8_t* from, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, from + i * static_cast<int64_t>(sizeof bits), sizeof bits);
    out[i] = formats::DecodeBf16(bits);
  }
}

// Bytes of `file`, which another host has written: a network file system may show it late. Returns
// at once when it is as long as announced, else after kVisible with what is to be seen then.
absl::StatusOr<int64_t> AwaitSize(Env& env, Clock& clock, const std::string& file, int64_t bytes) {
  const absl::Duration begin = clock.Monotonic();
  while (true) {
    absl::StatusOr<int64_t> size = env.FileSize(file);
    if ((size.ok() && *size == bytes) || clock.Monotonic() - begin >= kVisible) {
      return size;
    }
    // Opening the folder makes NFS look at it again, instead of remembering that there was no file.
    static_cast<void>(env.ListDir(file.substr(0, file.rfind('/'))).ok());
    absl::Mutex mu;
    absl::MutexLock lock(&mu);
    bool never = false;
    clock.AwaitWithTimeout(mu, absl::Condition(&never), kLookAgain);
  }
}

// The entry of one rank, and that its file is here.
absl::StatusOr<ManifestEntry> AwaitShard(Env& env,
                                         Clock& clock,
                                         const std::string& temp,
                                         const CheckpointContent& content,
                                         int rank,
                                         absl::Duration left) {
  const absl::StatusOr<std::string> text =
      content.sharded.store->Wait(Key(content, absl::StrCat(rank)), left);
  if (!text.ok()) {
    return absl::UnavailableError(
        absl::StrCat("the part of rank ", rank, " is missing: ", text.status().message()));
  }
  HEARTH_ASSIGN_OR_RETURN(ManifestEntry entry, ParseAnnouncement(*text, rank));
  entry.path = ShardFile(rank, content.sharded.shards);
  const absl::StatusOr<int64_t> size = AwaitSize(env, clock, Join(temp, entry.path), entry.bytes);
  if (!size.ok() || *size != entry.bytes) {
    return absl::UnavailableError(absl::StrCat(
        "the part of rank ", rank, " is not in the folder of rank 0 (", Join(temp, entry.path),
        "): checkpoints of a sharded optimizer need a directory that all hosts share"));
  }
  return entry;
}

}  // namespace

std::string ShardFile(int rank, int shards) {
  return absl::StrFormat("state/optimizer-%05d-of-%05d.safetensors", rank, shards);
}

int ShardsOfFile(std::string_view path) {
  const std::string name(path);
  const size_t of = name.find("-of-");
  int shards = 0;
  if (!absl::StartsWith(name, "state/optimizer-") || of == std::string::npos ||
      !absl::SimpleAtoi(absl::StripSuffix(name.substr(of + 4), ".safetensors"), &shards)) {
    return 0;
  }
  return shards;
}

absl::StatusOr<ManifestEntry> WriteShard(Env& env,
                                         const std::string& temp,
                                         const CheckpointContent& content) {
  HEARTH_RETURN_IF_ERROR(fault::Check("checkpoint.before_shard"));
  std::vector<TensorView> tensors;
  std::map<std::string, std::string> metadata;
  for (const SavedPiece& piece : content.pieces) {
    tensors.push_back(piece.values);
    // By this a load with another number of ranks puts the pieces of a tensor together.
    metadata[absl::StrCat("first.", piece.values.name)] = absl::StrCat(piece.first_element);
  }
  ManifestEntry entry;
  entry.path = ShardFile(content.sharded.rank, content.sharded.shards);
  HEARTH_ASSIGN_OR_RETURN(const FileFacts facts,
                          WriteTensors(env, Join(temp, entry.path), tensors, metadata, content));
  entry.bytes = facts.bytes;
  entry.checksum = facts.checksum;
  HEARTH_RETURN_IF_ERROR(env.SyncDir(Join(temp, "state")));
  return entry;
}

absl::Status AnnounceFolder(const CheckpointContent& content, const absl::Status& made) {
  return content.sharded.store->Put(Key(content, "folder"),
                                    made.ok() ? "made" : absl::StrCat(kFailed, made.message()));
}

absl::Status AwaitFolder(const CheckpointContent& content) {
  HEARTH_ASSIGN_OR_RETURN(
      const std::string text,
      content.sharded.store->Wait(Key(content, "folder"), content.sharded.timeout));
  if (absl::StartsWith(text, kFailed)) {
    return absl::UnavailableError(
        absl::StrCat("rank 0 could not make the folder: ", absl::StripPrefix(text, kFailed)));
  }
  return absl::OkStatus();
}

absl::Status AnnounceShard(const CheckpointContent& content,
                           const absl::StatusOr<ManifestEntry>& written) {
  const std::string text = written.ok()
                               ? absl::StrCat(kWritten, written->bytes, " ", written->checksum.hex)
                               : absl::StrCat(kFailed, written.status().message());
  return content.sharded.store->Put(Key(content, absl::StrCat(content.sharded.rank)), text);
}

absl::StatusOr<std::vector<ManifestEntry>> CollectShards(Env& env,
                                                         Clock& clock,
                                                         absl::Duration begin,
                                                         const std::string& temp,
                                                         const CheckpointContent& content) {
  std::vector<ManifestEntry> entries;
  for (int rank = 1; rank < content.sharded.shards; ++rank) {
    // One deadline for all ranks together.
    const absl::Duration left = content.sharded.timeout - (clock.Monotonic() - begin);
    HEARTH_ASSIGN_OR_RETURN(ManifestEntry entry, AwaitShard(env, clock, temp, content, rank,
                                                            std::max(left, absl::ZeroDuration())));
    entries.push_back(std::move(entry));
  }
  return entries;
}

SavedTensors::SavedTensors(const LoadedCheckpoint& checkpoint) : path_(checkpoint.path) {
  const auto add = [this](const TensorView& tensor, int64_t first) {
    if (tensor.dtype == TensorDType::kF32 || tensor.dtype == TensorDType::kBF16 ||
        tensor.dtype == TensorDType::kU8) {
      pieces_[tensor.name][first] = {tensor.elements(), tensor.dtype,
                                     static_cast<const uint8_t*>(tensor.data)};
    }
  };
  for (const TensorView& tensor : checkpoint.state->tensors()) {
    add(tensor, 0);
  }
  for (const std::unique_ptr<SafetensorsFile>& shard : checkpoint.shards) {
    for (const TensorView& tensor : shard->tensors()) {
      const auto text = shard->metadata().find(absl::StrCat("first.", tensor.name));
      int64_t first = 0;
      if (text != shard->metadata().end() && absl::SimpleAtoi(text->second, &first)) {
        add(tensor, first);
      }
    }
  }
}

absl::Status SavedTensors::Read(const std::string& name,
                                int64_t first,
                                int64_t count,
                                float* out) const {
  const auto tensor = pieces_.find(name);
  const int64_t end = first + count;
  while (first < end) {
    const Piece* piece = nullptr;
    int64_t begin = 0;
    if (tensor != pieces_.end()) {
      // The last piece that begins at or before `first`. Pieces of other numbers of ranks are cut
      // elsewhere, so one read may go over several.
      const auto after = tensor->second.upper_bound(first);
      if (after != tensor->second.begin()) {
        begin = std::prev(after)->first;
        piece = &std::prev(after)->second;
      }
    }
    if (piece == nullptr || begin + piece->elements <= first) {
      return absl::DataLossError(
          absl::StrCat(path_, ": no file has tensor \"", name, "\" from element ", first));
    }
    const int64_t n = std::min(end, begin + piece->elements) - first;
    const uint8_t* const from = piece->values + (first - begin) * TensorDTypeBytes(piece->dtype);
    if (piece->dtype == TensorDType::kF32) {
      std::memcpy(out, from, static_cast<size_t>(n) * sizeof(float));
    } else if (piece->dtype == TensorDType::kU8) {
      std::copy_n(from, n, out);
    } else {
      WidenBf16(from, n, out);
    }
    out += n;
    first += n;
  }
  return absl::OkStatus();
}

}  // namespace hearth::trainer
