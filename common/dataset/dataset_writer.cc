#include "common/dataset/dataset_writer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"

namespace hearth::dataset {
namespace {

// The disk is given what was written each time that it is as much, so that Sync waits for little.
constexpr int64_t kWriteBackBytes = int64_t{8} << 20;

}  // namespace

DatasetWriter::DatasetWriter(std::string dir, Options options, Env& env)
    : dir_(std::move(dir)),
      temp_dir_(options.work_dir.empty() ? absl::StrCat(dir_, ".tmp-", RandomHex(4))
                                         : options.work_dir),
      keep_temp_dir_(!options.work_dir.empty()),
      options_(std::move(options)),
      env_(env) {}

DatasetWriter::~DatasetWriter() {
  tokens_.file.reset();
  mask_.file.reset();
  if (!finished_ && !keep_temp_dir_) {
    env_.RemoveAll(temp_dir_).IgnoreError();
  }
}

absl::Status DatasetWriter::Growing::Continue(Env& env, const std::string& path, int64_t bytes) {
  // What stands behind was written after the last Sync, and will come again.
  HEARTH_RETURN_IF_ERROR(env.Truncate(path, bytes));
  {
    // The hash's state is not saved, so it is made from the bytes that stay.
    HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<MappedFile> written, env.Map(path));
    hash.Update(written->bytes());
  }
  HEARTH_ASSIGN_OR_RETURN(file, env.NewAppendableFile(path));
  return absl::OkStatus();
}

absl::Status DatasetWriter::Growing::Append(std::string_view bytes) {
  HEARTH_RETURN_IF_ERROR(file->Append(bytes));
  begun += static_cast<int64_t>(bytes.size());
  if (begun < kWriteBackBytes) {
    return absl::OkStatus();
  }
  begun = 0;
  file->StartWriteBack();
  return absl::OkStatus();
}

absl::Status DatasetWriter::Growing::Close() {
  HEARTH_RETURN_IF_ERROR(file->Sync());
  HEARTH_RETURN_IF_ERROR(file->Close());
  file.reset();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<DatasetWriter>> DatasetWriter::Create(const std::string& dir,
                                                                     Options options,
                                                                     Env& env) {
  std::string clean = dir;
  while (clean.size() > 1 && clean.back() == '/') {
    clean.pop_back();
  }
  if (clean.empty()) {
    return absl::InvalidArgumentError("dataset folder: the path is empty");
  }
  if (env.Exists(clean)) {
    if (!env.IsDirectory(clean)) {
      return absl::AlreadyExistsError(absl::StrCat(clean, ": exists"));
    }
    HEARTH_ASSIGN_OR_RETURN(const std::vector<std::string> names, env.ListDir(clean));
    if (!names.empty()) {
      return absl::AlreadyExistsError(absl::StrCat(clean, ": exists and is not empty"));
    }
  }
  DatasetInfo& info = options.info;
  if (info.vocab <= 0) {
    return absl::InvalidArgumentError("dataset vocab: must be > 0");
  }
  info.width = WidthOf(info.vocab);
  info.documents = info.tokens = 0;
  info.shards.clear();
  if (options.shard_tokens < 1) {
    return absl::InvalidArgumentError("shard_tokens: must be >= 1");
  }
  std::unique_ptr<DatasetWriter> writer(new DatasetWriter(clean, std::move(options), env));
  HEARTH_RETURN_IF_ERROR(env.CreateDirs(writer->temp_dir_));
  if (const std::optional<DatasetInfo> resume = std::move(writer->options_.resume)) {
    HEARTH_RETURN_IF_ERROR(writer->Resume(*resume));
  }
  return writer;
}

absl::Status DatasetWriter::Resume(const DatasetInfo& saved) {
  DatasetInfo& info = options_.info;
  info.documents = saved.documents;
  info.tokens = saved.tokens;
  info.loss_tokens = saved.loss_tokens;
  info.shards = saved.shards;
  HEARTH_ASSIGN_OR_RETURN(const std::vector<std::string> names, env_.ListDir(temp_dir_));
  // Files that were begun after the last Sync.
  for (const std::string& name : names) {
    const bool known = std::any_of(
        info.shards.begin(), info.shards.end(),
        [&name](const ShardInfo& shard) { return shard.file == name || shard.mask == name; });
    if (!known) {
      HEARTH_RETURN_IF_ERROR(env_.RemoveAll(absl::StrCat(temp_dir_, "/", name)));
    }
  }
  // A digest says that the shard was closed.
  if (info.shards.empty() || !info.shards.back().sha256.empty()) {
    return absl::OkStatus();
  }
  const ShardInfo& shard = info.shards.back();
  in_shard_ = true;
  if (info.has_mask()) {
    HEARTH_RETURN_IF_ERROR(
        mask_.Continue(env_, absl::StrCat(temp_dir_, "/", shard.mask), shard.tokens));
  }
  return tokens_.Continue(env_, absl::StrCat(temp_dir_, "/", shard.file),
                          shard.tokens * Bytes(info.width));
}

absl::Status DatasetWriter::AddDocument(absl::Span<const int32_t> tokens) {
  const DatasetInfo& info = options_.info;
  HEARTH_DCHECK(!info.has_mask(), "documents with a mask come packed");
  for (const int32_t token : tokens) {
    if (token < 0 || token >= info.vocab) {
      return absl::InvalidArgumentError(
          absl::StrCat(dir_, ": token ", token, " is not below the vocabulary ", info.vocab));
    }
  }
  std::string packed(tokens.size() * static_cast<size_t>(Bytes(info.width)), '\0');
  PackTokens(info.width, tokens, packed.data());
  int64_t count = static_cast<int64_t>(tokens.size());
  if (info.eos >= 0) {
    AppendToken(info.width, info.eos, &packed);
    ++count;
  }
  return AddPackedDocument(packed, count, "");
}

absl::Status DatasetWriter::AddPackedDocument(std::string_view packed,
                                              int64_t count,
                                              std::string_view mask) {
  Writes writes;
  Add(packed, 1, count, mask, &writes);
  return Carry(writes);
}

void DatasetWriter::Add(std::string_view packed,
                        int64_t documents,
                        [[maybe_unused]] int64_t count,
                        std::string_view mask,
                        Writes* writes) {
  DatasetInfo& info = options_.info;
  const size_t width = static_cast<size_t>(Bytes(info.width));
  HEARTH_DCHECK(packed.size() == static_cast<size_t>(count) * width, "whole tokens");
  HEARTH_DCHECK(mask.size() == (info.has_mask() ? static_cast<size_t>(count) : 0), "a byte each");
  for (const char bits : mask) {
    info.loss_tokens += static_cast<uint8_t>(bits) & kMaskCounts;
  }
  while (!packed.empty()) {
    ShardInfo& shard = ShardWithRoom(writes);
    const int64_t room = options_.shard_tokens - shard.tokens;
    const size_t bytes = std::min(packed.size(), static_cast<size_t>(room) * width);
    tokens_.hash.Update(packed.substr(0, bytes));
    writes->push_back({Write::Kind::kAppend, false, "", packed.substr(0, bytes)});
    packed.remove_prefix(bytes);
    const int64_t tokens = static_cast<int64_t>(bytes / width);
    if (info.has_mask()) {
      const std::string_view part = mask.substr(0, static_cast<size_t>(tokens));
      mask_.hash.Update(part);
      writes->push_back({Write::Kind::kAppend, true, "", part});
      mask.remove_prefix(part.size());
    }
    shard.tokens += tokens;
    info.tokens += tokens;
  }
  info.documents += documents;
}

ShardInfo& DatasetWriter::ShardWithRoom(Writes* writes) {
  DatasetInfo& info = options_.info;
  if (in_shard_ && info.shards.back().tokens >= options_.shard_tokens) {
    EndShard(writes);
  }
  if (!in_shard_) {
    ShardInfo shard;
    shard.file = absl::StrFormat("shard-%05d.bin", info.shards.size());
    writes->push_back({Write::Kind::kOpen, false, shard.file, ""});
    if (info.has_mask()) {
      shard.mask = absl::StrFormat("shard-%05d.mask", info.shards.size());
      writes->push_back({Write::Kind::kOpen, true, shard.mask, ""});
    }
    info.shards.push_back(std::move(shard));
    in_shard_ = true;
  }
  return info.shards.back();
}

void DatasetWriter::EndShard(Writes* writes) {
  ShardInfo& shard = options_.info.shards.back();
  shard.sha256 = tokens_.hash.Hex();
  writes->push_back({Write::Kind::kClose, false, "", ""});
  if (options_.info.has_mask()) {
    shard.mask_sha256 = mask_.hash.Hex();
    writes->push_back({Write::Kind::kClose, true, "", ""});
  }
  in_shard_ = false;
}

absl::Status DatasetWriter::Carry(absl::Span<const Write> writes) {
  for (const Write& write : writes) {
    HEARTH_RETURN_IF_ERROR(Do(write));
  }
  return absl::OkStatus();
}

absl::Status DatasetWriter::Do(const Write& write) {
  Growing& growing = write.mask ? mask_ : tokens_;
  switch (write.kind) {
    case Write::Kind::kOpen: {
      HEARTH_ASSIGN_OR_RETURN(growing.file,
                              env_.NewWritableFile(absl::StrCat(temp_dir_, "/", write.file)));
      return absl::OkStatus();
    }
    case Write::Kind::kAppend:
      return growing.Append(write.bytes);
    case Write::Kind::kClose:
      return growing.Close();
  }
  return absl::InternalError("unknown kind of write");
}

absl::Status DatasetWriter::Sync() {
  for (Growing* growing : {&tokens_, &mask_}) {
    if (growing->file != nullptr) {
      HEARTH_RETURN_IF_ERROR(growing->file->Sync());
    }
  }
  return env_.SyncDir(temp_dir_);
}

absl::StatusOr<DatasetInfo> DatasetWriter::Finish() {
  DatasetInfo& info = options_.info;
  if (info.tokens == 0) {
    return absl::InvalidArgumentError(absl::StrCat(dir_, ": no tokens"));
  }
  if (in_shard_) {
    Writes writes;
    EndShard(&writes);
    HEARTH_RETURN_IF_ERROR(Carry(writes));
  }
  for (const auto& [name, bytes] : options_.tokenizer_files) {
    HEARTH_RETURN_IF_ERROR(env_.WriteFileAtomically(absl::StrCat(temp_dir_, "/", name), bytes));
  }
  HEARTH_RETURN_IF_ERROR(env_.WriteFileAtomically(
      absl::StrCat(temp_dir_, "/", std::string(kDatasetFileName)), ToJson(info)));
  HEARTH_RETURN_IF_ERROR(env_.SyncDir(temp_dir_));
  if (env_.Exists(dir_)) {
    HEARTH_RETURN_IF_ERROR(env_.RemoveAll(dir_));  // empty: Create checked
  }
  HEARTH_RETURN_IF_ERROR(env_.Rename(temp_dir_, dir_));
  finished_ = true;
  const size_t slash = dir_.find_last_of('/');
  const std::string parent = slash == std::string::npos ? "."
                             : slash == 0               ? "/"
                                                        : dir_.substr(0, slash);
  HEARTH_RETURN_IF_ERROR(env_.SyncDir(parent));
  return info;
}

}  // namespace hearth::dataset
