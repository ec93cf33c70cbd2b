#include "common/dataset/dataset_writer.h"

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
      temp_dir_(absl::StrCat(dir_, ".tmp-", RandomHex(4))),
      options_(std::move(options)),
      env_(env) {}

DatasetWriter::~DatasetWriter() {
  file_.reset();
  if (!finished_) {
    env_.RemoveAll(temp_dir_).IgnoreError();
  }
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
  info.width = info.vocab <= 65536 ? TokenWidth::kUint16 : TokenWidth::kUint32;
  info.documents = info.tokens = 0;
  info.shards.clear();
  if (options.shard_tokens < 1) {
    return absl::InvalidArgumentError("shard_tokens: must be >= 1");
  }
  std::unique_ptr<DatasetWriter> writer(new DatasetWriter(clean, std::move(options), env));
  HEARTH_RETURN_IF_ERROR(env.CreateDirs(writer->temp_dir_));
  return writer;
}

absl::Status DatasetWriter::AddDocument(absl::Span<const int32_t> tokens) {
  for (const int32_t token : tokens) {
    HEARTH_RETURN_IF_ERROR(Put(token));
  }
  if (options_.info.eos >= 0) {
    HEARTH_RETURN_IF_ERROR(Put(options_.info.eos));
  }
  ++options_.info.documents;
  return absl::OkStatus();
}

absl::Status DatasetWriter::Put(int32_t token) {
  DatasetInfo& info = options_.info;
  if (token < 0 || token >= info.vocab) {
    return absl::InvalidArgumentError(
        absl::StrCat(dir_, ": token ", token, " is not below the vocabulary ", info.vocab));
  }
  if (file_ != nullptr && info.shards.back().tokens >= options_.shard_tokens) {
    HEARTH_RETURN_IF_ERROR(CloseShard());
  }
  if (file_ == nullptr) {
    const std::string name = absl::StrFormat("shard-%05d.bin", info.shards.size());
    HEARTH_ASSIGN_OR_RETURN(file_, env_.NewWritableFile(absl::StrCat(temp_dir_, "/", name)));
    info.shards.push_back({name, 0, ""});
  }
  const uint32_t value = static_cast<uint32_t>(token);
  for (int i = 0; i < Bytes(info.width); ++i) {
    buffer_.push_back(static_cast<char>(value >> (8 * i) & 0xff));
  }
  ++info.shards.back().tokens;
  ++info.tokens;
  return buffer_.size() >= kBufferBytes ? Flush() : absl::OkStatus();
}

absl::Status DatasetWriter::Flush() {
  if (buffer_.empty()) {
    return absl::OkStatus();
  }
  hash_.Update(std::string_view(buffer_));
  HEARTH_RETURN_IF_ERROR(file_->Append(buffer_));
  buffer_.clear();
  return absl::OkStatus();
}

absl::Status DatasetWriter::CloseShard() {
  HEARTH_RETURN_IF_ERROR(Flush());
  HEARTH_RETURN_IF_ERROR(file_->Sync());
  HEARTH_RETURN_IF_ERROR(file_->Close());
  file_.reset();
  options_.info.shards.back().sha256 = hash_.Hex();
  return absl::OkStatus();
}

absl::StatusOr<DatasetInfo> DatasetWriter::Finish() {
  DatasetInfo& info = options_.info;
  if (info.tokens == 0) {
    return absl::InvalidArgumentError(absl::StrCat(dir_, ": no tokens"));
  }
  HEARTH_RETURN_IF_ERROR(CloseShard());
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
