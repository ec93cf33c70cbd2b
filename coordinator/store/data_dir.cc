#include "coordinator/store/data_dir.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "coordinator/store/record_frame.h"

namespace hearth::coordinator {
namespace {

constexpr absl::string_view kMarkerName = ".hearth-data";
constexpr absl::string_view kMarkerTitle = "hearth-data 1";
constexpr size_t kOthersTold = 10;

// What a coordinator makes in its data dir, and what a new file system has.
bool IsOurs(absl::string_view name) {
  return name == kMarkerName || name == "LOCK" || name == "jobs" || name == "quarantine" ||
         name == "lost+found" || absl::StartsWith(name, "endpoints.json") ||
         absl::StartsWith(name, "store.db") ||
         absl::StartsWith(name, absl::StrCat(kMarkerName, "."));  // being written at a crash
}

std::string BodyOf(const Marker& marker) {
  return absl::StrCat(kMarkerTitle, "\nid ", absl::StrFormat("%016x", marker.id), "\ngeneration ",
                      marker.generation, "\n");
}

std::string SumOf(std::string_view body) {
  Crc32c sum;
  sum.Extend(body);
  return absl::StrFormat("crc32c %08x\n", sum.value());
}

}  // namespace

std::string MarkerPath(const std::string& dir) {
  return absl::StrCat(dir, "/", kMarkerName);
}

std::string MarkerText(const Marker& marker) {
  const std::string body = BodyOf(marker);
  return body + SumOf(body);
}

absl::StatusOr<Marker> ParseMarker(std::string_view text) {
  const std::vector<absl::string_view> lines =
      absl::StrSplit(absl::string_view(text.data(), text.size()), '\n');
  Marker marker;
  uint64_t id = 0;
  if (lines.size() == 5 && absl::StartsWith(lines[1], "id ") &&
      absl::SimpleHexAtoi(lines[1].substr(3), &id) && absl::StartsWith(lines[2], "generation ") &&
      absl::SimpleAtoi(lines[2].substr(11), &marker.generation)) {
    marker.id = static_cast<int64_t>(id);
    // Written again and compared: that checks the checksum and every other byte.
    if (marker.id > 0 && marker.generation >= 0 && MarkerText(marker) == text) {
      return marker;
    }
  }
  return absl::DataLossError("no marker of hearth-coordinator, or damaged");
}

absl::StatusOr<FolderState> LookAtFolder(Env& env, const std::string& dir) {
  FolderState folder;
  if (!env.IsDirectory(dir)) {
    return folder;
  }
  HEARTH_ASSIGN_OR_RETURN(const std::vector<std::string> names, env.ListDir(dir));
  for (const std::string& name : names) {
    const std::string path = absl::StrCat(dir, "/", name);
    if (!IsOurs(name)) {
      if (folder.others.size() < kOthersTold) {
        folder.others.push_back(name);
      }
    } else if (name == kMarkerName) {
      const absl::StatusOr<std::string> text = env.ReadFile(path);
      const absl::StatusOr<Marker> marker = text.ok() ? ParseMarker(*text) : text.status();
      folder.marker_damaged = !marker.ok();
      if (marker.ok()) {
        folder.marker = *marker;
      }
    } else if (name == "store.db") {
      HEARTH_ASSIGN_OR_RETURN(const int64_t bytes, env.FileSize(path));
      folder.has_database = bytes > 0;
    } else if (name == "jobs" && env.IsDirectory(path)) {
      HEARTH_ASSIGN_OR_RETURN(const std::vector<std::string> jobs, env.ListDir(path));
      folder.has_jobs = !jobs.empty();
    }
  }
  return folder;
}

absl::Status AdmitFolder(const FolderState& folder, const std::string& dir, bool restore) {
  if (folder.marker_damaged && !(restore && folder.has_database)) {
    return absl::DataLossError(absl::StrCat(
        dir, "/", kMarkerName, " is damaged",
        folder.has_database ? "; start once with --restore, which writes a new one"
                            : " and there is no store.db; put a copy of the store back first"));
  }
  if (folder.has_database) {
    return absl::OkStatus();
  }
  if (folder.marker.has_value()) {
    return restore ? absl::OkStatus()
                   : absl::FailedPreconditionError(absl::StrCat(
                         dir, "/store.db is missing or empty, and the folder has had one: put a ",
                         "copy of it back; or start once with --restore, which begins with an ",
                         "empty store and keeps the old jobs' files under ", dir, "/quarantine"));
  }
  if (folder.has_jobs || !folder.others.empty()) {
    const std::string found = folder.others.empty() ? "jobs" : absl::StrJoin(folder.others, ", ");
    return absl::FailedPreconditionError(absl::StrCat(
        dir, " is not empty and no data dir of hearth-coordinator (it has neither ", kMarkerName,
        " nor store.db, but ", found, "): choose an empty folder or the right one for --data-dir"));
  }
  return absl::OkStatus();
}

absl::Status WriteMarker(Env& env, const std::string& dir, const Marker& marker) {
  return env.WriteFileAtomically(MarkerPath(dir), MarkerText(marker));
}

Quarantine::Quarantine(Env& env, std::string data_dir, absl::Time now)
    : env_(env),
      data_dir_(std::move(data_dir)),
      stamp_(absl::FormatTime("%Y-%m-%dT%H-%M-%SZ", now, absl::UTCTimeZone())) {}

absl::StatusOr<std::string> Quarantine::PlaceFor(const std::string& path) {
  if (folder_.empty()) {
    const std::string all = data_dir_ + "/quarantine";
    std::string folder = absl::StrCat(all, "/", stamp_);
    for (int n = 2; env_.Exists(folder); ++n) {
      folder = absl::StrCat(all, "/", stamp_, "-", n);
    }
    HEARTH_RETURN_IF_ERROR(env_.CreateDirs(folder));
    HEARTH_RETURN_IF_ERROR(env_.SyncDir(all));
    HEARTH_RETURN_IF_ERROR(env_.SyncDir(data_dir_));
    folder_ = folder;
  }
  const std::string place = folder_ + path.substr(data_dir_.size());
  const std::string parent = place.substr(0, place.rfind('/'));
  HEARTH_RETURN_IF_ERROR(env_.CreateDirs(parent));
  // Every level: a name is on the disk only once the folder above it is synced.
  for (std::string dir = parent; dir.size() > folder_.size(); dir = dir.substr(0, dir.rfind('/'))) {
    HEARTH_RETURN_IF_ERROR(env_.SyncDir(dir.substr(0, dir.rfind('/'))));
  }
  ++entries_;
  return place;
}

absl::Status Quarantine::Move(const std::string& path) {
  HEARTH_ASSIGN_OR_RETURN(const std::string place, PlaceFor(path));
  HEARTH_RETURN_IF_ERROR(env_.Rename(path, place));
  HEARTH_RETURN_IF_ERROR(env_.SyncDir(place.substr(0, place.rfind('/'))));
  return env_.SyncDir(path.substr(0, path.rfind('/')));
}

absl::Status Quarantine::Copy(const std::string& path) {
  HEARTH_ASSIGN_OR_RETURN(const std::string place, PlaceFor(path));
  HEARTH_ASSIGN_OR_RETURN(const std::string bytes, env_.ReadFile(path));
  return env_.WriteFileAtomically(place, bytes);
}

}  // namespace hearth::coordinator
