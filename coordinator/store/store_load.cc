// Store::Load: rows, the journal, the files, and unknown entries.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "coordinator/store/positions.h"
#include "coordinator/store/store.h"

namespace hearth::coordinator {

// What Load has learnt so far of histories and logs.
struct Store::Recovery {
  // Newest cursors of the jobs' records by their rows: (history, log).
  std::map<std::string, std::pair<int64_t, int64_t>> jobs;
  std::map<LogKey, SegmentLog::Position> positions;              // as recorded
  std::map<LogKey, std::vector<SegmentLog::Record>> journalled;  // in order of their cursors
  std::set<std::string> deleted;                                 // jobs that the journal deletes
  std::set<std::string> lost;  // jobs that have records and rows, and whose own row is gone
  std::map<LogKey, SegmentLog::Position> changed;  // to be recorded
  bool journal_damaged = false;

  // No record of the job is newer.
  int64_t EndMax(const LogKey& key) const {
    const auto found = jobs.find(key.first);
    if (found == jobs.end()) {
      return INT64_MAX;
    }
    return key.second == StreamKind::kHistory ? found->second.first : found->second.second;
  }
};

absl::StatusOr<LoadedState> Store::Load() {
  LoadedState state;
  state.warnings = warnings_;
  Recovery recovery;
  HEARTH_RETURN_IF_ERROR(LoadRows(state));
  for (const v1::JobRecord& record : state.core.jobs) {
    recovery.jobs[record.job().job_id()] = {record.history_cursor(), record.log_cursor()};
  }
  // Positions and journal say what the files must hold, so the files are opened after both.
  HEARTH_RETURN_IF_ERROR(LoadPositions(recovery));
  HEARTH_RETURN_IF_ERROR(LoadJournal(recovery, state));
  HEARTH_RETURN_IF_ERROR(FindUnrecorded(recovery, state));
  HEARTH_RETURN_IF_ERROR(LoadLogs(recovery, state));
  HEARTH_RETURN_IF_ERROR(SetLostJobsAside(recovery, state));
  HEARTH_RETURN_IF_ERROR(SetUnknownAside(recovery, state));
  NameWhatIsMissing(state);
  if (recovery.journal_damaged) {
    HEARTH_RETURN_IF_ERROR(Flush());  // the readable part of the journal exists nowhere else
  }
  state.set_aside = damaged_rows_ + quarantine_.entries();
  return state;
}

absl::Status Store::LoadRows(LoadedState& state) {
  const auto load = [this](const std::string& sql, auto& out) -> absl::Status {
    HEARTH_ASSIGN_OR_RETURN(Statement query, database_->Prepare(sql));
    while (true) {
      HEARTH_ASSIGN_OR_RETURN(const bool row, query.Step());
      if (!row) {
        return absl::OkStatus();
      }
      if (!out.emplace_back().ParseFromString(query.ColumnBytes(0))) {
        return absl::DataLossError(
            absl::StrCat(DatabasePath(), ": a row cannot be parsed (", sql, ")"));
      }
    }
  };
  const std::string of_known_jobs = " WHERE job_id IN (SELECT job_id FROM jobs) ORDER BY job_id, ";
  HEARTH_RETURN_IF_ERROR(load("SELECT record FROM jobs ORDER BY job_id", state.core.jobs));
  HEARTH_RETURN_IF_ERROR(load("SELECT record FROM workers ORDER BY worker_id", state.core.workers));
  HEARTH_RETURN_IF_ERROR(load("SELECT record FROM requests", state.core.requests));
  HEARTH_RETURN_IF_ERROR(
      load("SELECT record FROM kv" + of_known_jobs + "epoch, key", state.core.kv));
  HEARTH_RETURN_IF_ERROR(
      load("SELECT event FROM events" + of_known_jobs + "revision", state.events));
  HEARTH_RETURN_IF_ERROR(load("SELECT record FROM tokens ORDER BY name", state.core.tokens));
  HEARTH_RETURN_IF_ERROR(
      load(absl::StrCat("SELECT record FROM audit WHERE refused = 0 ORDER BY number DESC LIMIT ",
                        kAuditShown),
           state.audit));
  HEARTH_RETURN_IF_ERROR(
      load(absl::StrCat("SELECT record FROM audit WHERE refused = 1 ORDER BY number DESC LIMIT ",
                        kRefusalsShown),
           state.audit));
  std::sort(
      state.audit.begin(), state.audit.end(),
      [](const v1::AuditRecord& a, const v1::AuditRecord& b) { return a.number() < b.number(); });
  state.core.last_revision = revision_;
  return absl::OkStatus();
}

absl::Status Store::LoadPositions(Recovery& recovery) {
  return ForEachPosition(*database_, [&recovery](const std::string& job_id, StreamKind kind,
                                                 const SegmentLog::Position& position) {
    recovery.positions[LogKey(job_id, kind)] = position;
    return absl::OkStatus();
  });
}

absl::Status Store::LoadJournal(Recovery& recovery, LoadedState& state) {
  bool bad = false;
  const auto see = [&](JournalOp op, std::string_view job_id, const Frame& frame) {
    const std::string job(job_id);
    if (bad && (op == JournalOp::kDeleteJob || !recovery.jobs.contains(job))) {
      return;  // the name itself may be damaged
    }
    if (op == JournalOp::kDeleteJob) {
      recovery.journalled.erase(LogKey(job, StreamKind::kHistory));
      recovery.journalled.erase(LogKey(job, StreamKind::kLog));
      recovery.deleted.insert(job);
      return;
    }
    // Made again under the same name after its deletion.
    recovery.deleted.erase(job);
    recovery
        .journalled[LogKey(job,
                           op == JournalOp::kHistory ? StreamKind::kHistory : StreamKind::kLog)]
        .push_back({frame.cursor, frame.kind, std::string(frame.payload)});
  };
  HEARTH_ASSIGN_OR_RETURN(Statement query,
                          database_->Prepare("SELECT id, records, crc IS NOT row_crc('journal', "
                                             "id, records) FROM journal ORDER BY id"));
  journal_bytes_ = 0;
  while (true) {
    HEARTH_ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) {
      return absl::OkStatus();
    }
    const std::string records = query.ColumnBytes(1);
    journal_id_ = query.ColumnInt(0);
    journal_bytes_ += static_cast<int64_t>(records.size());
    bad = query.ColumnInt(2) != 0;
    bad = !ReadJournal(records, see) || bad;
    if (bad) {
      recovery.journal_damaged = true;
      ++damaged_rows_;
      HEARTH_RETURN_IF_ERROR(
          KeepJournalRow(*database_, journal_id_, absl::ToUnixSeconds(options_.now)));
      state.warnings.push_back(absl::StrCat(DatabasePath(), ": row ", journal_id_,
                                            " of the journal is damaged; what is whole of it ",
                                            "is used, the row is kept in the table \"damaged\""));
    }
  }
}

// Files of known jobs without a record in the store, because the record was damaged; or because the
// log's first flush was under way at a crash: then the journal has all of it, and the files go.
absl::Status Store::FindUnrecorded(Recovery& recovery, LoadedState& state) {
  for (const auto& [job_id, cursors] : recovery.jobs) {
    for (const StreamKind kind : {StreamKind::kHistory, StreamKind::kLog}) {
      const LogKey key(job_id, kind);
      const bool recorded = recovery.positions.count(key) > 0;
      const std::string dir = StreamFolder(options_.data_dir, job_id, kind);
      const int64_t end_max = recovery.EndMax(key);
      if (recorded ? recovery.positions[key].end <= end_max : !env_.IsDirectory(dir)) {
        continue;
      }
      HEARTH_ASSIGN_OR_RETURN(const SegmentLog::Position position,
                              SegmentLog::Rebuild(env_, dir, end_max));
      const auto journalled = recovery.journalled.find(key);
      if (!recorded && journalled != recovery.journalled.end() &&
          journalled->second.front().cursor <= position.first) {
        continue;
      }
      recovery.positions[key] = position;
      recovery.changed[key] = position;
      if (position.end > 0) {
        state.warnings.push_back(absl::StrCat(dir, ": the record of these files was lost; ",
                                              "taken from the files up to ", position.end));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Store::LoadLog(const LogKey& key, Recovery& recovery, LoadedState& state) {
  std::vector<SegmentLog::Record>& records = recovery.journalled[key];
  const int64_t end_max = recovery.EndMax(key);
  // Record and row of a job come in one commit, so a record that its row does not count is of a row
  // that was put back or damaged.
  std::erase_if(records, [&](const auto& record) { return record.cursor > end_max; });
  const SegmentLog::Position& position = recovery.positions[key];
  const int64_t known_end = std::max(position.end, records.empty() ? 0 : records.back().cursor);
  const auto log =
      std::make_shared<SegmentLog>(env_, StreamFolder(options_.data_dir, key.first, key.second),
                                   LogOptions(key.second), position);
  const auto keep = [this](const std::string& path, bool whole) {
    return whole ? quarantine_.Move(path) : quarantine_.Copy(path);
  };
  if (options_.mend_records) {
    HEARTH_RETURN_IF_ERROR(SegmentLog::Mend(
        env_, StreamFolder(options_.data_dir, key.first, key.second), position,
        [&keep](const std::string& path) { return keep(path, false); }, state.warnings));
  }
  HEARTH_RETURN_IF_ERROR(log->Recover(known_end, keep, state.warnings));
  if (log->synced() != position) {
    recovery.changed[key] = log->synced();
  }
  bool fresh = false;
  for (const SegmentLog::Record& record : records) {
    // Records that a flush wrote before the crash are in the files already, so they are refused
    // here.
    fresh = log->Append(record.cursor, record.kind, record.payload) || fresh;
  }
  log->Publish();
  if (fresh) {
    unflushed_[key] = log;
  }
  absl::MutexLock lock(&mu_);
  logs_[key] = log;
  return absl::OkStatus();
}

absl::Status Store::LoadLogs(Recovery& recovery, LoadedState& state) {
  std::set<LogKey> keys;
  for (const auto& [key, position] : recovery.positions) {
    keys.insert(key);
  }
  for (const auto& [key, records] : recovery.journalled) {
    keys.insert(key);
  }
  for (const LogKey& key : keys) {
    HEARTH_RETURN_IF_ERROR(LoadLog(key, recovery, state));
    if (!recovery.jobs.contains(key.first)) {
      recovery.lost.insert(key.first);
    }
  }
  for (const auto& [key, position] : recovery.changed) {
    HEARTH_RETURN_IF_ERROR(WritePosition(key, position));
  }
  return absl::OkStatus();
}

// Jobs whose own row was damaged: their other rows are kept beside it, their files go to the
// quarantine with all that the journal has of them.
absl::Status Store::SetLostJobsAside(Recovery& recovery, LoadedState& state) {
  HEARTH_ASSIGN_OR_RETURN(
      Statement query, database_->Prepare("SELECT job_id FROM events UNION SELECT job_id FROM kv "
                                          "EXCEPT SELECT job_id FROM jobs"));
  while (true) {
    HEARTH_ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) {
      break;
    }
    recovery.lost.insert(query.ColumnBytes(0));
  }
  query.Reset();
  for (const std::string& job_id : recovery.lost) {
    state.warnings.push_back(absl::StrCat("job ", job_id, " is lost: its row in ", DatabasePath(),
                                          " was damaged; its events are kept in the table ",
                                          "\"damaged\", its history and log under quarantine"));
    for (const StreamKind kind : {StreamKind::kHistory, StreamKind::kLog}) {
      LogPtr log;
      {
        absl::MutexLock lock(&mu_);
        const auto found = logs_.find(LogKey(job_id, kind));
        if (found == logs_.end()) {
          continue;
        }
        log = std::move(found->second);
        logs_.erase(found);
      }
      // Synced before the commit below ends its place in the journal: from then on the files are
      // all there is.
      unflushed_.erase(LogKey(job_id, kind));
      HEARTH_RETURN_IF_ERROR(log->Sync());
    }
    std::string row;
    PutJournalDeletion(row, job_id);
    HEARTH_RETURN_IF_ERROR(database_->Execute("BEGIN IMMEDIATE"));
    absl::Status status = KeepRowsOfJob(*database_, job_id, absl::ToUnixSeconds(options_.now));
    if (status.ok()) {
      status = DeleteJobRows(job_id);
    }
    if (status.ok()) {
      status = PutJournalRow(row);
    }
    if (status.ok()) {
      status = database_->Execute("COMMIT");
    }
    if (!status.ok()) {
      database_->Execute("ROLLBACK").IgnoreError();
      return status;
    }
  }
  return absl::OkStatus();
}

// Entries under jobs/ that belong to no job: their jobs are newer than a store.db that was put
// back, or they are not ours. Only files of a job that was deleted just before a crash are removed.
absl::Status Store::SetUnknownAside(const Recovery& recovery, LoadedState& state) {
  HEARTH_ASSIGN_OR_RETURN(const std::vector<std::string> names, env_.ListDir(JobsDir()));
  for (const std::string& name : names) {
    if (recovery.jobs.contains(name)) {
      continue;
    }
    if (recovery.deleted.contains(name)) {
      HEARTH_RETURN_IF_ERROR(RemoveJobFolder(name));
      continue;
    }
    const std::string path = absl::StrCat(JobsDir(), "/", name);
    const absl::Status moved = quarantine_.Move(path);
    if (moved.ok()) {
      state.warnings.push_back(absl::StrCat(path, " belongs to no job that is known; moved to ",
                                            quarantine_.folder(), "/jobs/", name));
    } else {
      state.warnings.push_back(absl::StrCat(path, " belongs to no job that is known and cannot be ",
                                            "moved: ", std::string(moved.message())));
    }
  }
  return absl::OkStatus();
}

void Store::NameWhatIsMissing(LoadedState& state) {
  for (const v1::JobRecord& record : state.core.jobs) {
    const std::string& job_id = record.job().job_id();
    const auto log = Find(job_id, StreamKind::kHistory);
    const int64_t end = log == nullptr ? 0 : log->newest();
    if (end < record.history_cursor()) {
      state.warnings.push_back(absl::StrCat("job ", job_id, ": the newest ",
                                            record.history_cursor() - end,
                                            " records of its history are missing"));
    }
  }
}

}  // namespace hearth::coordinator
