#include "coordinator/store/store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/base/status_macros.h"
#include "common/base/system.h"
#include "common/fault/fault.h"
#include "common/io/private_files.h"
#include "common/log/log.h"
#include "coordinator/store/positions.h"

namespace hearth::coordinator {
namespace {

// A commit waits for the flush when the journal is this many times its bound.
constexpr int64_t kJournalFull = 4;
constexpr int kDamageTold = 20;

// A random id > 0.
int64_t NewDataId() {
  uint64_t id = 0;
  const std::string bytes = absl::HexStringToBytes(RandomHex(sizeof(id)));
  std::memcpy(&id, bytes.data(), sizeof(id));
  return static_cast<int64_t>((id >> 1) | 1);
}

// Owner of the lock, as it wrote itself into the file; "" when unreadable.
std::string ReadPid(int fd) {
  char buffer[32] = {};
  const ssize_t n = pread(fd, buffer, sizeof(buffer) - 1, 0);
  return n <= 0 ? std::string()
                : std::string(absl::StripAsciiWhitespace(absl::string_view(buffer, n)));
}

// Somebody else's database is refused before anything is written: opening one for writing switches
// its journal mode. A damaged file passes; it is looked at when it is opened.
absl::Status RefuseForeignDatabase(const FolderState& folder, const StoreOptions& options) {
  const std::string& data_dir = options.data_dir;
  if (!folder.has_database || folder.marker.has_value()) {
    return absl::OkStatus();
  }
  const auto database = Database::OpenReadOnly(data_dir + "/store.db", options.sqlite_vfs);
  if (!database.ok()) {
    return absl::OkStatus();
  }
  const absl::StatusOr<SchemaInfo> schema = ReadSchema(**database);
  return schema.ok() && !schema->fresh && schema->version == 0 ? AdmitVersion(*schema, data_dir)
                                                               : absl::OkStatus();
}

}  // namespace

struct Store::Statements {
  Statement put_meta;
  Statement put_job;
  Statement put_event;
  Statement old_events;
  Statement delete_event;
  Statement put_request;
  Statement delete_request;
  Statement put_worker;
  Statement delete_worker;
  Statement put_kv;
  Statement clear_kv;
  Statement delete_kv;
  Statement put_file;
  Statement put_journal;
  Statement trim_journal;
  Statement delete_job;
  Statement delete_events;
  Statement delete_files;
  Statement put_token;
  Statement delete_token;
  Statement put_audit;
  Statement trim_audit;
};

Store::Store(const StoreOptions& options, Env& env)
    : options_(options),
      env_(env),
      quarantine_(env, options.data_dir, options.now),
      flusher_(std::make_unique<Flusher>()) {}

Store::~Store() {
  flusher_.reset();  // writes to the folder, so it ends while we hold the lock
  statements_.reset();
  database_.reset();
  if (lock_fd_ >= 0) {
    close(lock_fd_);  // gives the lock back; the file stays
  }
}

absl::StatusOr<std::unique_ptr<Store>> Store::Open(const StoreOptions& options, Env& env) {
  std::unique_ptr<Store> store(new Store(options, env));
  const std::string context = "cannot use data dir " + options.data_dir;
  const absl::StatusOr<FolderState> folder = LookAtFolder(env, options.data_dir);
  HEARTH_RETURN_IF_ERROR(Annotate(folder.status(), context));
  // Refused before anything is written: what is not ours stays as it was.
  HEARTH_RETURN_IF_ERROR(AdmitFolder(*folder, options.data_dir, options.restore));
  HEARTH_RETURN_IF_ERROR(RefuseForeignDatabase(*folder, options));
  HEARTH_RETURN_IF_ERROR(Annotate(CreatePrivateDir(env, options.data_dir), context));
  HEARTH_RETURN_IF_ERROR(Annotate(env.CreateDirs(store->JobsDir()), context));
  HEARTH_RETURN_IF_ERROR(store->TakeLock());
  HEARTH_RETURN_IF_ERROR(Annotate(store->OpenDatabase(*folder), context));
  return store;
}

absl::Status Store::TakeLock() {
  const std::string path = options_.data_dir + "/LOCK";
  // Not truncated here: until the lock is ours, the pid in it is the other one's.
  lock_fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_fd_ < 0) {
    const int error = errno;
    const std::string text =
        absl::StrCat("cannot use data dir ", options_.data_dir, ": ", path, ": ", ErrnoText(error));
    return error == ENOSPC ? absl::ResourceExhaustedError(text) : absl::PermissionDeniedError(text);
  }
  // The kernel drops this lock with the process, so a kill -9 leaves no stale one behind.
  if (flock(lock_fd_, LOCK_EX | LOCK_NB) != 0) {
    const std::string pid = ReadPid(lock_fd_);
    return absl::FailedPreconditionError(
        absl::StrCat("data dir ", options_.data_dir, " is in use by another hearth-coordinator",
                     pid.empty() ? "" : absl::StrCat(" (pid ", pid, ")"),
                     "; stop it first or choose another --data-dir"));
  }
  const std::string pid = absl::StrCat(getpid(), "\n");
  if (ftruncate(lock_fd_, 0) != 0 ||
      pwrite(lock_fd_, pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    const std::string text = absl::StrCat(path, ": ", ErrnoText(errno));
    return errno == ENOSPC ? absl::ResourceExhaustedError(text) : absl::InternalError(text);
  }
  return absl::OkStatus();
}

absl::Status Store::OpenDatabase(const FolderState& folder) {
  HEARTH_ASSIGN_OR_RETURN(database_, Database::Open(DatabasePath(), options_.sqlite_vfs));
  // Each step believes what the one before has checked: pages, then tables, then rows.
  HEARTH_RETURN_IF_ERROR(CheckSound());
  HEARTH_RETURN_IF_ERROR(CheckSchema(folder));
  HEARTH_ASSIGN_OR_RETURN(const std::vector<BadRow> bad,
                          SetBadRowsAside(*database_, absl::ToUnixSeconds(options_.now)));
  for (const BadRow& row : bad) {
    warnings_.push_back(absl::StrCat(DatabasePath(), ": damaged ", Describe(row),
                                     "; kept in the table \"damaged\", not used"));
  }
  damaged_rows_ = static_cast<int64_t>(bad.size());
  HEARTH_RETURN_IF_ERROR(PrepareStatements());
  HEARTH_RETURN_IF_ERROR(RepairMeta(folder));
  return StartGeneration(folder);
}

// An index can be rebuilt from its table, after a copy of the file; a person has to decide about
// other damage.
absl::Status Store::CheckSound() {
  HEARTH_ASSIGN_OR_RETURN(std::vector<std::string> damage, database_->FindDamage(kDamageTold));
  if (damage.empty()) {
    return absl::OkStatus();
  }
  // As they are, before REINDEX changes them.
  for (const char* suffix : {"", "-wal"}) {
    if (env_.Exists(DatabasePath() + suffix)) {
      HEARTH_RETURN_IF_ERROR(quarantine_.Copy(DatabasePath() + suffix));
    }
  }
  const std::string first = damage.front();
  if (database_->Execute("REINDEX").ok()) {
    HEARTH_ASSIGN_OR_RETURN(damage, database_->FindDamage(kDamageTold));
    if (damage.empty()) {
      warnings_.push_back(absl::StrCat(DatabasePath(), " was damaged (", first,
                                       "); its indexes were made again, the file as it was is in ",
                                       quarantine_.folder()));
      return absl::OkStatus();
    }
  }
  return absl::DataLossError(absl::StrCat(
      DatabasePath(), " is damaged: ", damage.front(),
      damage.size() > 1 ? absl::StrCat(" (and ", damage.size() - 1, " more)") : "",
      "; hearth-coordinator --check says all of it. Put a copy of the store back and start once ",
      "with --restore"));
}

absl::Status Store::CheckSchema(const FolderState& folder) {
  HEARTH_ASSIGN_OR_RETURN(const SchemaInfo schema, ReadSchema(*database_));
  if (schema.fresh) {
    // An empty database in a folder with jobs means that the real one is lost.
    FolderState empty = folder;
    empty.has_database = false;
    HEARTH_RETURN_IF_ERROR(AdmitFolder(empty, options_.data_dir, options_.restore));
    return CreateTables(*database_);
  }
  HEARTH_RETURN_IF_ERROR(AdmitVersion(schema, options_.data_dir));
  return Migrate(*database_, schema.version);
}

absl::StatusOr<int64_t> Store::QueryInt(const std::string& sql) {
  HEARTH_ASSIGN_OR_RETURN(Statement query, database_->Prepare(sql));
  HEARTH_ASSIGN_OR_RETURN(const bool row, query.Step());
  return row ? query.ColumnInt(0) : -1;
}

absl::Status Store::PutMeta(std::string_view key, int64_t value) {
  return statements_->put_meta.Text(key).Int(value).Run();
}

// Rows of `meta` that were damaged: the same is known from elsewhere.
absl::Status Store::RepairMeta(const FolderState& folder) {
  const auto missing = [&](const char* key) -> absl::StatusOr<bool> {
    HEARTH_ASSIGN_OR_RETURN(
        const int64_t count,
        QueryInt(absl::StrCat("SELECT count(*) FROM meta WHERE key = '", key, "'")));
    return count == 0;
  };
  HEARTH_ASSIGN_OR_RETURN(const bool version, missing("schema_version"));
  if (version) {
    HEARTH_RETURN_IF_ERROR(PutMeta("schema_version", kSchemaVersion));
  }
  HEARTH_ASSIGN_OR_RETURN(const bool data_id, missing("data_id"));
  if (data_id) {
    // 0 = not known. StartGeneration writes the folder's own id over it.
    HEARTH_RETURN_IF_ERROR(PutMeta("data_id", 0));
  }
  HEARTH_ASSIGN_OR_RETURN(const bool revision, missing("revision"));
  if (revision) {
    // Above all that was handed out, or cursors of watchers would be used twice.
    HEARTH_ASSIGN_OR_RETURN(const int64_t newest,
                            QueryInt("SELECT max((SELECT coalesce(max(revision), 0) FROM jobs), "
                                     "(SELECT coalesce(max(revision), 0) FROM events))"));
    HEARTH_RETURN_IF_ERROR(PutMeta("revision", newest));
  }
  HEARTH_ASSIGN_OR_RETURN(const bool generation, missing("generation"));
  if (!generation) {
    return absl::OkStatus();
  }
  // The generation must never fall: workers obey the highest that they have seen.
  if (!folder.marker.has_value() && !options_.restore) {
    return absl::DataLossError(
        "the row of the generation is damaged and there is no marker; start once with --restore");
  }
  return PutMeta("generation", folder.marker.value_or(Marker{}).generation);
}

// Empty = the database belongs here and is as new as the folder; else what is wrong.
std::string Store::WrongIdentity(const FolderState& folder,
                                 int64_t generation,
                                 int64_t data_id) const {
  if (!folder.marker.has_value()) {
    return data_id == 0
               ? ""
               : DatabasePath() + " belongs to another folder than this one, which has no marker";
  }
  if (data_id != 0 && data_id != folder.marker->id) {
    return DatabasePath() + " belongs to another folder than this one";
  }
  return generation >= folder.marker->generation
             ? ""
             : absl::StrCat(DatabasePath(), " is of generation ", generation,
                            ", and the folder has seen ", folder.marker->generation);
}

// The database first, then the marker: a crash between them leaves a marker that lags, never a
// database that seems to. The id goes to the database last: one that has it has a marker.
absl::Status Store::StartGeneration(const FolderState& folder) {
  HEARTH_ASSIGN_OR_RETURN(const int64_t stored,
                          QueryInt("SELECT value FROM meta WHERE key = 'generation'"));
  HEARTH_ASSIGN_OR_RETURN(const int64_t data_id,
                          QueryInt("SELECT value FROM meta WHERE key = 'data_id'"));
  HEARTH_ASSIGN_OR_RETURN(revision_, QueryInt("SELECT value FROM meta WHERE key = 'revision'"));
  HEARTH_ASSIGN_OR_RETURN(journal_id_, QueryInt("SELECT coalesce(max(id), 0) FROM journal"));
  const std::string wrong = WrongIdentity(folder, stored, data_id);
  if (!wrong.empty() && !options_.restore) {
    return absl::FailedPreconditionError(
        absl::StrCat(wrong, ": if a copy was put back on purpose, start once with --restore ",
                     "(docs/runbook.md, Backup and restore)"));
  }
  const int64_t seen = folder.marker.value_or(Marker{}).generation;
  // By the clock as well: workers may have seen generations that neither file records.
  generation_ =
      1 + (options_.restore ? std::max({stored, seen, absl::ToUnixSeconds(options_.now)}) : stored);
  if (options_.restore) {
    warnings_.push_back(absl::StrCat("restored: store.db was of generation ", stored,
                                     ", the folder had seen ", seen, ", this start is ",
                                     generation_, wrong.empty() ? "" : absl::StrCat("; ", wrong)));
  }
  HEARTH_RETURN_IF_ERROR(PutMeta("generation", generation_));
  const Marker marker{folder.marker.has_value() ? folder.marker->id : NewDataId(), generation_};
  HEARTH_RETURN_IF_ERROR(WriteMarker(env_, options_.data_dir, marker));
  return data_id == marker.id ? absl::OkStatus() : PutMeta("data_id", marker.id);
}

absl::Status Store::PrepareStatements() {
  statements_ = std::make_unique<Statements>();
  const std::pair<Statement*, std::string> all[] = {
      {&statements_->put_meta, PutRowSql("meta")},
      {&statements_->put_job, PutRowSql("jobs")},
      {&statements_->put_event, PutRowSql("events")},
      {&statements_->old_events,
       "SELECT revision, event FROM events WHERE job_id = ? ORDER BY revision DESC LIMIT -1 OFFSET "
       "?"},
      {&statements_->delete_event, "DELETE FROM events WHERE job_id = ? AND revision = ?"},
      {&statements_->put_request, PutRowSql("requests")},
      {&statements_->delete_request, "DELETE FROM requests WHERE request_id = ?"},
      {&statements_->put_worker, PutRowSql("workers")},
      {&statements_->delete_worker, "DELETE FROM workers WHERE worker_id = ?"},
      {&statements_->put_kv, PutRowSql("kv")},
      {&statements_->clear_kv, "DELETE FROM kv WHERE job_id = ?"},
      {&statements_->delete_kv, "DELETE FROM kv WHERE job_id = ? AND epoch = ? AND key = ?"},
      {&statements_->put_file, PutRowSql("files")},
      {&statements_->put_journal, PutRowSql("journal")},
      {&statements_->trim_journal, "DELETE FROM journal WHERE id <= ?"},
      {&statements_->delete_job, "DELETE FROM jobs WHERE job_id = ?"},
      {&statements_->delete_events, "DELETE FROM events WHERE job_id = ?"},
      {&statements_->delete_files, "DELETE FROM files WHERE job_id = ?"},
      {&statements_->put_token, PutRowSql("tokens")},
      {&statements_->delete_token, "DELETE FROM tokens WHERE name = ?"},
      {&statements_->put_audit, PutRowSql("audit")},
      {&statements_->trim_audit,
       "DELETE FROM audit WHERE refused = ?1 AND number <= (SELECT number FROM audit "
       "WHERE refused = ?1 ORDER BY number DESC LIMIT 1 OFFSET ?2)"},
  };
  for (const auto& [statement, sql] : all) {
    HEARTH_ASSIGN_OR_RETURN(*statement, database_->Prepare(sql));
  }
  return absl::OkStatus();
}

std::string Store::JobsDir() const {
  return options_.data_dir + "/jobs";
}

const SegmentLogOptions& Store::LogOptions(StreamKind kind) const {
  return kind == StreamKind::kHistory ? options_.history : options_.log;
}

std::shared_ptr<const SegmentLog> Store::Find(std::string_view job_id, StreamKind kind) const {
  absl::MutexLock lock(&mu_);
  const auto found = logs_.find(LogKey(std::string(job_id), kind));
  return found == logs_.end() ? nullptr : found->second;
}

int64_t Store::FreeBytes() const {
  struct statvfs info {};
  if (statvfs(options_.data_dir.c_str(), &info) != 0) {
    return -1;
  }
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

SegmentLog& Store::LogOf(const std::string& job_id, StreamKind kind) {
  const LogKey key(job_id, kind);
  auto [entry, inserted] = touched_.try_emplace(key);
  if (inserted) {
    // A new log stays out of logs_ until the commit is through: nobody may read it before.
    absl::MutexLock lock(&mu_);
    const auto found = logs_.find(key);
    entry->second = found != logs_.end() ? found->second
                                         : std::make_shared<SegmentLog>(
                                               env_, StreamFolder(options_.data_dir, job_id, kind),
                                               LogOptions(kind), SegmentLog::Position{});
  }
  return *entry->second;
}

absl::StatusOr<int64_t> Store::Commit(absl::Span<const Effects> batch) {
  // After a failed commit the core is ahead of the store, and writing more would make a gap.
  if (!failed_.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("an earlier commit failed: ", failed_.message()));
  }
  const absl::Status status = WriteBatch(batch);
  if (!status.ok()) {
    failed_ = status;
    return status;
  }
  Publish(batch);
  return revision_;
}

absl::Status Store::WriteBatch(absl::Span<const Effects> batch) {
  HEARTH_RETURN_IF_ERROR(CheckFlush());
  HEARTH_RETURN_IF_ERROR(fault::Check("store.before_commit"));
  // Takes the write lock at once: if somebody else has it, that shows here and not in mid-batch.
  HEARTH_RETURN_IF_ERROR(database_->Execute("BEGIN IMMEDIATE"));
  absl::Status status = WriteTransaction(batch);
  if (status.ok()) {
    status = database_->Execute("COMMIT");
  }
  if (!status.ok()) {
    database_->Execute("ROLLBACK").IgnoreError();  // may have happened by itself
    return status;
  }
  return fault::Check("store.after_commit");
}

void Store::NoteRefused(const LogKey& key, int64_t cursor) {
  if (refused_.insert(key).second) {
    HEARTH_LOG_ERROR(
        "job {}: its record says that entry {} of the {} comes next, the files have one as high "
        "already: the store is damaged; entries are left out until the record is past it",
        key.first, cursor, StreamName(key.second));
  }
}

// Takes the result of a finished flush, and makes the caller wait when the disk cannot keep up.
absl::Status Store::CheckFlush() {
  if (flush_ == FlushState::kRunning && journal_bytes_ > kJournalFull * options_.journal_bytes) {
    flusher_->Wait();
  }
  if (const std::optional<absl::Status> result = flusher_->TakeResult()) {
    HEARTH_RETURN_IF_ERROR(*result);
    flush_ = FlushState::kOver;
  }
  return absl::OkStatus();
}

// The records of the batch, which are also appended to their logs; "" when there are none.
std::string Store::JournalRow(absl::Span<const Effects> batch) {
  std::string row;
  touched_.clear();
  const auto append = [&](const std::string& job_id, StreamKind stream, int64_t cursor,
                          uint8_t kind, const std::string& payload) {
    if (LogOf(job_id, stream).Append(cursor, kind, payload)) {
      PutJournalRecord(row, job_id, stream, cursor, kind, payload);
    } else {
      NoteRefused(LogKey(job_id, stream), cursor);
    }
  };
  for (const Effects& effects : batch) {
    for (const HistoryAppend& history : effects.history) {
      const v1::MetricRecord& record = history.record;
      if (record.has_rewind()) {
        append(history.job_id, StreamKind::kHistory, record.cursor(), kRewindRecord,
               record.rewind().SerializeAsString());
      } else {
        append(history.job_id, StreamKind::kHistory, record.cursor(), kStepRecord,
               record.step().SerializeAsString());
      }
    }
    for (const LogAppend& log : effects.logs) {
      for (const v1::LogLine& line : log.lines) {
        append(log.job_id, StreamKind::kLog, line.cursor(), 0, line.SerializeAsString());
      }
    }
    // After its appends: the journal is read in this order, so the deletion covers them, and a job
    // that is made again under this name keeps its own.
    for (const std::string& job_id : effects.job_deletes) {
      PutJournalDeletion(row, job_id);
    }
  }
  return row;
}

absl::Status Store::PutJournalRow(const std::string& row) {
  journal_bytes_ += static_cast<int64_t>(row.size());
  return statements_->put_journal.Int(++journal_id_).Blob(row).Run();
}

absl::Status Store::WriteTransaction(absl::Span<const Effects> batch) {
  if (flush_ == FlushState::kOver) {
    HEARTH_RETURN_IF_ERROR(RecordFlush());  // before a deletion removes what it writes
  }
  // A job that changes several times in a batch is written once, with its last state.
  std::map<std::string_view, const v1::JobRecord*> jobs;
  for (const Effects& effects : batch) {
    for (const std::string& job_id : effects.job_deletes) {
      // What an earlier command of the batch wrote must not bring the row back.
      jobs.erase(job_id);
      HEARTH_RETURN_IF_ERROR(DeleteJobRows(job_id));
    }
    for (const JobRow& row : effects.jobs) {
      if (row.durable) {
        jobs[row.record.job().job_id()] = &row.record;
      }
    }
    HEARTH_RETURN_IF_ERROR(WriteEffects(effects));
  }
  for (const auto& [job_id, record] : jobs) {
    HEARTH_RETURN_IF_ERROR(WriteJob(*record));
  }
  // In the same transaction as the jobs' rows, whose cursors count these records.
  if (const std::string row = JournalRow(batch); !row.empty()) {
    HEARTH_RETURN_IF_ERROR(PutJournalRow(row));
  }
  return PutMeta("revision", revision_);
}

absl::Status Store::WriteEffects(const Effects& effects) {
  HEARTH_RETURN_IF_ERROR(WriteEvents(effects));
  for (const std::string& request_id : effects.request_deletes) {
    HEARTH_RETURN_IF_ERROR(statements_->delete_request.Text(request_id).Run());
  }
  for (const v1::RequestRecord& request : effects.requests) {
    HEARTH_RETURN_IF_ERROR(statements_->put_request.Text(request.request_id())
                               .Blob(request.SerializeAsString())
                               .Run());
  }
  for (const std::string& worker_id : effects.worker_deletes) {
    HEARTH_RETURN_IF_ERROR(statements_->delete_worker.Text(worker_id).Run());
  }
  for (const WorkerRow& row : effects.workers) {
    if (row.durable) {
      HEARTH_RETURN_IF_ERROR(statements_->put_worker.Text(row.record.worker().worker_id())
                                 .Blob(row.record.SerializeAsString())
                                 .Run());
    }
  }
  for (const std::string& job_id : effects.kv_clears) {
    HEARTH_RETURN_IF_ERROR(statements_->clear_kv.Text(job_id).Run());
  }
  for (const v1::KvRecord& kv : effects.kv_deletes) {
    HEARTH_RETURN_IF_ERROR(
        statements_->delete_kv.Text(kv.job_id()).Int(kv.epoch()).Text(kv.key()).Run());
  }
  for (const v1::KvRecord& kv : effects.kv_puts) {
    HEARTH_RETURN_IF_ERROR(statements_->put_kv.Text(kv.job_id())
                               .Int(kv.epoch())
                               .Text(kv.key())
                               .Blob(kv.SerializeAsString())
                               .Run());
  }
  return WriteIdentity(effects);
}

absl::Status Store::WriteIdentity(const Effects& effects) {
  for (const std::string& name : effects.token_deletes) {
    HEARTH_RETURN_IF_ERROR(statements_->delete_token.Text(name).Run());
  }
  for (const v1::TokenRecord& token : effects.token_puts) {
    HEARTH_RETURN_IF_ERROR(
        statements_->put_token.Text(token.token().name()).Blob(token.SerializeAsString()).Run());
  }
  for (const v1::AuditRecord& record : effects.audit) {
    HEARTH_RETURN_IF_ERROR(statements_->put_audit.Int(IsRefusal(record) ? 1 : 0)
                               .Int(record.number())
                               .Blob(record.SerializeAsString())
                               .Run());
    if (record.number() % kTrimAuditEvery == 0) {
      for (const int64_t refused : {0, 1}) {
        HEARTH_RETURN_IF_ERROR(
            statements_->trim_audit.Int(refused)
                .Int(refused == 0 ? options_.audit_records : options_.audit_refusals)
                .Run());
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Store::WriteEvents(const Effects& effects) {
  std::set<std::string_view> jobs;
  for (const v1::JobEvent& event : effects.events) {
    revision_ = std::max(revision_, event.revision());
    HEARTH_RETURN_IF_ERROR(statements_->put_event.Text(event.job_id())
                               .Int(event.revision())
                               .Blob(event.SerializeAsString())
                               .Run());
    jobs.insert(event.job_id());
  }
  for (const std::string_view job_id : jobs) {
    HEARTH_RETURN_IF_ERROR(TrimEvents(job_id));
  }
  return absl::OkStatus();
}

absl::Status Store::TrimEvents(std::string_view job_id) {
  std::vector<int64_t> trimmed;
  size_t notes = 0;
  Statement& old = statements_->old_events;
  old.Text(job_id).Int(static_cast<int64_t>(options_.events.newest));
  absl::StatusOr<bool> row = old.Step();
  for (; row.ok() && *row; row = old.Step()) {  // newest first; those of earlier trims are notes
    v1::JobEvent event;
    const bool note = event.ParseFromString(old.ColumnBytes(1)) && IsNote(event);
    notes += note ? 1 : 0;
    if (!note || notes > options_.events.notes) {
      trimmed.push_back(old.ColumnInt(0));
    }
  }
  old.Reset();
  HEARTH_RETURN_IF_ERROR(row.status());
  for (const int64_t revision : trimmed) {
    HEARTH_RETURN_IF_ERROR(statements_->delete_event.Text(job_id).Int(revision).Run());
  }
  return absl::OkStatus();
}

absl::Status Store::WriteJob(const v1::JobRecord& record) {
  const v1::Job& job = record.job();
  revision_ = std::max(revision_, job.revision());
  return statements_->put_job.Text(job.job_id())
      .Text(job.spec().name())
      .Int(job.state())
      .Int(job.epoch())
      .Int(job.revision())
      .Blob(record.SerializeAsString())
      .Run();
}

absl::Status Store::DeleteJobRows(const std::string& job_id) {
  HEARTH_RETURN_IF_ERROR(statements_->delete_job.Text(job_id).Run());
  HEARTH_RETURN_IF_ERROR(statements_->delete_events.Text(job_id).Run());
  HEARTH_RETURN_IF_ERROR(statements_->delete_files.Text(job_id).Run());
  return statements_->clear_kv.Text(job_id).Run();
}

absl::Status Store::WritePosition(const LogKey& key, const SegmentLog::Position& position) {
  return statements_->put_file.Text(key.first)
      .Int(static_cast<int64_t>(key.second))
      .Int(position.first)
      .Int(position.end)
      .Int(position.tail_first)
      .Int(position.tail_bytes)
      .Int(position.dropped)
      .Run();
}

// Within a transaction: records how far the files go now, and removes what they hold from the
// journal.
absl::Status Store::RecordFlush() {
  HEARTH_RETURN_IF_ERROR(fault::Check("store.after_flush"));
  for (const auto& [key, log] : flushing_) {
    HEARTH_RETURN_IF_ERROR(WritePosition(key, log->synced()));
  }
  return statements_->trim_journal.Int(flushing_through_).Run();
}

// Runs after that transaction.
void Store::FlushRecorded() {
  for (const auto& [key, log] : flushing_) {
    // Only now: a crash before the commit would leave a position that names files that are gone.
    log->RemoveDropped();
  }
  flushing_.clear();
  flush_ = FlushState::kNone;
}

void Store::BeginFlush() {
  flushing_.swap(unflushed_);
  // Later rows stay in the journal until the next flush.
  flushing_through_ = journal_id_;
  journal_bytes_ = 0;
  std::vector<LogPtr> logs;
  for (const auto& [key, log] : flushing_) {
    logs.push_back(log);
  }
  flusher_->Begin(std::move(logs));
  flush_ = FlushState::kRunning;
}

absl::Status Store::Flush() {
  for (int pass = 0; pass < 2; ++pass) {  // the pass in progress, and one for later records
    if (flush_ == FlushState::kNone) {
      if (unflushed_.empty() && journal_bytes_ == 0) {
        return absl::OkStatus();
      }
      BeginFlush();
    }
    flusher_->Wait();
    HEARTH_RETURN_IF_ERROR(Commit({}).status());
  }
  return absl::OkStatus();
}

void Store::Publish(absl::Span<const Effects> batch) {
  if (flush_ == FlushState::kOver) {
    FlushRecorded();
  }
  // Readers see records only from here on: no crash takes them back any more.
  for (const auto& [key, log] : touched_) {
    log->Publish();
    unflushed_[key] = log;
    absl::MutexLock lock(&mu_);
    logs_.try_emplace(key, log);
  }
  touched_.clear();
  for (const Effects& effects : batch) {
    for (const std::string& job_id : effects.job_deletes) {
      // Files go last. If a crash comes first, the journal's deletion removes them at the next
      // start.
      RemoveJobFiles(job_id);
    }
  }
  if (flush_ == FlushState::kNone && journal_bytes_ > options_.journal_bytes) {
    BeginFlush();
  }
}

}  // namespace hearth::coordinator
