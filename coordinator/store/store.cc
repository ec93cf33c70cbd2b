#include "coordinator/store/store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status.h"
#include "common/base/status_macros.h"
#include "common/fault/fault.h"
#include "common/log/log.h"

namespace hearth::coordinator {
namespace {

// Descriptors that idle logs may keep; with more than this all are closed, the busy ones open
// again.
constexpr size_t kOpenFilesMax = 128;

constexpr std::string_view kSchema = R"sql(
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE jobs (
  job_id TEXT PRIMARY KEY, name TEXT NOT NULL, state INTEGER NOT NULL, epoch INTEGER NOT NULL, revision INTEGER NOT NULL,
  record BLOB NOT NULL);
CREATE TABLE events (
  job_id TEXT NOT NULL, revision INTEGER NOT NULL, event BLOB NOT NULL, PRIMARY KEY (job_id, revision)) WITHOUT ROWID;
CREATE TABLE requests (request_id TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE workers (worker_id TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE kv (
  job_id TEXT NOT NULL, epoch INTEGER NOT NULL, key TEXT NOT NULL, record BLOB NOT NULL,
  PRIMARY KEY (job_id, epoch, key));
CREATE TABLE files (
  job_id TEXT NOT NULL, stream INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, tail_first INTEGER NOT NULL,
  tail_bytes INTEGER NOT NULL, dropped INTEGER NOT NULL, PRIMARY KEY (job_id, stream)) WITHOUT ROWID;
INSERT INTO meta VALUES ('schema_version', 1), ('generation', 0), ('revision', 0);
)sql";

std::string StreamName(StreamKind kind) {
  return kind == StreamKind::kHistory ? "history" : "log";
}

// Owner of the lock, as it wrote itself into the file; "" when unreadable.
std::string ReadPid(int fd) {
  char buffer[32] = {};
  const ssize_t n = pread(fd, buffer, sizeof(buffer) - 1, 0);
  return n <= 0 ? std::string()
                : std::string(absl::StripAsciiWhitespace(absl::string_view(buffer, n)));
}

}  // namespace

struct Store::Statements {
  Statement put_meta;
  Statement put_job;
  Statement put_event;
  Statement trim_events;
  Statement put_request;
  Statement delete_request;
  Statement put_worker;
  Statement delete_worker;
  Statement put_kv;
  Statement clear_kv;
  Statement delete_kv;
  Statement put_file;
  Statement delete_job;
  Statement delete_events;
  Statement delete_files;
};

Store::Store(const StoreOptions& options, Env& env) : options_(options), env_(env) {}

Store::~Store() {
  statements_.reset();
  database_.reset();
  if (lock_fd_ >= 0) {
    close(lock_fd_);  // gives the lock back; the file stays
  }
}

absl::StatusOr<std::unique_ptr<Store>> Store::Open(const StoreOptions& options, Env& env) {
  std::unique_ptr<Store> store(new Store(options, env));
  HEARTH_RETURN_IF_ERROR(
      Annotate(env.CreateDirs(store->JobsDir()), "cannot use data dir " + options.data_dir));
  HEARTH_RETURN_IF_ERROR(store->TakeLock());
  HEARTH_RETURN_IF_ERROR(
      Annotate(store->OpenDatabase(), "cannot use data dir " + options.data_dir));
  return store;
}

absl::Status Store::TakeLock() {
  const std::string path = options_.data_dir + "/LOCK";
  lock_fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_fd_ < 0) {
    const int error = errno;
    const std::string text =
        absl::StrCat("cannot use data dir ", options_.data_dir, ": ", path, ": ", strerror(error));
    return error == ENOSPC ? absl::ResourceExhaustedError(text) : absl::PermissionDeniedError(text);
  }
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
    const std::string text = absl::StrCat(path, ": ", strerror(errno));
    return errno == ENOSPC ? absl::ResourceExhaustedError(text) : absl::InternalError(text);
  }
  return absl::OkStatus();
}

absl::Status Store::OpenDatabase() {
  HEARTH_ASSIGN_OR_RETURN(database_, Database::Open(options_.data_dir + "/store.db"));
  HEARTH_RETURN_IF_ERROR(CheckSchema());
  HEARTH_RETURN_IF_ERROR(
      database_->Execute("UPDATE meta SET value = value + 1 WHERE key = 'generation'"));
  HEARTH_ASSIGN_OR_RETURN(
      Statement query,
      database_->Prepare("SELECT (SELECT value FROM meta WHERE key = 'generation'), "
                         "(SELECT value FROM meta WHERE key = 'revision')"));
  HEARTH_RETURN_IF_ERROR(query.Step().status());
  generation_ = query.ColumnInt(0);
  revision_ = query.ColumnInt(1);

  statements_ = std::make_unique<Statements>();
  const std::pair<Statement*, std::string_view> all[] = {
      {&statements_->put_meta, "UPDATE meta SET value = ?2 WHERE key = ?1"},
      {&statements_->put_job, "INSERT OR REPLACE INTO jobs VALUES (?, ?, ?, ?, ?, ?)"},
      {&statements_->put_event, "INSERT OR REPLACE INTO events VALUES (?, ?, ?)"},
      {&statements_->trim_events,
       "DELETE FROM events WHERE job_id = ?1 AND revision <= (SELECT revision FROM events "
       "WHERE job_id = ?1 ORDER BY revision DESC LIMIT 1 OFFSET ?2)"},
      {&statements_->put_request, "INSERT OR REPLACE INTO requests VALUES (?, ?)"},
      {&statements_->delete_request, "DELETE FROM requests WHERE request_id = ?"},
      {&statements_->put_worker, "INSERT OR REPLACE INTO workers VALUES (?, ?)"},
      {&statements_->delete_worker, "DELETE FROM workers WHERE worker_id = ?"},
      {&statements_->put_kv, "INSERT OR REPLACE INTO kv VALUES (?, ?, ?, ?)"},
      {&statements_->clear_kv, "DELETE FROM kv WHERE job_id = ?"},
      {&statements_->delete_kv, "DELETE FROM kv WHERE job_id = ? AND epoch = ? AND key = ?"},
      {&statements_->put_file, "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?)"},
      {&statements_->delete_job, "DELETE FROM jobs WHERE job_id = ?"},
      {&statements_->delete_events, "DELETE FROM events WHERE job_id = ?"},
      {&statements_->delete_files, "DELETE FROM files WHERE job_id = ?"},
  };
  for (const auto& [statement, sql] : all) {
    HEARTH_ASSIGN_OR_RETURN(*statement, database_->Prepare(sql));
  }
  return absl::OkStatus();
}

absl::Status Store::CheckSchema() {
  HEARTH_ASSIGN_OR_RETURN(
      Statement tables,
      database_->Prepare("SELECT count(*), coalesce(sum(name = 'meta'), 0) FROM sqlite_master"));
  HEARTH_RETURN_IF_ERROR(tables.Step().status());
  const bool fresh = tables.ColumnInt(0) == 0;
  const bool ours = tables.ColumnInt(1) == 1;
  tables.Reset();
  if (fresh) {
    return database_->Execute(absl::StrCat(
        "BEGIN IMMEDIATE;", absl::string_view(kSchema.data(), kSchema.size()), "COMMIT;"));
  }
  if (!ours) {
    return absl::DataLossError(
        absl::StrCat(options_.data_dir, "/store.db is not a store of hearth-coordinator"));
  }
  HEARTH_ASSIGN_OR_RETURN(
      Statement query, database_->Prepare("SELECT value FROM meta WHERE key = 'schema_version'"));
  HEARTH_ASSIGN_OR_RETURN(const bool found, query.Step());
  const int64_t version = found ? query.ColumnInt(0) : 0;
  if (version > kSchemaVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("schema version ", version, " is newer than this program's (", kSchemaVersion,
                     "): it was written by a later hearth-coordinator; use that one"));
  }
  if (version < 1) {
    return absl::DataLossError("schema version is missing");
  }
  return absl::OkStatus();
}

std::string Store::JobsDir() const {
  return options_.data_dir + "/jobs";
}

std::string Store::LogDir(std::string_view job_id, StreamKind kind) const {
  return absl::StrCat(JobsDir(), "/", absl::string_view(job_id.data(), job_id.size()), "/",
                      StreamName(kind));
}

const SegmentLogOptions& Store::LogOptions(StreamKind kind) const {
  return kind == StreamKind::kHistory ? options_.history : options_.log;
}

absl::StatusOr<LoadedState> Store::Load() {
  LoadedState state;
  HEARTH_RETURN_IF_ERROR(LoadRows(state));
  HEARTH_RETURN_IF_ERROR(LoadFiles(state));
  HEARTH_RETURN_IF_ERROR(RemoveOrphans(state));
  return state;
}

absl::Status Store::LoadRows(LoadedState& state) {
  const auto load = [this](std::string_view sql, auto& out) -> absl::Status {
    HEARTH_ASSIGN_OR_RETURN(Statement query, database_->Prepare(sql));
    while (true) {
      HEARTH_ASSIGN_OR_RETURN(const bool row, query.Step());
      if (!row) {
        return absl::OkStatus();
      }
      if (!out.emplace_back().ParseFromString(query.ColumnBytes(0))) {
        return absl::DataLossError(absl::StrCat(options_.data_dir,
                                                "/store.db: a row cannot be parsed (",
                                                absl::string_view(sql.data(), sql.size()), ")"));
      }
    }
  };
  HEARTH_RETURN_IF_ERROR(load("SELECT record FROM jobs ORDER BY job_id", state.core.jobs));
  HEARTH_RETURN_IF_ERROR(load("SELECT record FROM workers ORDER BY worker_id", state.core.workers));
  HEARTH_RETURN_IF_ERROR(load("SELECT record FROM requests", state.core.requests));
  HEARTH_RETURN_IF_ERROR(load("SELECT record FROM kv ORDER BY job_id, epoch, key", state.core.kv));
  HEARTH_RETURN_IF_ERROR(load("SELECT event FROM events ORDER BY job_id, revision", state.events));
  state.core.last_revision = revision_;
  return absl::OkStatus();
}

absl::Status Store::LoadFiles(LoadedState& state) {
  HEARTH_ASSIGN_OR_RETURN(
      Statement query,
      database_->Prepare(
          "SELECT job_id, stream, first, last, tail_first, tail_bytes, dropped FROM files"));
  std::vector<std::pair<LogKey, SegmentLog::Position>> changed;
  while (true) {
    HEARTH_ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) {
      break;
    }
    const LogKey key(query.ColumnBytes(0), static_cast<StreamKind>(query.ColumnInt(1)));
    const SegmentLog::Position position{.first = query.ColumnInt(2),
                                        .end = query.ColumnInt(3),
                                        .tail_first = query.ColumnInt(4),
                                        .tail_bytes = query.ColumnInt(5),
                                        .dropped = query.ColumnInt(6)};
    auto log = std::make_shared<SegmentLog>(env_, LogDir(key.first, key.second),
                                            LogOptions(key.second), position);
    std::string warning;
    HEARTH_RETURN_IF_ERROR(log->Recover(warning));
    log->CloseFile();
    if (!warning.empty()) {
      state.warnings.push_back(warning);
      changed.emplace_back(key, log->position());
    }
    absl::MutexLock lock(&mu_);
    logs_[key] = std::move(log);
  }
  for (const auto& [key, position] : changed) {
    HEARTH_RETURN_IF_ERROR(WritePosition(key, position));
  }
  return absl::OkStatus();
}

// Folders of jobs that were deleted just before a crash, or whose first batch was never committed.
absl::Status Store::RemoveOrphans(const LoadedState& state) {
  std::set<std::string> known;
  for (const v1::JobRecord& record : state.core.jobs) {
    known.insert(record.job().job_id());
  }
  HEARTH_ASSIGN_OR_RETURN(const std::vector<std::string> names, env_.ListDir(JobsDir()));
  for (const std::string& name : names) {
    if (!known.contains(name)) {
      HEARTH_RETURN_IF_ERROR(env_.RemoveAll(absl::StrCat(JobsDir(), "/", name)));
      continue;
    }
    for (const StreamKind kind : {StreamKind::kHistory, StreamKind::kLog}) {
      if (Find(name, kind) == nullptr) {
        HEARTH_RETURN_IF_ERROR(env_.RemoveAll(LogDir(name, kind)));
      }
    }
  }
  return absl::OkStatus();
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
    absl::MutexLock lock(&mu_);
    const auto found = logs_.find(key);
    entry->second = found != logs_.end()
                        ? found->second
                        : std::make_shared<SegmentLog>(env_, LogDir(job_id, kind), LogOptions(kind),
                                                       SegmentLog::Position{});
  }
  return *entry->second;
}

absl::StatusOr<int64_t> Store::Commit(absl::Span<const Effects> batch) {
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
  HEARTH_RETURN_IF_ERROR(AppendFiles(batch));
  HEARTH_RETURN_IF_ERROR(fault::Check("store.before_commit"));
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

void Store::NoteAppend(const std::string& job_id, StreamKind kind, int64_t cursor, bool kept) {
  if (!kept && refused_.insert(LogKey(job_id, kind)).second) {
    HEARTH_LOG_ERROR(
        "job {}: its record says that entry {} of the {} comes next, the files have one as high "
        "already: the store is damaged; entries are left out until the record is past it",
        job_id, cursor, StreamName(kind));
  }
}

absl::Status Store::AppendFiles(absl::Span<const Effects> batch) {
  touched_.clear();
  for (const Effects& effects : batch) {
    for (const HistoryAppend& append : effects.history) {
      const v1::MetricRecord& record = append.record;
      SegmentLog& log = LogOf(append.job_id, StreamKind::kHistory);
      const bool kept =
          record.has_rewind()
              ? log.Append(record.cursor(), kRewindRecord, record.rewind().SerializeAsString())
              : log.Append(record.cursor(), kStepRecord, record.step().SerializeAsString());
      NoteAppend(append.job_id, StreamKind::kHistory, record.cursor(), kept);
    }
    for (const LogAppend& append : effects.logs) {
      SegmentLog& log = LogOf(append.job_id, StreamKind::kLog);
      for (const v1::LogLine& line : append.lines) {
        NoteAppend(append.job_id, StreamKind::kLog, line.cursor(),
                   log.Append(line.cursor(), 0, line.SerializeAsString()));
      }
    }
  }
  if (touched_.empty()) {
    return absl::OkStatus();
  }
  HEARTH_RETURN_IF_ERROR(fault::Check("store.before_append"));
  for (const auto& [key, log] : touched_) {
    HEARTH_RETURN_IF_ERROR(log->Sync());
  }
  return fault::Check("store.after_append");
}

absl::Status Store::WriteTransaction(absl::Span<const Effects> batch) {
  // A job that changes several times in a batch is written once, with its last state.
  std::map<std::string_view, const v1::JobRecord*> jobs;
  std::set<std::string_view> deleted;
  for (const Effects& effects : batch) {
    for (const std::string& job_id : effects.job_deletes) {
      jobs.erase(job_id);
      deleted.insert(job_id);
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
  for (const auto& [key, log] : touched_) {
    if (!deleted.contains(key.first)) {
      HEARTH_RETURN_IF_ERROR(WritePosition(key, log->position()));
    }
  }
  return statements_->put_meta.Text("revision").Int(revision_).Run();
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
    HEARTH_RETURN_IF_ERROR(
        statements_->trim_events.Text(job_id).Int(options_.events_per_job).Run());
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

void Store::Publish(absl::Span<const Effects> batch) {
  for (const auto& [key, log] : touched_) {
    log->Publish();
    open_[key] = log;
    absl::MutexLock lock(&mu_);
    logs_.try_emplace(key, log);
  }
  touched_.clear();
  for (const Effects& effects : batch) {
    for (const std::string& job_id : effects.job_deletes) {
      for (const StreamKind kind : {StreamKind::kHistory, StreamKind::kLog}) {
        open_.erase(LogKey(job_id, kind));
        absl::MutexLock lock(&mu_);
        logs_.erase(LogKey(job_id, kind));
      }
      // What cannot be removed now is an orphan that the next Load removes.
      env_.RemoveAll(absl::StrCat(JobsDir(), "/", job_id)).IgnoreError();
    }
  }
  LimitOpenFiles();
}

void Store::LimitOpenFiles() {
  if (open_.size() <= kOpenFilesMax) {
    return;
  }
  for (const auto& [key, log] : open_) {
    log->CloseFile();
  }
  open_.clear();
}

}  // namespace hearth::coordinator
