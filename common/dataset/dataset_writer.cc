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

constexpr size_t kBufferBytes = size_t{1} << 20;

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

absl::Status DatasetWriter::Growing::Open(Env& env, const std::string& path) {
  HEARTH_ASSIGN_OR_RETURN(file, env.NewWritableFile(path));
  return absl::OkStatus();
}

absl::Status DatasetWriter::Growing::Continue(Env& env, const std::string& path, int64_t bytes) {
  // What stands behind was written after the last Save, and will come again.
  HEARTH_RETURN_IF_ERROR(env.Truncate(path, bytes));
  {
    // The hash's state is not saved, so it is made from the bytes that stay.
    HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<MappedFile> written, env.Map(path));
    hash.Update(written->bytes());
  }
  HEARTH_ASSIGN_OR_RETURN(file, env.NewAppendableFile(path));
  return absl::OkStatus();
}

absl::Status DatasetWriter::Growing::Flush() {
  if (buffer.empty()) {
    return absl::OkStatus();
  }
  hash.Update(std::string_view(buffer));
  HEARTH_RETURN_IF_ERROR(file->Append(buffer));
  buffer.clear();
  return absl::OkStatus();
}

absl::StatusOr<std::string> DatasetWriter::Growing::Close() {
  HEARTH_RETURN_IF_ERROR(Flush());
  HEARTH_RETURN_IF_ERROR(file->Sync());
  HEARTH_RETURN_IF_ERROR(file->Close());
  file.reset();
  return hash.Hex();
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
  // Files that were begun after the last Save.
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
  if (info.has_mask()) {
    HEARTH_RETURN_IF_ERROR(
        mask_.Continue(env_, absl::StrCat(temp_dir_, "/", shard.mask), shard.tokens));
  }
  return tokens_.Continue(env_, absl::StrCat(temp_dir_, "/", shard.file),
                          shard.tokens * Bytes(info.width));
}

absl::Status DatasetWriter::AddDocument(absl::Span<const int32_t> tokens) {
  HEARTH_DCHECK(!options_.info.has_mask(), "documents with a mask come packed");
  for (const int32_t token : tokens) {
    HEARTH_RETURN_IF_ERROR(Put(token));
  }
  if (options_.info.eos >= 0) {
    HEARTH_RETURN_IF_ERROR(Put(options_.info.eos));
  }
  ++options_.info.documents;
  return absl::OkStatus();
}

absl::Status DatasetWriter::AddPackedDocument(std::string_view packed,
                                              [[maybe_unused]] int64_t count,
                                              std::string_view mask) {
  DatasetInfo& info = options_.info;
  const size_t width = static_cast<size_t>(Bytes(info.width));
  HEARTH_DCHECK(packed.size() == static_cast<size_t>(count) * width, "whole tokens");
  HEARTH_DCHECK(mask.size() == (info.has_mask() ? static_cast<size_t>(count) : 0), "a byte each");
  for (const char bits : mask) {
    info.loss_tokens += static_cast<uint8_t>(bits) & kMaskCounts;
  }
  while (!packed.empty()) {
    HEARTH_RETURN_IF_ERROR(OpenShard());
    ShardInfo& shard = info.shards.back();
    const int64_t room = options_.shard_tokens - shard.tokens;
    const size_t bytes = std::min(packed.size(), static_cast<size_t>(room) * width);
    tokens_.buffer.append(packed.substr(0, bytes));
    packed.remove_prefix(bytes);
    const int64_t tokens = static_cast<int64_t>(bytes / width);
    if (info.has_mask()) {
      mask_.buffer.append(mask.substr(0, static_cast<size_t>(tokens)));
      mask.remove_prefix(static_cast<size_t>(tokens));
    }
    shard.tokens += tokens;
    info.tokens += tokens;
    if (tokens_.buffer.size() >= kBufferBytes) {
      HEARTH_RETURN_IF_ERROR(Flush());
    }
  }
  ++info.documents;
  return absl::OkStatus();
}

absl::StatusOr<DatasetInfo> DatasetWriter::Save() {
  HEARTH_RETURN_IF_ERROR(Flush());
  for (Growing* growing : {&tokens_, &mask_}) {
    if (growing->file != nullptr) {
      HEARTH_RETURN_IF_ERROR(growing->file->Sync());
    }
  }
  HEARTH_RETURN_IF_ERROR(env_.SyncDir(temp_dir_));
  return options_.info;
}

// A shard that has room.
absl::Status DatasetWriter::OpenShard() {
  DatasetInfo& info = options_.info;
  if (tokens_.file != nullptr && info.shards.back().tokens >= options_.shard_tokens) {
    HEARTH_RETURN_IF_ERROR(CloseShard());
  }
  if (tokens_.file == nullptr) {
    ShardInfo shard;
    shard.file = absl::StrFormat("shard-%05d.bin", info.shards.size());
    HEARTH_RETURN_IF_ERROR(tokens_.Open(env_, absl::StrCat(temp_dir_, "/", shard.file)));
    if (info.has_mask()) {
      shard.mask = absl::StrFormat("shard-%05d.mask", info.shards.size());
      HEARTH_RETURN_IF_ERROR(mask_.Open(env_, absl::StrCat(temp_dir_, "/", shard.mask)));
    }
    info.shards.push_back(std::move(shard));
  }
  return absl::OkStatus();
}

absl::Status DatasetWriter::Put(int32_t token) {
  DatasetInfo& info = options_.info;
  if (token < 0 || token >= info.vocab) {
    return absl::InvalidArgumentError(
        absl::StrCat(dir_, ": token ", token, " is not below the vocabulary ", info.vocab));
  }
  HEARTH_RETURN_IF_ERROR(OpenShard());
  AppendToken(info.width, token, &tokens_.buffer);
  ++info.shards.back().tokens;
  ++info.tokens;
  return tokens_.buffer.size() >= kBufferBytes ? Flush() : absl::OkStatus();
}

absl::Status DatasetWriter::Flush() {
  HEARTH_RETURN_IF_ERROR(tokens_.Flush());
  return mask_.Flush();
}

absl::Status DatasetWriter::CloseShard() {
  ShardInfo& shard = options_.info.shards.back();
  HEARTH_ASSIGN_OR_RETURN(shard.sha256, tokens_.Close());
  if (mask_.file != nullptr) {
    HEARTH_ASSIGN_OR_RETURN(shard.mask_sha256, mask_.Close());
  }
  return absl::OkStatus();
}

absl::StatusOr<DatasetInfo> DatasetWriter::Finish() {
  DatasetInfo& info = options_.info;
  if (info.tokens == 0) {
    return absl::InvalidArgumentError(absl::StrCat(dir_, ": no tokens"));
  }
  if (tokens_.file != nullptr) {
    HEARTH_RETURN_IF_ERROR(CloseShard());
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
