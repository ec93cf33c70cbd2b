#include "common/io/faulty_env.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace hearth {

class FaultyEnv::File : public WritableFile {
 public:
  File(FaultyEnv& env, std::string path, std::unique_ptr<WritableFile> file, int64_t power_cut)
      : env_(env), path_(std::move(path)), file_(std::move(file)), power_cut_(power_cut) {}

  absl::Status Append(std::string_view data) override {
    HEARTH_RETURN_IF_ERROR(Alive());
    return env_.Append(*this, data);
  }

  absl::Status Allocate(int64_t bytes) override {
    HEARTH_RETURN_IF_ERROR(Alive());
    return env_.Allocate(*this, bytes);
  }

  absl::Status WriteAt(int64_t offset, std::string_view data) override {
    HEARTH_RETURN_IF_ERROR(Alive());
    const absl::Status fault = env_.Step(path_);
    if (!fault.ok()) {
      // Half of it arrives, as in a torn write.
      file_->WriteAt(offset, data.substr(0, data.size() / 2)).IgnoreError();
      return fault;
    }
    return file_->WriteAt(offset, data);
  }

  absl::Status Sync() override {
    HEARTH_RETURN_IF_ERROR(Alive());
    HEARTH_RETURN_IF_ERROR(env_.Step(path_));
    HEARTH_RETURN_IF_ERROR(file_->Sync());
    const absl::StatusOr<int64_t> size = env_.base_.FileSize(path_);
    if (size.ok()) {  // else it was renamed or removed since it was opened, and its new name has
                      // its own record
      absl::MutexLock lock(&env_.mu_);
      env_.synced_[path_] = *size;
    }
    return absl::OkStatus();
  }

  absl::Status Close() override {
    HEARTH_RETURN_IF_ERROR(Alive());
    HEARTH_RETURN_IF_ERROR(env_.Step(path_));
    return file_->Close();
  }

  const std::string& path() const { return path_; }
  WritableFile& base() { return *file_; }

 private:
  absl::Status Alive() {
    absl::MutexLock lock(&env_.mu_);
    return power_cut_ == env_.power_cuts_
               ? absl::OkStatus()
               : absl::InternalError(absl::StrCat(path_, ": the power went off"));
  }

  FaultyEnv& env_;
  const std::string path_;
  const std::unique_ptr<WritableFile> file_;
  const int64_t power_cut_;
};

FaultyEnv::FaultyEnv(Env& base) : base_(base) {}

void FaultyEnv::FailAfter(int64_t n, absl::Status status, bool sticky) {
  absl::MutexLock lock(&mu_);
  fail_at_ = operations_ + n;
  fail_status_ = std::move(status);
  sticky_ = sticky;
}

void FaultyEnv::SetDiskSpace(int64_t bytes) {
  absl::MutexLock lock(&mu_);
  space_left_ = bytes;
}

void FaultyEnv::Heal() {
  absl::MutexLock lock(&mu_);
  fail_at_ = 0;
  space_left_ = -1;
}

int64_t FaultyEnv::operations() const {
  absl::MutexLock lock(&mu_);
  return operations_;
}

absl::Status FaultyEnv::Step(const std::string& path) {
  absl::MutexLock lock(&mu_);
  ++operations_;
  const bool fails =
      fail_at_ > 0 && (operations_ == fail_at_ || (sticky_ && operations_ > fail_at_));
  if (!fails) {
    return absl::OkStatus();
  }
  return absl::Status(fail_status_.code(), absl::StrCat(path, ": ", fail_status_.message()));
}

absl::Status FaultyEnv::Append(File& file, std::string_view data) {
  const absl::Status fault = Step(file.path());
  if (!fault.ok()) {
    file.base().Append(data.substr(0, data.size() / 2)).IgnoreError();
    return fault;
  }
  size_t fits = data.size();
  {
    absl::MutexLock lock(&mu_);
    if (space_left_ >= 0) {
      fits = std::min(fits, static_cast<size_t>(space_left_));
      space_left_ -= static_cast<int64_t>(fits);
    }
  }
  HEARTH_RETURN_IF_ERROR(file.base().Append(data.substr(0, fits)));
  if (fits < data.size()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("writing ", file.path(), ": No space left on device"));
  }
  return absl::OkStatus();
}

absl::Status FaultyEnv::Allocate(File& file, int64_t bytes) {
  HEARTH_RETURN_IF_ERROR(Step(file.path()));
  {
    absl::MutexLock lock(&mu_);
    if (space_left_ >= 0) {
      if (bytes > space_left_) {
        return absl::ResourceExhaustedError(
            absl::StrCat("allocating ", file.path(), ": No space left on device"));
      }
      space_left_ -= bytes;
    }
  }
  return file.base().Allocate(bytes);
}

absl::StatusOr<std::unique_ptr<WritableFile>> FaultyEnv::Open(const std::string& path,
                                                              bool append) {
  HEARTH_RETURN_IF_ERROR(Step(path));
  const int64_t size_before = base_.FileSize(path).value_or(0);
  HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file,
                          append ? base_.NewAppendableFile(path) : base_.NewWritableFile(path));
  absl::MutexLock lock(&mu_);
  if (append) {
    // Files from before this Env count as durable.
    synced_.emplace(path, size_before);
  } else {
    synced_[path] = 0;
  }
  return std::unique_ptr<WritableFile>(new File(*this, path, std::move(file), power_cuts_));
}

absl::Status FaultyEnv::DropUnsynced() {
  std::map<std::string, int64_t> synced;
  {
    absl::MutexLock lock(&mu_);
    ++power_cuts_;
    synced.swap(synced_);
  }
  for (const auto& [path, size] : synced) {
    if (base_.Exists(path) && base_.FileSize(path).value_or(0) > size) {
      HEARTH_RETURN_IF_ERROR(base_.Truncate(path, size));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<WritableFile>> FaultyEnv::NewWritableFile(const std::string& path) {
  return Open(path, /*append=*/false);
}

absl::StatusOr<std::unique_ptr<WritableFile>> FaultyEnv::NewAppendableFile(
    const std::string& path) {
  return Open(path, /*append=*/true);
}

absl::Status FaultyEnv::Rename(const std::string& from, const std::string& to) {
  HEARTH_RETURN_IF_ERROR(Step(to));
  HEARTH_RETURN_IF_ERROR(base_.Rename(from, to));
  absl::MutexLock lock(&mu_);
  // A renamed folder takes the files in it along.
  std::map<std::string, int64_t> moved;
  for (auto it = synced_.begin(); it != synced_.end();) {
    const std::string& path = it->first;
    if (path == from || path.rfind(from + "/", 0) == 0) {
      moved[to + path.substr(from.size())] = it->second;
      it = synced_.erase(it);
    } else {
      it = path == to ? synced_.erase(it) : std::next(it);
    }
  }
  synced_.merge(moved);
  return absl::OkStatus();
}

absl::Status FaultyEnv::SyncDir(const std::string& dir) {
  HEARTH_RETURN_IF_ERROR(Step(dir));
  return base_.SyncDir(dir);
}

absl::Status FaultyEnv::CreateDirs(const std::string& dir) {
  HEARTH_RETURN_IF_ERROR(Step(dir));
  return base_.CreateDirs(dir);
}

absl::Status FaultyEnv::RemoveAll(const std::string& path) {
  HEARTH_RETURN_IF_ERROR(Step(path));
  return base_.RemoveAll(path);
}

absl::Status FaultyEnv::Truncate(const std::string& path, int64_t size) {
  HEARTH_RETURN_IF_ERROR(Step(path));
  HEARTH_RETURN_IF_ERROR(base_.Truncate(path, size));
  absl::MutexLock lock(&mu_);
  const auto found = synced_.find(path);
  if (found != synced_.end()) {
    found->second = std::min(found->second, size);
  }
  return absl::OkStatus();
}

}  // namespace hearth
