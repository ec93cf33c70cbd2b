// The interface between the table of tasks and the processes that run them.
#pragma once

#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "hearth/v1/trainer.pb.h"
#include "worker/daemon/supervise/task_key.h"

namespace hearth::worker {

// How a trainer ended.
struct ExitFacts {
  std::string start_error;  // not empty: it never ran, and this is why
  int wait_status = 0;      // exit code, or -signal
  bool clean = true;        // no process of its group or session is left
  std::string unclean_reason;
  std::string protocol_error;  // it broke the rules of the pipe and was killed for that
  std::string hung;            // it gave no sign of life and was killed for that: what was seen
  absl::Duration silent;       // for how long, if `hung`
  bool before_kill = false;    // it had ended, or was ending, before we came to kill it
  std::string last_words;      // last line it wrote to stderr, "" = none
};

// Called on the host's thread, one call at a time, in the order in which things happened.
class TrainerListener {
 public:
  virtual ~TrainerListener() = default;
  virtual void OnTrainerMessage(const TaskKey& key, v1::FromTrainer message) = 0;
  // A line of stdout (level "info") or stderr ("warning"), valid UTF-8.
  virtual void OnTrainerOutput(const TaskKey& key, std::string_view level, std::string text) = 0;
  // It is ending slowly; called at most once, before OnTrainerExit. `facts` is what is known by
  // now; `known`: that includes how it ends.
  virtual void OnTrainerDying(const TaskKey& key,
                              const ExitFacts& facts,
                              bool known,
                              absl::Duration dying_for) = 0;
  // Last call for `key`. The process group is empty unless `facts` says that it is not clean.
  virtual void OnTrainerExit(const TaskKey& key, const ExitFacts& facts) = 0;
};

// Thread-safe; calls only queue the request, so they may be made under a lock. A key that does not
// run is ignored.
class TrainerHost {
 public:
  virtual ~TrainerHost() = default;
  // Starts a trainer and hands it `task`. The listener is told of everything else, including a
  // failed start.
  virtual void Start(v1::Task task) = 0;
  virtual void Send(const TaskKey& key, v1::ToTrainer message) = 0;
  // SIGTERM to the process group and, after `grace`, SIGKILL; zero grace: SIGKILL at once. A second
  // call can only shorten it.
  virtual void Kill(const TaskKey& key, absl::Duration grace) = 0;
};

}  // namespace hearth::worker
