// Everything the coordinator remembers. One transaction and one sync per batch; nothing is
// acknowledged before it.
//
// clang-format off
//   <data-dir>/.hearth-data          whose folder it is, see data_dir.h
//   <data-dir>/LOCK                  held (flock) by the one coordinator of this folder; its pid
//   <data-dir>/store.db              SQLite: WAL, synchronous=FULL; tables in schema.cc
//   <data-dir>/jobs/<id>/history/    segment files of the step history: StepReport (kStepRecord) or Rewind (kRewindRecord)
//   <data-dir>/jobs/<id>/log/        segment files of the log: LogLine
//   <data-dir>/quarantine/<time>/    unknown things that a start found; never removed
// clang-format on
//
// Order of a commit: one transaction with the rows and, as one row of the journal, all records of
// histories and logs; then the new records are shown to readers, from memory. Later a thread writes
// them to the segment files and syncs those; the next transaction records how far the files go
// and removes the journal's rows. A crash between any two loses nothing: Load cuts the files back
// to what is recorded and takes the rest from the journal.
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
#include "common/time/clock.h"
#include "coordinator/core/core.h"
#include "coordinator/core/event_bounds.h"
#include "coordinator/store/data_dir.h"
#include "coordinator/store/flusher.h"
#include "coordinator/store/journal.h"
#include "coordinator/store/schema.h"
#include "coordinator/store/segment_log.h"
#include "coordinator/store/sqlite.h"
#include "hearth/v1/job.pb.h"

namespace hearth::coordinator {

// Kinds of history records; one per case of MetricRecord.record. Log records have kind 0.
inline constexpr uint8_t kStepRecord = 1;
inline constexpr uint8_t kRewindRecord = 2;

// Records of the audit log between two trims: to find what to trim reads all that is kept.
inline constexpr int64_t kTrimAuditEvery = 256;

struct StoreOptions {
  std::string data_dir;
  // Bounds of one job's files. 1 GiB holds about 6 million steps; the oldest segments go first and
  // are counted.
  SegmentLogOptions history{.segment_bytes = 16 << 20, .max_bytes = int64_t{1} << 30};
  SegmentLogOptions log{.segment_bytes = 4 << 20, .max_bytes = 64 << 20};
  // Events kept per job.
  EventBounds events = {};
  // Newest records kept of the audit log, about 200 bytes each: of calls that were let in, and of
  // refusals, so that a stranger's calls never push out what was done. Up to 256 more stay a while.
  int64_t audit_records = 100'000;
  int64_t audit_refusals = 10'000;
  // Records of histories and logs wait in the journal, and in memory, until they reach this many
  // bytes; then they are moved to the files. At four times as many bytes a commit waits for that.
  int64_t journal_bytes = 32 << 20;
  // The store or the folder was put back from a copy, or the store is gone: open it anyway.
  // The generation becomes higher than any that workers have seen (it is taken from the time).
  bool restore = false;
  // Also cut damaged records out of histories and logs, after a copy of their files.
  bool mend_records = false;
  // The file system of SQLite's on which store.db is, see Database::Open.
  std::string sqlite_vfs = "";
  // Names the quarantine's folder, and with `restore` the generation.
  absl::Time now = Clock::Real().Now();
};

struct LoadedState {
  RestoredState core;
  std::vector<v1::JobEvent> events;    // by job, then revision
  std::vector<v1::AuditRecord> audit;  // the newest kAuditShown, oldest first
  std::vector<std::string> warnings;   // what was damaged, missing or not known, for the log
  int64_t set_aside = 0;  // damaged rows, and files that were not known, in the quarantine now
};

// Load and Commit belong to one thread (the loop's); Find, generation and FreeBytes to any.
class Store {
 public:
  // Takes the lock, creates or opens the database and increments `generation` durably.
  // kFailedPrecondition: another coordinator (its pid in the text) has the folder, the schema is
  // newer than this program's, the folder is not ours, or store.db is missing or older than the
  // folder; kPermissionDenied: not writable; kResourceExhausted: disk full; kDataLoss: not a
  // database of ours, or damaged beyond single rows.
  static absl::StatusOr<std::unique_ptr<Store>> Open(const StoreOptions& options,
                                                     Env& env = Env::Real());
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // Reads everything and makes the files agree with the database. Damaged rows are left out;
  // unknown entries under jobs/ go to the quarantine. Call it once, before the first Commit.
  absl::StatusOr<LoadedState> Load();

  // Makes the durable rows of the effects, applied in order, durable as one, and returns the
  // highest revision stored. On error nothing of the batch will be there after a restart and every
  // later call fails with kFailedPrecondition.
  absl::StatusOr<int64_t> Commit(absl::Span<const Effects> batch);

  // Moves all committed records to the files and waits for it. Errors as Commit.
  absl::Status Flush();

  // The committed records of a job; null when it has none. Readers may continue while the job is
  // deleted, and then get kNotFound.
  std::shared_ptr<const SegmentLog> Find(std::string_view job_id, StreamKind kind) const
      ABSL_LOCKS_EXCLUDED(mu_);

  int64_t generation() const { return generation_; }
  // Bytes that this process may still write to the data dir's file system; -1 = cannot tell.
  int64_t FreeBytes() const;

 private:
  struct Statements;
  using LogKey = std::pair<std::string, StreamKind>;
  using LogPtr = std::shared_ptr<SegmentLog>;
  struct Recovery;

  Store(const StoreOptions& options, Env& env);
  absl::Status TakeLock();
  absl::Status OpenDatabase(const FolderState& folder);
  absl::Status CheckSound();
  absl::Status CheckSchema(const FolderState& folder);
  absl::Status RepairMeta(const FolderState& folder);
  std::string WrongIdentity(const FolderState& folder, int64_t generation, int64_t data_id) const;
  absl::Status StartGeneration(const FolderState& folder);
  absl::Status PrepareStatements();
  absl::StatusOr<int64_t> QueryInt(const std::string& sql);
  absl::Status PutMeta(std::string_view key, int64_t value);

  // store_load.cc
  absl::Status LoadRows(LoadedState& state);
  absl::Status LoadPositions(Recovery& recovery);
  absl::Status LoadJournal(Recovery& recovery, LoadedState& state);
  absl::Status FindUnrecorded(Recovery& recovery, LoadedState& state);
  absl::Status LoadLogs(Recovery& recovery, LoadedState& state);
  absl::Status LoadLog(const LogKey& key, Recovery& recovery, LoadedState& state);
  absl::Status SetLostJobsAside(Recovery& recovery, LoadedState& state);
  absl::Status SetUnknownAside(const Recovery& recovery, LoadedState& state);
  void NameWhatIsMissing(LoadedState& state);

  absl::Status WriteBatch(absl::Span<const Effects> batch);
  absl::Status CheckFlush();
  std::string JournalRow(absl::Span<const Effects> batch);
  // Says once a log and start that an entry could not be appended.
  void NoteRefused(const LogKey& key, int64_t cursor);
  absl::Status PutJournalRow(const std::string& row);
  absl::Status WriteTransaction(absl::Span<const Effects> batch);
  absl::Status WriteEffects(const Effects& effects);
  absl::Status WriteIdentity(const Effects& effects);
  absl::Status WriteEvents(const Effects& effects);
  // Leaves what options_.events says.
  absl::Status TrimEvents(std::string_view job_id);
  absl::Status WriteJob(const v1::JobRecord& record);
  absl::Status DeleteJobRows(const std::string& job_id);
  absl::Status WritePosition(const LogKey& key, const SegmentLog::Position& position);
  absl::Status RecordFlush();
  void FlushRecorded();
  void BeginFlush();
  void Publish(absl::Span<const Effects> batch);
  // store_remove.cc
  void RemoveJobFiles(const std::string& job_id);
  absl::Status RemoveJobFolder(const std::string& job_id);

  SegmentLog& LogOf(const std::string& job_id, StreamKind kind) ABSL_LOCKS_EXCLUDED(mu_);
  const SegmentLogOptions& LogOptions(StreamKind kind) const;
  std::string DatabasePath() const { return options_.data_dir + "/store.db"; }
  std::string JobsDir() const;

  const StoreOptions options_;
  Env& env_;
  int lock_fd_ = -1;
  int64_t generation_ = 0;
  int64_t revision_ = 0;
  absl::Status failed_;
  Quarantine quarantine_;
  std::vector<std::string> warnings_;  // of Open, for Load
  int64_t damaged_rows_ = 0;
  std::unique_ptr<Database> database_;
  std::unique_ptr<Statements> statements_;

  std::map<LogKey, LogPtr> touched_;    // logs of the batch being committed
  std::map<LogKey, LogPtr> unflushed_;  // logs with records that no flush has taken
  std::set<LogKey> refused_;            // logs whose entries do not fit the files
  int64_t journal_id_ = 0;              // of the newest row
  int64_t journal_bytes_ = 0;           // of the rows that no flush has taken
  // kOver: the next transaction records it.
  enum class FlushState { kNone, kRunning, kOver };
  FlushState flush_ = FlushState::kNone;
  std::map<LogKey, LogPtr> flushing_;  // of a flush that is not recorded; without deleted jobs
  int64_t flushing_through_ = 0;       // the journal's rows up to here are in the files after it
  std::unique_ptr<Flusher> flusher_;

  mutable absl::Mutex mu_;
  std::map<LogKey, LogPtr> logs_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hearth::coordinator
