#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/fd.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/base/system.h"
#include "worker/daemon/disk/checkpoint_root.h"

namespace hearth::worker {
namespace {

absl::Status CannotRead(const std::string& what, int error) {
  const std::string text = absl::StrCat(what, ": ", ErrnoText(error));
  return error == ENOENT || error == ENOTDIR ? absl::NotFoundError(text)
                                             : absl::FailedPreconditionError(text);
}

bool IsPlainPart(absl::string_view part) {
  return !part.empty() && part != "." && part != ".." && part.find('\0') == absl::string_view::npos;
}

bool IsNumbered(absl::string_view name, absl::string_view prefix) {
  return absl::StartsWith(name, prefix) && name.size() > prefix.size() &&
         name.find_first_not_of("0123456789", prefix.size()) == absl::string_view::npos;
}

// The names from the root to the file.
absl::StatusOr<std::vector<std::string>> PartsOf(const std::string& root,
                                                 const std::string& job_id,
                                                 const std::string& path,
                                                 const std::string& file) {
  HEARTH_RETURN_IF_ERROR(ValidateJobId(job_id));
  const std::string job_dir = absl::StrCat(root == "/" ? "" : root, "/", job_id, "/");
  const std::vector<std::string> folder =
      absl::StrSplit(absl::StartsWith(path, job_dir) ? path.substr(job_dir.size()) : "", '/');
  if (folder.size() != 2 || !IsNumbered(folder[0], "e") || !IsNumbered(folder[1], "step-")) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is not a checkpoint folder of job ", job_id));
  }
  std::vector<std::string> parts = {job_id, folder[0], folder[1]};
  for (const absl::string_view part : absl::StrSplit(file, '/')) {
    if (!IsPlainPart(part)) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", file, "\" is not the path of a file in a checkpoint folder"));
    }
    parts.emplace_back(part);
  }
  return parts;
}

}  // namespace

absl::StatusOr<CheckpointRoot::Piece> CheckpointRoot::Read(const std::string& job_id,
                                                           const std::string& path,
                                                           const std::string& file,
                                                           int64_t offset,
                                                           int64_t max_bytes) const {
  HEARTH_ASSIGN_OR_RETURN(const std::vector<std::string> parts, PartsOf(path_, job_id, path, file));
  if (offset < 0 || max_bytes < 0) {
    return absl::InvalidArgumentError("a negative offset or size");
  }
  const std::string name = absl::StrCat(path, "/", file);
  // Name by name from the root, so that no link and nothing renamed meanwhile leads out of it.
  Fd at(open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (size_t i = 0; i < parts.size() && at.valid(); ++i) {
    const bool last = i + 1 == parts.size();
    // O_NONBLOCK: a pipe of that name must not hang us.
    at.Reset(openat(at.get(), parts[i].c_str(),
                    O_RDONLY | O_NOFOLLOW | O_CLOEXEC | (last ? O_NONBLOCK : O_DIRECTORY)));
  }
  struct stat found {};
  if (!at.valid() || fstat(at.get(), &found) != 0) {
    return CannotRead(name, errno);
  }
  if (!S_ISREG(found.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(name, ": not a file"));
  }
  Piece piece;
  piece.file_bytes = found.st_size;
  const int64_t size = std::clamp<int64_t>(piece.file_bytes - offset, 0, max_bytes);
  piece.data.resize(static_cast<size_t>(size));
  for (int64_t done = 0; done < size;) {
    const ssize_t n = pread(at.get(), piece.data.data() + done, static_cast<size_t>(size - done),
                            static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      return n < 0 ? CannotRead(name, errno)
                   : absl::FailedPreconditionError(absl::StrCat(name, ": became shorter"));
    }
    done += n;
  }
  return piece;
}

}  // namespace hearth::worker
