// Looks at datasets and model folders, and lists, removes and reads checkpoints, on a thread of its
// own, so that a slow disk delays nothing else.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/facts/tokenizer_facts.h"
#include "common/io/env.h"
#include "hearth/v1/agent.pb.h"
#include "worker/daemon/disk/checkpoint_root.h"
#include "worker/daemon/supervise/task_table.h"

namespace hearth::worker {

// A dataset (anything dataset::Dataset opens): kind, tokens, vocabulary. A folder with config.json:
// kind "model", the ModelSpec of config.json and its vocabulary; model.safetensors (or its index)
// must be there but is not opened. Both with the tokenizer that they record. `error` says what is
// wrong; with a RootedEnv it is the same for every path outside of the roots, whether it exists or
// not. `tokenizers` reads through the same `env`.
v1::PathInfo InspectPath(const std::string& path, Env& env, facts::TokenizerReader& tokenizers);

class DiskWorker : public DiskRequests {
 public:
  using Answer = std::function<void(v1::AgentMessage)>;

  // `root` and `env` outlive the object. `answer` is called on the thread. `env` reads what jobs
  // name; checkpoints are the root's own affair.
  DiskWorker(const CheckpointRoot& root, Env& env, Answer answer);
  // Finishes the request in progress; queued ones are dropped.
  ~DiskWorker() override;

  // Bytes free under the root, looked at every 10 s; 0 = not known.
  int64_t free_bytes() const { return free_bytes_.load(std::memory_order_relaxed); }

  // At most 4096 requests wait; further ones are dropped (the coordinator asks again, or lists what
  // was not removed).
  void Inspect(const v1::InspectPaths& request) override;
  void Delete(const v1::DeleteCheckpointFolder& request) override;
  void Read(const v1::ReadCheckpointFile& request) override;
  // Inspections and reads do not wait for a listing's end.
  void List(const v1::ListCheckpointFolders& request) override;

 private:
  using Request = std::variant<v1::InspectPaths,
                               v1::DeleteCheckpointFolder,
                               v1::ListCheckpointFolders,
                               v1::ReadCheckpointFile>;

  void Post(Request request);
  void Run();
  // The next request; nothing: it is time to look at the space, or to stop.
  std::optional<Request> Take();
  void Do(const v1::InspectPaths& request);
  void Do(const v1::DeleteCheckpointFolder& request);
  void Do(const v1::ListCheckpointFolders& request);
  void Do(const v1::ReadCheckpointFile& request);
  // Does the inspections and reads that wait; false when stopping.
  bool AnswerMeanwhile();

  const CheckpointRoot& root_;
  Env& env_;
  facts::TokenizerReader tokenizers_;  // of the thread
  const Answer answer_;
  absl::Mutex mu_;
  std::deque<Request> queue_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::atomic<int64_t> free_bytes_ = 0;
  std::thread thread_;
};

}  // namespace hearth::worker
