// Everything the coordinator remembers. One transaction per batch; nothing is acknowledged to
// anyone before it.
//
//   <data-dir>/LOCK                       held (flock) by the one coordinator of this folder;
//   contains its pid <data-dir>/store.db                   SQLite: WAL, synchronous=FULL
//   <data-dir>/jobs/<id>/history/*.seg    step history: StepReport (kStepRecord) or Rewind
//   (kRewindRecord) <data-dir>/jobs/<id>/log/*.seg        log: LogLine
//
// Order of a commit: append to the files, fsync them, commit the transaction that records their
// lengths, show the new records to readers. A crash between any two leaves the state before or
// after the whole batch.
//
// After a failed Commit the store refuses every further one: memory and disk no longer agree on
// what is next, so the process has to end and start again from the disk.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/io/env.h"
#include "coordinator/core/core.h"
#include "coordinator/store/segment_log.h"
#include "coordinator/store/sqlite.h"
#include "hearth/v1/job.pb.h"

namespace hearth::coordinator {

// Version of the tables and files; a store of a newer one is refused, an older one is migrated on
// Open.
inline constexpr int kSchemaVersion = 1;

// Kinds of history records; one per case of MetricRecord.record. Log records have kind 0.
inline constexpr uint8_t kStepRecord = 1;
inline constexpr uint8_t kRewindRecord = 2;

enum class StreamKind { kHistory = 0, kLog = 1 };

struct StoreOptions {
  std::string data_dir;
  // Bounds of one job's files. 1 GiB holds about 6 million steps; the oldest segments go first and
  // are counted.
  SegmentLogOptions history{.segment_bytes = 16 << 20, .max_bytes = int64_t{1} << 30};
  SegmentLogOptions log{.segment_bytes = 4 << 20, .max_bytes = 64 << 20};
  // Newest events kept per job.
  int64_t events_per_job = 1000;
};

struct LoadedState {
  RestoredState core;
  std::vector<v1::JobEvent> events;   // by job, then revision
  std::vector<std::string> warnings;  // damage that was found and repaired, for the log
};

// Load and Commit belong to one thread (the loop's); Find, generation and FreeBytes to any.
class Store {
 public:
  // Takes the lock, creates or opens the database and increments `generation` durably.
  // kFailedPrecondition: another coordinator (its pid in the text) has the folder, or the schema is
  // newer than this program's; kPermissionDenied: not writable; kResourceExhausted: disk full;
  // kDataLoss: not a database of ours.
  static absl::StatusOr<std::unique_ptr<Store>> Open(const StoreOptions& options,
                                                     Env& env = Env::Real());
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // Reads all, and makes the files agree with the database. Once, before the first Commit.
  absl::StatusOr<LoadedState> Load();

  // Makes the durable rows of the effects, applied in order, durable as one, and returns the
  // highest revision stored. On error nothing of the batch will be there after a restart and every
  // later call fails with kFailedPrecondition.
  absl::StatusOr<int64_t> Commit(absl::Span<const Effects> batch);

  // The committed records of a job; null when it has none. Reading goes on while the job is deleted
  // and then ends in kNotFound.
  std::shared_ptr<const SegmentLog> Find(std::string_view job_id, StreamKind kind) const
      ABSL_LOCKS_EXCLUDED(mu_);

  int64_t generation() const { return generation_; }
  // Bytes that this process may still write to the data dir's file system; -1 = cannot tell.
  int64_t FreeBytes() const;

 private:
  struct Statements;
  using LogKey = std::pair<std::string, StreamKind>;

  Store(const StoreOptions& options, Env& env);
  absl::Status TakeLock();
  absl::Status OpenDatabase();
  absl::Status CheckSchema();
  absl::Status LoadRows(LoadedState& state);
  absl::Status LoadFiles(LoadedState& state);
  absl::Status RemoveOrphans(const LoadedState& state);
  absl::Status WriteBatch(absl::Span<const Effects> batch);
  absl::Status AppendFiles(absl::Span<const Effects> batch);
  // Says once a log and start that an entry could not be appended.
  void NoteAppend(const std::string& job_id, StreamKind kind, int64_t cursor, bool kept);
  absl::Status WriteTransaction(absl::Span<const Effects> batch);
  absl::Status WriteEffects(const Effects& effects);
  absl::Status WriteEvents(const Effects& effects);
  absl::Status WriteJob(const v1::JobRecord& record);
  absl::Status DeleteJobRows(const std::string& job_id);
  absl::Status WritePosition(const LogKey& key, const SegmentLog::Position& position);
  void Publish(absl::Span<const Effects> batch);
  SegmentLog& LogOf(const std::string& job_id, StreamKind kind) ABSL_LOCKS_EXCLUDED(mu_);
  const SegmentLogOptions& LogOptions(StreamKind kind) const;
  std::string JobsDir() const;
  std::string LogDir(std::string_view job_id, StreamKind kind) const;
  void LimitOpenFiles();

  const StoreOptions options_;
  Env& env_;
  int lock_fd_ = -1;
  int64_t generation_ = 0;
  int64_t revision_ = 0;
  absl::Status failed_;
  std::unique_ptr<Database> database_;
  std::unique_ptr<Statements> statements_;
  std::map<LogKey, std::shared_ptr<SegmentLog>> touched_;  // logs of the batch being committed
  std::map<LogKey, std::shared_ptr<SegmentLog>> open_;     // logs that may hold a file descriptor
  std::set<LogKey> refused_;  // logs whose entries do not fit the files

  mutable absl::Mutex mu_;
  std::map<LogKey, std::shared_ptr<SegmentLog>> logs_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hearth::coordinator
