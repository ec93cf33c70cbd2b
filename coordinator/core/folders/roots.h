// What is known of the workers' checkpoint roots: what one worker of each has listed, and when it
// is to be asked again. Durations are monotonic times unless they say otherwise.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/core/core.h"
#include "coordinator/core/workers/worker_state.h"

namespace hearth::coordinator {

// How long a folder has looked the same in the listings.
struct Sight {
  absl::Time changed;  // by the clock of its file system
  int64_t bytes = 0;
  absl::Duration since;
};

struct Root {
  std::string worker_id;    // that listed it last, or was asked to
  uint64_t connection = 0;  // of the question that is out; 0 = none is
  int64_t request_id = 0;
  absl::Duration asked = -absl::InfiniteDuration();
  absl::Duration due = absl::InfiniteDuration();
  std::optional<absl::Time> list_time;  // of the last answer, by the wall clock, for people
  absl::Duration listed = -absl::InfiniteDuration();  // the same moment
  std::vector<v1::CheckpointFolder> folders;
  std::map<std::string, Sight> sights;  // of these folders, by job, epoch and name
  bool truncated = false;
};

// Not thread-safe.
class Roots {
 public:
  const std::map<std::string, Root>& all() const { return roots_; }  // by root UUID

  // Has the root listed again after `after`, and later if it was listed just now. Does nothing
  // without a UUID.
  void LookAt(const std::string& uuid, absl::Duration after, absl::Duration now);
  // Has a known root listed at once.
  void LookNow(const std::string& uuid, absl::Duration now) { roots_.at(uuid).due = now; }

  // The roots that are due and have a worker to ask, each to be followed by Ask. `worker_of`: a
  // connected worker that sees the root, null = none; `is_open`: the stream of a question that is
  // out still is. Roots that nobody sees and that hold nothing are forgotten.
  std::vector<std::string> TakeDue(
      const std::function<const WorkerState*(const std::string&)>& worker_of,
      const std::function<bool(uint64_t)>& is_open,
      absl::Duration now);
  // The worker is asked; returns the request_id of the question.
  int64_t Ask(const std::string& uuid, const WorkerState& worker, absl::Duration now);
  // The question is answered. False: it was given up.
  bool TakeAnswer(const std::string& uuid,
                  uint64_t connection,
                  const v1::CheckpointFolders& answer,
                  Now now);
  // What is left of the listing.
  void Keep(const std::string& uuid, std::vector<v1::CheckpointFolder> folders, absl::Duration now);
  // For how long the folder has been listed without a change; 0 = it is new here.
  absl::Duration Unchanged(const std::string& uuid,
                           const v1::CheckpointFolder& folder,
                           absl::Duration now) const;

 private:
  std::map<std::string, Root> roots_;
  int64_t questions_ = 0;
};

}  // namespace hearth::coordinator
