#include "coordinator/core/folders/roots.h"

#include <algorithm>
#include <utility>

namespace hearth::coordinator {
namespace {

// Pause between two listings of a root.
constexpr absl::Duration kLookPause = absl::Seconds(30);
// A worker that has not answered by then does not know the question.
constexpr absl::Duration kAnswerTime = absl::Minutes(2);
// ... and is asked again.
constexpr absl::Duration kAskAgain = absl::Minutes(10);

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
  std::erase_if(roots_, [&](const auto& entry) {
    const Root& root = entry.second;
    return root.connection == 0 && root.folders.empty() && now >= root.due &&
           worker_of(entry.first) == nullptr;
  });
  std::vector<std::string> out;
  for (auto& [uuid, root] : roots_) {
    if (root.connection != 0) {
      if (!is_open(root.connection)) {
        root.connection = 0;
        root.due = now;
      } else if (now - root.asked >= kAnswerTime) {
        root.connection = 0;
        root.due = now + kAskAgain;
      }
    }
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

void Roots::Keep(const std::string& uuid, std::vector<v1::CheckpointFolder> folders) {
  roots_.at(uuid).folders = std::move(folders);
}

}  // namespace hearth::coordinator
