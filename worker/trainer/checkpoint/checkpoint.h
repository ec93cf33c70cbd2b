// Checkpoint folders: a Hugging Face model folder, state/ for an exact resume, MANIFEST.json over
// both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/io/env.h"
#include "common/spec/model/parameter.h"
#include "common/time/clock.h"
#include "hearth/v1/job.pb.h"
#include "worker/trainer/checkpoint/tensor_files.h"
#include "worker/trainer/comm/rendezvous/key_value_store.h"

namespace hearth::trainer {

// state/meta.json: all of a run that is not a tensor.
struct CheckpointMeta {
  std::string job_id;
  int64_t epoch = 0;
  int64_t step = 0;         // the state after this update
  int64_t tokens = 0;       // consumed by the job
  int64_t next_sample = 0;  // data cursor: global index of the first sample of step + 1
  uint64_t seed = 0;
  int32_t world_size = 1;
  int32_t shards = 1;  // files of masters and optimizer state; 1 = they are in tensors.safetensors
  // What the job says that its model is run with (common/spec/fields/recorded.h); a checkpoint of
  // before a field lacks it.
  v1::JobSpec recorded;
  int64_t global_batch_tokens = 0;
  int32_t micro_batch_size = 0;
  std::string recipe;
  std::string spec_sha256;     // of the resolved spec's text, by the caller; informative
  v1::ModelSpec model;         // resolved
  double validation_loss = 0;  // 0 = none measured
  std::string plans_json;      // state/plans.json: GEMM plans, thread counts; "" = {}
  std::string extra_json;      // a JSON object of the engine's own (loss window, counters); "" = {}
};

// How the ranks of a sharded optimizer write one checkpoint together: each its own pieces, rank 0
// all the rest.
struct ShardedWrite {
  int rank = 0;
  int shards = 1;                  // 1: the caller alone writes everything
  KeyValueStore* store = nullptr;  // of this epoch; outlives the write, used from its thread
  absl::Duration timeout = absl::Minutes(10);  // until all parts must be there
};

// Consecutive elements of a tensor.
struct SavedPiece {
  TensorView values;  // one dimension
  int64_t first_element = 0;
};

// Copies a checkpoint's content from where it is to host memory.
class ContentReader {
 public:
  virtual ~ContentReader() = default;
  // From several threads at a time; the bytes are there when it returns.
  virtual absl::Status Read(void* to, const void* from, size_t bytes) = 0;

  // For a snapshot, by the thread that trains: begins one copy after the other, then AllStarted
  // once. `from` may change when the reader's owner says so.
  virtual absl::Status Start(void* to, const void* from, size_t bytes) = 0;
  virtual absl::Status AllStarted() = 0;
  // Waits until every copy that was begun has arrived. Any thread may call it.
  virtual absl::Status Finish() = 0;
};

// What to write. Nothing is owned: all pointers stay valid and unchanged until the write returns.
struct CheckpointContent {
  CheckpointMeta meta;
  // Ranks above 0 write only `pieces` and need nothing below but the step and epoch of `meta`.
  ShardedWrite sharded;
  std::vector<SavedPiece> pieces;  // of several shards
  // How bytes of tensors and weights get into host memory; null: they are there. Not owned.
  ContentReader* reader = nullptr;
  // How many threads write files; the bytes do not depend on it.
  int threads = FileThreads();
  // Everything an exact resume needs: masters, optimizer state, recipe state, under names of the
  // engine's choice.
  std::vector<TensorView> state;
  // For the Hugging Face part: table and fp32 weights as WriteHfModel takes them.
  const std::vector<spec::Parameter>* table = nullptr;
  std::vector<const float*> weights;
  // Used instead of `weights` where weights are held in BF16.
  std::vector<const uint16_t*> bf16_weights;
  TensorDType weights_dtype = TensorDType::kBF16;
  // Dataset folder whose tokenizer files are copied in; empty = none.
  std::string tokenizer_from;
};

struct CommittedCheckpoint {
  int64_t step = 0;
  std::string path;
  int64_t bytes = 0;  // of all files
  std::string manifest_sha256;
  double validation_loss = 0;  // of its meta
  double seconds = 0;
  bool stood_still = false;  // training waited for it: no memory for a snapshot
  std::vector<int64_t> removed_steps;
};

// Writes <dir>/step-<8 digits>: under <dir>/step-N.tmp-<pid>, every file fsynced, renamed, <dir>
// fsynced; then removes all but the `keep_last` newest checkpoints of `dir` (0 = keep all), and
// temporary folders of dead writers: `dir` has one writer. The checkpoint before the new one always
// stays, whatever keep_last: until the new one is recorded elsewhere it is the one that counts. A
// checkpoint of that step that is already there is replaced. kResourceExhausted: disk full, the
// temporary folder is gone and the older checkpoints stand.
//
// With several shards every rank calls it for the same step. Rank 0 returns when all parts are in
// place, or kUnavailable, naming the rank whose part is missing; the temporary folder's name then
// comes from step and epoch. The others return when their part is written and announced, with only
// its bytes and nothing of a manifest.
absl::StatusOr<CommittedCheckpoint> WriteCheckpoint(Env& env,
                                                    Clock& clock,
                                                    const std::string& dir,
                                                    const CheckpointContent& content,
                                                    int32_t keep_last);

std::string CheckpointPath(std::string_view dir, int64_t step);

// MANIFEST.json against the files: presence, size, checksum, by several threads. kDataLoss names
// the file that is torn or damaged. `manifest_sha256` non-empty: MANIFEST.json itself must have
// that digest. kNotFound: no checkpoint at `path`.
absl::Status VerifyCheckpoint(Env& env,
                              const std::string& path,
                              std::string_view manifest_sha256 = "");

struct CheckpointCandidate {
  std::string path;
  int64_t step = 0;             // 0 = not known
  std::string manifest_sha256;  // empty = not checked
};

struct LoadedCheckpoint {
  std::string path;
  CheckpointMeta meta;
  std::unique_ptr<SafetensorsFile> state;
  std::vector<std::unique_ptr<SafetensorsFile>> shards;  // in rank order; empty: all is in `state`
  std::vector<std::string> notes;  // candidates passed over and why; for the log
};

// Takes the first of `candidates` (newest first) that verifies. A damaged or missing one is passed
// over with a note; if none is left, returns the first one's error. A checkpoint of another model
// is not passed over: kFailedPrecondition naming each field that differs, with both values.
absl::StatusOr<LoadedCheckpoint> LoadCheckpoint(Env& env,
                                                const std::vector<CheckpointCandidate>& candidates,
                                                const v1::ModelSpec& model);

// Steps of the checkpoints in `dir`, ascending; empty when `dir` is absent. Temporary folders do
// not count.
std::vector<int64_t> ListCheckpointSteps(Env& env, const std::string& dir);

// Fields of the shape that differ: "model.hidden: the checkpoint has 256, the job 512". Fields
// whose rows say same_model, which change neither the state's layout nor its meaning, are not
// compared.
std::vector<std::string> ModelDifferences(const v1::ModelSpec& checkpoint,
                                          const v1::ModelSpec& job);

}  // namespace hearth::trainer
