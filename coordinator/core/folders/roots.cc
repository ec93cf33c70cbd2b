#include "coordinator/core/folders/roots.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/core/errors.h"

namespace hearth::coordinator {
namespace {

// Pause between two listings of a root.
constexpr absl::Duration kLookPause = absl::Seconds(30);
// A worker that has not answered by then does not know the question.
constexpr absl::Duration kAnswerTime = absl::Minutes(2);
// ... and is asked again.
constexpr absl::Duration kAskAgain = absl::Minutes(10);

std::string KeyOf(const v1::CheckpointFolder& folder) {
  return absl::StrCat(folder.job_id(), "/", folder.epoch(), "/", folder.name());
}

}  // namespace

void Roots::LookAt(const std::string& uuid, absl::Duration after, absl::Duration now) {
  if (uuid.empty()) {
    return;
  }
  Root& root = roots_[uuid];
  root.due = std::min(root.due, std::max(now + after, root.asked + kLookPause));
}

std::vector<std::string> Roots::TakeDue(
    const std::function<const WorkerState*(const std::string&)>& worker_of,
    const std::function<bool(uint64_t)>& is_open,
    absl::Duration now) {
  // Questions that nobody will answer are given up first, so that their roots can be due below.
  for (auto& [uuid, root] : roots_) {
    if (root.connection != 0 && !is_open(root.connection)) {
      root.connection = 0;
      root.due = now;
    } else if (root.connection != 0 && now - root.asked >= kAnswerTime) {
      root.connection = 0;
      root.due = now + kAskAgain;
    }
  }
  std::erase_if(roots_, [&](const auto& entry) {
    const Root& root = entry.second;
    const bool planned = root.due < absl::InfiniteDuration() && now < root.due;
    // Within the pause it is remembered, or a worker that dials in again would be asked at once.
    return root.connection == 0 && root.folders.empty() && !planned &&
           now - root.asked >= kLookPause && worker_of(entry.first) == nullptr;
  });
  std::vector<std::string> out;
  for (auto& [uuid, root] : roots_) {
    if (root.connection != 0 || now < root.due) {
      continue;
    }
    root.due = absl::InfiniteDuration();  // without a worker, the next one that dials in is asked
    if (worker_of(uuid) != nullptr) {
      out.push_back(uuid);
    }
  }
  return out;
}

int64_t Roots::Ask(const std::string& uuid, const WorkerState& worker, absl::Duration now) {
  Root& root = roots_.at(uuid);
  root.worker_id = worker.worker().worker_id();
  root.connection = worker.connection;
  root.request_id = ++questions_;
  root.asked = now;
  return root.request_id;
}

bool Roots::TakeAnswer(const std::string& uuid,
                       uint64_t connection,
                       const v1::CheckpointFolders& answer,
                       Now now) {
  const auto found = roots_.find(uuid);
  if (found == roots_.end() || found->second.connection != connection ||
      found->second.request_id != answer.request_id()) {
    return false;
  }
  Root& root = found->second;
  root.connection = 0;
  root.list_time = now.wall;
  root.listed = now.monotonic;
  root.truncated = answer.truncated();
  root.folders.clear();
  return true;
}

void Roots::Keep(const std::string& uuid,
                 std::vector<v1::CheckpointFolder> folders,
                 absl::Duration now) {
  std::map<std::string, Sight> sights;
  for (const v1::CheckpointFolder& folder : folders) {
    sights[KeyOf(folder)] = {FromProto(folder.change_time()), folder.bytes(),
                             now - Unchanged(uuid, folder, now)};
  }
  Root& root = roots_.at(uuid);
  root.folders = std::move(folders);
  root.sights = std::move(sights);
}

absl::Duration Roots::Unchanged(const std::string& uuid,
                                const v1::CheckpointFolder& folder,
                                absl::Duration now) const {
  const std::map<std::string, Sight>& sights = roots_.at(uuid).sights;
  const auto seen = sights.find(KeyOf(folder));
  const bool same = seen != sights.end() && seen->second.bytes == folder.bytes() &&
                    seen->second.changed == FromProto(folder.change_time());
  return same ? now - seen->second.since : absl::ZeroDuration();
}

}  // namespace hearth::coordinator
