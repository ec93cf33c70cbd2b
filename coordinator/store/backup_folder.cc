#include "coordinator/store/backup_folder.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status.h"
#include "common/base/status_macros.h"
#include "common/io/disk.h"
#include "common/io/private_files.h"

namespace hearth::coordinator {
namespace {

constexpr absl::string_view kPrefix = "backup-";
constexpr absl::string_view kPartial = ".partial";

std::string Absolute(const std::string& path) {
  std::string absolute = std::filesystem::absolute(path).lexically_normal().string();
  while (absolute.size() > 1 && absolute.back() == '/') {
    absolute.pop_back();
  }
  return absolute;
}

// The number in "backup-12-2026-11-23T10-00-00Z", also with ".partial"; nothing: no name of ours.
std::optional<int64_t> NumberOf(absl::string_view name) {
  int64_t number = 0;
  if (!absl::ConsumePrefix(&name, kPrefix)) {
    return std::nullopt;
  }
  const size_t dash = name.find('-');
  if (dash == absl::string_view::npos || !absl::SimpleAtoi(name.substr(0, dash), &number) ||
      number < 1) {
    return std::nullopt;
  }
  return number;
}

// Bytes of all files of the data dir that a copy may contain. Files may vanish meanwhile.
int64_t BytesUnder(Env& env, const std::string& path) {
  if (!env.IsDirectory(path)) {
    return env.FileSize(path).value_or(0);
  }
  int64_t bytes = 0;
  for (const std::string& name : env.ListDir(path).value_or(std::vector<std::string>())) {
    bytes += BytesUnder(env, absl::StrCat(path, "/", name));
  }
  return bytes;
}

absl::Status CheckRoom(Env& env, const std::string& data_dir, const BackupFolder& folder) {
  const int64_t needed = BytesUnder(env, data_dir + "/store.db") +
                         BytesUnder(env, data_dir + "/store.db-wal") +
                         BytesUnder(env, data_dir + "/jobs");
  HEARTH_ASSIGN_OR_RETURN(const DiskSpace space, ReadDiskSpace(folder.path));
  if (space.free_bytes - needed >= folder.min_free_bytes) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("a copy needs ", needed >> 20, " MiB in ", folder.path, ", which has ",
                   space.free_bytes >> 20, " MiB free, and ", folder.min_free_bytes >> 20,
                   " MiB must stay free: make room, or choose another --backup-dir"));
}

}  // namespace

std::string DefaultBackupFolder(const std::string& data_dir) {
  return Absolute(data_dir) + "-backups";
}

absl::Status CheckBackupFolder(const std::string& folder, const std::string& data_dir) {
  const std::string backups = Absolute(folder) + "/";
  const std::string data = Absolute(data_dir) + "/";
  if (absl::StartsWith(backups, data) || absl::StartsWith(data, backups)) {
    return absl::InvalidArgumentError(absl::StrCat("--backup-dir ", folder,
                                                   " must lie beside --data-dir ", data_dir,
                                                   ", neither in it nor around it"));
  }
  return absl::OkStatus();
}

absl::StatusOr<MadeBackup> MakeBackup(const std::string& data_dir,
                                      const BackupFolder& folder,
                                      absl::Time now,
                                      const std::function<bool()>& stopped,
                                      Env& env) {
  const std::string root = Absolute(folder.path);
  if (!env.IsDirectory(root)) {
    HEARTH_RETURN_IF_ERROR(CreatePrivateDir(env, root));
  }
  std::map<int64_t, std::string> copies;  // by number
  int64_t number = 1;
  HEARTH_ASSIGN_OR_RETURN(const std::vector<std::string> names, env.ListDir(root));
  for (const std::string& name : names) {
    const std::optional<int64_t> found = NumberOf(name);
    if (!found.has_value()) {
      continue;
    }
    number = std::max(number, *found + 1);
    if (absl::EndsWith(name, kPartial)) {
      // A copy that was interrupted. It goes before the look at the free space, which it takes.
      HEARTH_RETURN_IF_ERROR(env.RemoveAll(absl::StrCat(root, "/", name)));
    } else {
      copies[*found] = absl::StrCat(root, "/", name);
    }
  }
  HEARTH_RETURN_IF_ERROR(CheckRoom(env, data_dir, folder));

  MadeBackup made;
  made.path = absl::StrCat(root, "/", kPrefix, number, "-",
                           absl::FormatTime("%Y-%m-%dT%H-%M-%SZ", now, absl::UTCTimeZone()));
  HEARTH_ASSIGN_OR_RETURN(made.report, BackupDataDir(data_dir, made.path, stopped, env));
  copies[number] = made.path;
  // Older ones go only now: until the new copy is whole there are as many as before.
  while (copies.size() > static_cast<size_t>(std::max(1, folder.keep))) {
    const std::string oldest = copies.begin()->second;
    HEARTH_RETURN_IF_ERROR(Annotate(
        env.RemoveAll(oldest),
        absl::StrCat("the copy is in ", made.path, ", but an older one cannot be removed")));
    made.removed.push_back(oldest);
    copies.erase(copies.begin());
  }
  made.kept = static_cast<int>(copies.size());
  return made;
}

}  // namespace hearth::coordinator
